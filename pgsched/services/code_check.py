"""`pgsched check --app`: whether a worker could serve this code, and what it would do with the jobs of a database.

Invariant: the code is imported, as a worker imports it, and nothing is written: what a worker would write to the jobs
is rolled back.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pgsched.app.base import import_app, refuse_same_names
from pgsched.app.release import release_of, releases
from pgsched.config import find_dsn_source
from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.preview import next_slots
from pgsched.db.connection.connect import DatabaseError, connect
from pgsched.db.connection.failures import explain_error
from pgsched.db.queries.jobs.declarations import FOREIGN, LOCKED
from pgsched.db.queries.jobs.registration import preview_registration
from pgsched.errors import InputError, NotPermitted, PgschedError
from pgsched.services import check
from pgsched.services.check import Finding, fail, ok, warn

if TYPE_CHECKING:
    from pgsched.app.base import AppBase

NAMES = 8
RESULTS = {
    "created": "a worker will create",
    "updated": "a worker will update",
    "unchanged": "as declared already",
    "left": "declared no more, and removed when no process of the app declares it",
}


def check_with_apps(paths: Sequence[str], flag: str | None, environ: Mapping[str, str] | None = None) -> list[Finding]:
    """Check the apps of these paths, and the database, if one is named, with what they would do there."""
    env = os.environ if environ is None else environ
    apps, found = load_apps(paths)
    for app in apps:
        found += check_app(app)
    own = next((app.dsn for app in apps if app.dsn is not None), None)
    try:
        named = find_dsn_source(flag, env, own)
    except InputError as error:
        return [*found, *check.settings(env), fail("dsn", error)]
    if named is None:
        text = "none is named, so only the code was checked; PGSCHED_DSN or --dsn names one"
        return [*found, *check.settings(env), ok("database", text)]
    place = check.check(flag, env, own)
    found += place
    if not check.exit_code(place):
        for app in apps:
            found += check_registration(app, named[1])
    return found


def load_apps(paths: Sequence[str]) -> tuple[list[AppBase], list[Finding]]:
    """Import the apps; return them, and a finding for each that cannot be imported or stand beside the others."""
    apps: list[AppBase] = []
    found: list[Finding] = []
    for path in paths:
        try:
            app = import_app(path)
            for other in apps:
                refuse_same_names(other, app)
        except InputError as error:
            found.append(fail("app", error))
        else:
            apps.append(app)
    return apps, found


def check_app(app: AppBase) -> Iterator[Finding]:
    """Check the tasks and jobs of an app without a database."""
    yield ok("app", f"{app.path}: app {app.name}, {len(app.tasks)} tasks, {len(app.declared_jobs)} jobs")
    if not app.tasks:
        yield warn("tasks", f"app {app.name} has no tasks: is the module imported that registers them?")
    broken = [finding for name in app.tasks if (finding := check_task(app, name)) is not None]
    yield from broken
    if app.tasks and not broken:
        yield ok("tasks", list_names(sorted(app.tasks)))
    names = {job.name for job in app.declared_jobs}
    now = datetime.now(UTC)
    for job in app.declared_jobs:
        schedule = parse(job.schedule, job.timezone, now)
        slots = next_slots(schedule, now, 1)
        first = f"{slots[0].at:%Y-%m-%d %H:%M:%S} UTC" if slots else "not known"
        if not slots and not schedule.fixed_delay:
            yield warn("job", f"{job.name}: its schedule {job.schedule!r} has no slot any more")
        else:
            yield ok("job", f"{job.name}: {job.task}, {job.schedule} in {job.timezone}; next slot {first}")
        if missing := sorted(set(job.policies.get("after_jobs") or ()) - names):
            yield warn("job", f"{job.name}: after_jobs: app {app.name} declares no job {missing[0]}: another must")


def check_task(app: AppBase, name: str) -> Finding | None:
    """Return what is wrong with a task, None if nothing is."""
    try:
        release_of(app.tasks[name])
    except PgschedError as error:
        return fail("task", type(error)(f"{name}: {error}"))
    except Exception as error:  # a library's error about an annotation
        return fail("task", InputError(f"{name}: its arguments cannot be described: {type(error).__name__}: {error}"))
    return None


def check_registration(app: AppBase, dsn: str) -> Iterator[Finding]:
    """Check what a worker with this app would do with the jobs and tasks of the database."""
    try:
        with connect(dsn, purpose="check", timeout_s=10) as conn:
            owner, done = preview_registration(conn, app.name, app.declared_jobs, releases(app.tasks.values()))
    except NotPermitted as error:
        yield warn("jobs", f"app {app.name}: not compared with the database: {error}")
        return
    except PgschedError as error:
        yield fail("jobs", error)
        return
    except DatabaseError as error:
        yield fail("jobs", explain_error(error))
        return
    if owner is not None:
        yield warn("tasks", f"app {app.name} belongs to role {owner} in this database: its tasks are not registered")
    by_result: dict[str, list[str]] = {}
    for name, what in done.items():
        if what.startswith((FOREIGN, LOCKED)):
            why = "belongs to another app or owner, so it is not made" if what.startswith(FOREIGN) else f"is {what}"
            yield warn("jobs", f"{name} {why}")
        else:
            by_result.setdefault(what, []).append(name)
    for what, names in by_result.items():
        yield ok("jobs", f"app {app.name}: {RESULTS.get(what, what)}: {list_names(names)}")


def list_names(names: Sequence[str]) -> str:
    """Return the first names, and how many more there are."""
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more
