"""Make jobs of timers and the services that they start.

Invariant: a job starts when the timer elapses; whatever differs has a remark.

What a timer does is in systemd.timer(5). A unit that runs already is left as it is: overlap is skip. What was missed is
made up for only with Persistent=, then once: catch_up is latest. pgsched starts a job at the instant itself, which lies
in the window of any AccuracySec=.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pgsched.core.policies import LONGEST
from pgsched.importers.file_values import omit_refused
from pgsched.importers.imported import Imported, ImportedJob, Omitted, Reason, Remark
from pgsched.importers.job_names import JobNames, clean_name, clean_text
from pgsched.importers.systemd.elapse import ELAPSING, ElapseTimes, NoJob, elapse_settings, elapse_times
from pgsched.importers.systemd.services import service_job
from pgsched.importers.systemd.time_spans import parse_span
from pgsched.importers.systemd.units import Unit, UnitFiles, UnresolvedSpecifier, is_template

KNOWN = {*ELAPSING, "AccuracySec", "RandomizedDelaySec", "FixedRandomDelay", "OnClockChange", "OnTimezoneChange",
         "Unit", "Persistent", "WakeSystem", "RemainAfterElapse"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TimerOptions:
    """How timers are to be read.

    `timezone`: of the machine. `queue`: of all jobs; `{user}` in it stands for the user. `start_units`: each service
    stays a unit.
    """

    timezone: str
    now: datetime
    queue: str | None = None
    start_units: bool = False


def import_timers(files: UnitFiles, options: TimerOptions, names: JobNames | None = None) -> Imported:
    """Return the jobs of all timers among unit files. `names`: those of the same import that are taken."""
    imported, taken = Imported(), names or JobNames()
    for name in sorted({*files.texts, *files.instances, *files.masked}):
        if not name.endswith(".timer"):
            continue
        if name in files.masked:
            imported.omitted.append(Omitted(name, "", Remark(Reason.NO_UNIT, "is masked: a link to /dev/null")))
            continue
        _import_timer(files, name, options, taken, imported)
    return omit_refused(imported)


def _import_timer(files: UnitFiles, name: str, options: TimerOptions, names: JobNames, imported: Imported) -> None:
    timer = files.load(name)
    source = "" if timer is None else "; ".join(f"{key}={value}" for key, value in elapse_settings(timer))
    try:
        if timer is None:
            raise NoJob(Reason.NO_UNIT, "there is no such file")
        if is_template(name):
            if any(one.startswith(name.partition("@")[0] + "@") for one in files.instances):
                return
            raise NoJob(Reason.TEMPLATE, f"name an instance: {name.replace('@.', '@NAME.')}")
        found = elapse_times(timer, options.timezone, options.now)
        service = _service(files, timer)
    except NoJob as refusal:
        imported.omitted.append(Omitted(name, source, refusal.remark))
        return
    except UnresolvedSpecifier as error:
        text = f"{error} is known to its machine only"
        imported.omitted.append(Omitted(name, source, Remark(Reason.SCHEDULE, text)))
        return
    for number, times in enumerate(found):
        job = _job(files, timer, service, times, options, imported)
        if number:
            text = "its timer has times in two zones: this job does not know whether the other one runs"
            job.remarks.append(Remark(Reason.SCHEDULE, text, "timezone"))
        imported.add(ImportedJob(names.take(name.removesuffix(".timer")), job.columns, job.remarks, name, source))


def _service(files: UnitFiles, timer: Unit) -> Unit:
    """Return the service that a timer starts. Raises NoJob."""
    wanted = timer.value("Timer", "Unit")
    name = timer.name.removesuffix(".timer") + ".service" if wanted is None else timer.resolve(wanted)
    service = files.load(name) if name.endswith(".service") else None
    if service is None:
        raise NoJob(Reason.NO_UNIT, f"it starts {name}, which is not among the files, or no service")
    return service


def _job(
    files: UnitFiles, timer: Unit, service: Unit, times: ElapseTimes, options: TimerOptions, imported: Imported
) -> ImportedJob:
    columns: dict[str, Any] = {}
    remarks = [*times.remarks, *_timer_remarks(timer)]
    if description := timer.text("Unit", "Description") or service.text("Unit", "Description"):
        columns["description"] = clean_text(description)
    if times.schedule is not None:
        columns |= {"schedule": times.schedule, "timezone": times.timezone}
    run = service_job(service, timezone=options.timezone, of_users=files.of_users, start_units=options.start_units)
    columns |= run.columns | _queue(run.user, options, remarks, imported)
    remarks.extend(run.remarks)
    columns |= {"overlap": "skip", "catch_up": "skip", "max_attempts": 1}
    if timer.is_true("Timer", "Persistent") and times.schedule and not times.schedule.startswith("@"):
        columns |= {"catch_up": "latest", "catch_up_window": LONGEST}
        remarks.append(Remark(Reason.PERSISTENT, "what no worker started runs once, however late", "catch_up"))
    columns |= _delay(timer, remarks)
    if files.enabled is not None and timer.name not in files.enabled and any(timer.items("Install")):
        columns["paused"] = True
        remarks.append(Remark(Reason.SUSPENDED, "the timer is not enabled: no link starts it", "paused"))
    remarks.extend(
        Remark(Reason.UNREADABLE, f"{unit.name}.d/{text}"[:300]) for unit in (timer, service) for text in unit.unread
    )
    if service.is_true("Service", "RemainAfterExit"):
        remarks.append(Remark(Reason.SCHEDULE, "RemainAfterExit: its timer has started it only once", "schedule"))
    return ImportedJob(timer.name, columns | times.columns, remarks, timer.name)


def _timer_remarks(timer: Unit) -> list[Remark]:
    remarks = []
    if timer.is_true("Timer", "WakeSystem"):
        remarks.append(Remark(Reason.WAKE_SYSTEM, "WakeSystem is left out"))
    remarks.extend(
        Remark(Reason.CLOCK_TRIGGER, f"{name} is left out")
        for name in ("OnClockChange", "OnTimezoneChange")
        if timer.is_true("Timer", name)
    )
    conditions = dict.fromkeys(name for name, _ in timer.items("Unit") if name.startswith(("Condition", "Assert")))
    if conditions:
        remarks.append(Remark(Reason.CONDITION, f"{', '.join(conditions)} is left out"))
    unknown = [name for name, _ in timer.items("Timer") if name not in KNOWN and not name.startswith("X-")]
    if unknown:
        remarks.append(Remark(Reason.SCHEDULE, f"{', '.join(unknown)} is not known to this importer"))
    return remarks


def _queue(user: str | None, options: TimerOptions, remarks: list[Remark], imported: Imported) -> dict[str, Any]:
    pattern = options.queue
    if user is None:
        return {} if pattern is None else {"queue": clean_name(pattern.replace("{user}", "default"))}
    queue = clean_name((pattern or "{user}").replace("{user}", user))
    if pattern is not None and "{user}" not in pattern and user != "root":
        remarks.append(Remark(Reason.USER_LOST, f"it ran as {user}; --queue has no {{user}}", "queue"))
    else:
        text = f"jobs of {user}: serve the queue {queue} with a worker of that user, or --run-as {user}"
        if (remark := Remark(Reason.USER_COLUMN, text)) not in imported.remarks:
            imported.remarks.append(remark)
    return {"queue": queue}


def _delay(timer: Unit, remarks: list[Remark]) -> dict[str, Any]:
    wanted = timer.value("Timer", "RandomizedDelaySec")
    if wanted is None:
        return {}
    try:
        length = parse_span(wanted)
    except ValueError as error:
        remarks.append(Remark(Reason.SYNTAX, f"RandomizedDelaySec: {error}"))
        return {}
    if not length:
        return {}
    if timer.is_true("Timer", "FixedRandomDelay"):
        remarks.append(Remark(Reason.RANDOM_DELAY, "FixedRandomDelay: the same delay each time", "jitter"))
    else:
        remarks.append(Remark(Reason.JITTER, f"RandomizedDelaySec={wanted}", "jitter"))
    return {"jitter": length}
