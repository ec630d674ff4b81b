"""The jobs of a job store of APScheduler 3, from its rows or from the file of `export_jobs`.

Invariant: a row that cannot be read is named with the reason, and the others are read all the same.

What the values of a job mean: https://apscheduler.readthedocs.io/en/3.x/userguide.html.
"""

from __future__ import annotations

import binascii
import json
import re
from base64 import b64decode
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from pgsched.core.policies import LONGEST
from pgsched.core.schedule.cron import parse
from pgsched.errors import InputError, ScheduleError
from pgsched.importers.apscheduler.cron import NotWritten
from pgsched.importers.apscheduler.pickles import CLASSES, Foreign, Known, PickleRefused, describe_kind, read_pickle
from pgsched.importers.apscheduler.times import NotRead, read_datetime
from pgsched.importers.apscheduler.triggers import Plan, read_trigger
from pgsched.importers.arguments import add_arguments
from pgsched.importers.file_values import omit_refused
from pgsched.importers.imported import Imported, ImportedJob, Omitted, Reason, Remark
from pgsched.importers.job_names import JobNames, clean_name, clean_text

MOST_JOBS = 20_000
INSTANT = timedelta(microseconds=1)
MOST_BYTES = 64 * 1024 * 1024  # of a file that `export_jobs` wrote
LONGEST_NAME = 200
MOST_INSTANCES = 10_000
DAMAGED = (ValueError, OverflowError, RecursionError, ScheduleError)  # what a value that nobody foresaw may raise
MADE_UP = re.compile(r"[0-9a-f]{32}")  # an id that APScheduler has chosen
# What a job has that was added without further words.
DEFAULT_GRACE_S = 1
ABOUT_ALL = (
    Remark(Reason.TASK_NAME, "each task is named as the function was: module and name"),
    Remark(
        Reason.MISFIRE_GRACE,
        "misfire_grace_time is start_deadline and catch_up_window. One second, APScheduler's default, is short:"
        " raise it where a late run is better than none",
    ),
    Remark(Reason.COALESCE, "coalesce=True is catch_up latest, False is all"),
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the job store: the id of the job, and its state, a pickle."""

    id: str
    state: bytes


def import_rows(rows: Iterable[Row], now: datetime) -> Imported:
    """Return the jobs of the rows of a job store."""
    states: list[tuple[str, Any]] = []
    omitted = []
    for row in rows:
        try:
            states.append((row.id, read_pickle(row.state)))
        except PickleRefused as error:
            omitted.append(omit(row.id, Reason.PICKLE, str(error)))
    return import_states(states, omitted, now)


def import_export(text: str, now: datetime) -> Imported:
    """Return the jobs of a file that `export_jobs` wrote: JSON with pickles in it. Raises InputError."""
    try:
        found = json.loads(text, object_hook=read_exported)
    except RecursionError:
        raise InputError("the file is nested too deeply") from None
    except (ValueError, binascii.Error) as error:
        raise InputError(f"the file is not what export_jobs writes: {error}") from None
    match found:
        case {"version": 1, "jobs": [*jobs]}:
            return import_states([(job_id(job), job) for job in jobs], [], now)
    raise InputError("the file is not what export_jobs writes: it has no version 1 and jobs")


def read_exported(found: dict[str, Any]) -> Any:
    """Return an object of the JSON: what is pickled in it is read as data."""
    pickled, reference = found.get("__apscheduler_pickle__"), found.get("__apscheduler_class__")
    if isinstance(pickled, str):
        try:
            return read_pickle(b64decode(pickled, validate=True))
        except PickleRefused as error:
            return Foreign(f"a pickle that is refused ({error})")
    if isinstance(reference, str):
        name = reference.replace(":", ".")
        return Known(name, (), found.get("__apscheduler_state__")) if name in CLASSES else Foreign(name)
    return found


def job_id(job: Any) -> str:
    """Return the id of a job's state."""
    found = job.get("id") if isinstance(job, dict) else None
    return found if isinstance(found, str) else "?"


def import_states(states: list[tuple[str, Any]], omitted: list[Omitted], now: datetime) -> Imported:
    """Return the jobs of their states. Raises InputError for too many, and for too many characters."""
    if len(states) > MOST_JOBS:
        raise InputError(f"{len(states):,} jobs; at most {MOST_JOBS:,} are read at once")
    found = Imported(remarks=list(ABOUT_ALL), omitted=omitted)
    names = JobNames()
    for identity, state in states:
        try:
            job = import_job(identity, state, now)
        except NotWritten as error:
            found.omitted.append(omit(identity, Reason.SCHEDULE, str(error)))
            continue
        except DAMAGED as error:
            found.omitted.append(omit(identity, Reason.SCHEDULE, f"a damaged state: {type(error).__name__}"))
            continue
        found.add(replace(job, name=names.take_first(job.name, f"{job.name[:150]} {identity[:12]}")))
    return omit_refused(found)


def omit(identity: str, reason: Reason, text: str) -> Omitted:
    """Return a row that became no job."""
    return Omitted(f"job {identity[:LONGEST_NAME]}", "", Remark(reason, text))


def import_job(identity: str, state: Any, now: datetime) -> ImportedJob:
    """Return one job. Raises NotWritten."""
    if not (isinstance(state, dict) and isinstance(state.get("func"), str) and state["func"] and "trigger" in state):
        raise NotWritten("no state of a job")
    plan = read_trigger(state["trigger"], now)
    add_next_run(plan, read_next_run(state.get("next_run_time")), now)
    function = state["func"].replace(":", ".")[:1000]
    title = state.get("name") if isinstance(state.get("name"), str) else ""
    name = (title or function if MADE_UP.fullmatch(identity) or not identity else identity)[:LONGEST_NAME]
    columns: dict[str, Any] = {"task": function, **plan.columns}
    if title and title not in (name, function.rpartition(".")[2]):
        columns["description"] = clean_text(title)
    remarks = list(plan.remarks)
    remarks += add_arguments(columns, state.get("args"), state.get("kwargs"), describe=describe_kind)
    remarks += add_executor(columns, state.get("executor"))
    remarks += add_instances(columns, state.get("max_instances"))
    columns["max_attempts"] = 1
    if "schedule" in columns or "run_at" in columns:
        add_lateness(columns, state.get("misfire_grace_time"), state.get("coalesce"))
    if state.get("next_run_time") is None:
        columns["paused"] = True
        remarks.append(Remark(Reason.SUSPENDED, "it has no next_run_time", "paused"))
    return ImportedJob(name, columns, remarks, f"job {identity[:LONGEST_NAME]}")


def read_next_run(value: Any) -> datetime | None:
    """Return the instant of the next run; None where there is none, or no instant."""
    try:
        return read_datetime(value)
    except NotRead:
        return None


def add_next_run(plan: Plan, at: datetime | None, now: datetime) -> None:
    """Let a job begin with the next run that its state names.

    APScheduler runs a job then, whatever its trigger says: `add_job(next_run_time=...)`, `modify_job`. An interval is
    added to the time of the last run, so it counts from there on.
    """
    if at is None:
        return
    if "run_at" in plan.columns:
        plan.columns["run_at"] = at
    elif plan.columns["schedule"].startswith("@every"):
        plan.columns["starts_at"] = at
    elif at > now and "jitter" not in plan.columns:
        schedule = parse(plan.columns["schedule"], plan.columns.get("timezone", "UTC"))
        since = max(now, plan.columns.get("starts_at", now) - INSTANT)
        if schedule.after(since) == at:
            return
        plan.columns["starts_at"] = at
        plan.remarks.append(Remark(Reason.ANCHOR, "its next run was put off: no slot before that", "starts_at"))
        if schedule.after(at - INSTANT) != at:
            text = f"its next run was set to {at:%Y-%m-%d %H:%M:%S} UTC, which its trigger does not name"
            plan.remarks.append(Remark(Reason.SCHEDULE, text, "starts_at"))


def add_executor(columns: dict[str, Any], executor: Any) -> list[Remark]:
    """Add the queue that stands for another executor than the default one."""
    if executor in (None, "", "default") or not isinstance(executor, str):
        return []
    columns["queue"] = clean_name(executor)
    return [Remark(Reason.EXECUTOR, f"executor {executor[:100]}", "queue")]


def add_instances(columns: dict[str, Any], most: Any) -> list[Remark]:
    """Add how many runs of the job there may be at once."""
    if most in (None, 1):
        return []
    if not isinstance(most, int) or isinstance(most, bool) or most < 1:
        raise NotWritten(f"max_instances {describe_kind(most)}")
    columns["overlap"], columns["concurrency_limit"] = "allow", min(most, MOST_INSTANCES)
    shown = most if most <= MOST_INSTANCES else f"more than {MOST_INSTANCES}"
    return [Remark(Reason.MAX_INSTANCES, f"max_instances={shown}", "concurrency_limit")]


def add_lateness(columns: dict[str, Any], grace: Any, coalesce: Any) -> None:
    """Add what happens to slots that are late. `grace`: seconds, None for however late."""
    if isinstance(grace, bool) or not isinstance(grace, int | None):
        grace = DEFAULT_GRACE_S
    most = int(LONGEST.total_seconds())
    late = timedelta(seconds=most if grace is None else min(max(grace, 1), most))
    columns["misfire_after"] = timedelta(seconds=1)
    columns["catch_up"] = "latest" if coalesce or coalesce is None else "all"
    columns["catch_up_window"] = late
    if grace is not None:
        columns["start_deadline"] = late
