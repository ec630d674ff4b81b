"""Read the schedules of Celery beat: of an app, which is imported, or from the tables of django-celery-beat.

Invariant: only `read_celery_app` imports code of the user's, as `celery beat` does. No task is run. The command line
calls it in a process of its own (celery_process.py).

Celery itself is not imported here: the classes of its schedules are known by their names.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stdout
from datetime import datetime, timedelta
from typing import Any

from pgsched.app.base import import_object
from pgsched.errors import InputError
from pgsched.importers.celery.crontabs import Crontab
from pgsched.importers.celery.entries import AnySchedule, Entry, Interval, Settings, Solar, Unread, import_entries
from pgsched.importers.celery.options import Broker
from pgsched.importers.celery.tables import TABLES, read_entries
from pgsched.importers.imported import Imported, Reason, Remark
from pgsched.services.importing.sources import read_tables

USUAL_QUEUE = "celery"  # task_default_queue, unless an app says otherwise
OF_A_ROUTE = ("priority", "exchange", "routing_key")
OWN_SCHEDULES = ("celery.schedules", "django_celery_beat")  # whose is_due is known
LOCAL = "enable_utc is off and timezone is not set, so the machine's zone holds: taken for UTC (--timezone)"


def read_celery_app(path: str, now: datetime, *, timezone: str | None = None) -> Imported:
    """Return the jobs of the beat_schedule of an app. Importing the app runs its code.

    `path`: `package.module:app`. `timezone`: in which its crontabs are read; None for what the app says.
    Raises InputError.
    """
    with redirect_stdout(sys.stderr):  # stdout has the file of jobs
        app, schedule = load_schedule(path)
    conf = app.conf
    local = not conf.enable_utc and not conf.timezone and timezone is None
    settings = Settings(
        timezone=timezone or str(conf.timezone or "UTC"),
        broker=Broker.of(conf.broker_url),
        starting_deadline=conf.beat_cron_starting_deadline,
    )
    found = import_entries(entries_of(app, schedule), settings, now)
    if local:
        found.remarks.append(Remark(Reason.TIME_ZONE, LOCAL))
    return found


def load_schedule(path: str) -> tuple[Any, Mapping[Any, Any]]:
    """Return an app and its beat_schedule, after what `celery beat` does first: it imports the modules of the tasks.

    Raises InputError.
    """
    app = import_object(path)
    if "celery.app.base.Celery" not in class_names(app):
        raise InputError(f"app: {path} is of type {type(app).__name__}, not an app of Celery", "app")
    try:
        app.loader.init_worker()
        app.finalize()
        schedule = app.conf.beat_schedule
    except Exception as error:  # of the user's modules and settings
        raise InputError(f"app: preparing {path} failed: {type(error).__name__}: {error}", "app") from None
    if not isinstance(schedule, Mapping):
        raise InputError(f"app: the beat_schedule of {path} is of type {type(schedule).__name__}", "app")
    return app, schedule


def class_names(value: Any) -> set[str]:
    """Return the names of the classes of a value, with their modules."""
    return {f"{kind.__module__}.{kind.__qualname__}" for kind in type(value).__mro__}


def read_beat_tables(source: str, now: datetime, *, timezone: str | None = None) -> Imported:
    """Return the jobs of the tables of django-celery-beat. `timezone`: the app's, for intervals. Raises InputError."""
    rows = dict(zip(TABLES, read_tables(source, list(TABLES)), strict=True))
    return import_entries(read_entries(rows), Settings(timezone=timezone or "UTC"), now)


def entries_of(app: Any, schedule: Mapping[Any, Any]) -> Iterator[Entry]:
    """Yield the entries of a beat_schedule."""
    for name, given in schedule.items():
        entry = given if isinstance(given, Mapping) else vars(given)
        task = str(entry.get("task") or "")
        when = entry.get("schedule")
        options, remarks = options_of(app, task, entry)
        yield Entry(
            name=str(name),
            task=task,
            schedule=read_schedule(when, relative=bool(entry.get("relative"))),
            where=f"entry {str(name)[:200]}",
            source=describe_when(when),
            args=entry.get("args") or (),
            kwargs=entry.get("kwargs") or {},
            options=options,
            parameters=parameters_of(app, task),
            own_clock=getattr(when, "nowfun", None) is not None,
            remarks=[*remarks, *remarks_of_class(when)],
        )


def options_of(app: Any, task: str, entry: Mapping[str, Any]) -> tuple[dict[str, Any], list[Remark]]:
    """Return the options of an entry, with the queue and the time limits that its task has, and remarks."""
    given = entry.get("options") or {}
    known = app.tasks.get(task)
    limits = {
        name: getattr(known, name, None) or getattr(app.conf, f"task_{name}", None)
        for name in ("time_limit", "soft_time_limit")
    }
    own = getattr(known, "queue", None)
    found, remarks = ({"queue": own}, []) if own or given.get("queue") else route_of(app, task, entry)
    return {name: value for name, value in {**limits, **found}.items() if value is not None} | dict(given), remarks


def route_of(app: Any, task: str, entry: Mapping[str, Any]) -> tuple[dict[str, Any], list[Remark]]:
    """Return the options that Celery's router gives to the messages of a task, and remarks.

    It reads task_routes in each of its forms: by name, by pattern, as a list, and as functions, which it calls
    (https://docs.celeryq.dev/en/stable/userguide/routing.html).
    """
    try:
        route = app.amqp.router.route({}, task, tuple(entry.get("args") or ()), dict(entry.get("kwargs") or {}))
        queue = getattr(route.get("queue"), "name", route.get("queue"))
        found = {name: route.get(name) for name in OF_A_ROUTE}
    except Exception as error:  # of the user's routers
        return {}, [Remark(Reason.QUEUE, f"its router failed: {type(error).__name__}", "task")]
    if queue is not None:
        found = {"priority": found["priority"]}
    return found if queue == USUAL_QUEUE else found | {"queue": queue}, []


def remarks_of_class(when: Any) -> list[Remark]:
    """Return the remark about a schedule of a class that is derived from Celery's: its own is_due is not asked."""
    kind = type(when)
    ours = "celery.schedules.schedule" in class_names(when) or "celery.schedules.crontab" in class_names(when)
    if not ours or kind.__module__.startswith(OWN_SCHEDULES):
        return []
    text = f"read as the class of Celery that {kind.__module__}.{kind.__qualname__} is derived from"
    return [Remark(Reason.SCHEDULE, text[:300], "schedule")]


def parameters_of(app: Any, task: str) -> list[str] | None:
    """Return the names of the parameters of a task, where the app knows it."""
    known = app.tasks.get(task)
    if known is None:
        return None
    try:
        found = inspect.signature(known.run).parameters.values()
    except (TypeError, ValueError):
        return None
    return [one.name for one in found if one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD]


def read_schedule(when: Any, *, relative: bool = False) -> AnySchedule:
    """Return a schedule as data: a number of seconds, a timedelta, or one of Celery's classes."""
    if isinstance(when, bool) or when is None:
        return Unread(Reason.SYNTAX, "it has no schedule")
    if isinstance(when, int | float):
        try:
            return Interval(timedelta(seconds=when), relative)
        except (OverflowError, ValueError):
            return Unread(Reason.SCHEDULE, f"an interval of {when} s")
    if isinstance(when, timedelta):
        return Interval(when, relative)
    kinds = class_names(when)
    if "celery.schedules.crontab" in kinds:
        own = zone_name(when) if "django_celery_beat.tzcrontab.TzAwareCrontab" in kinds else None
        return Crontab(
            frozenset(when.minute),
            frozenset(when.hour),
            frozenset(when.day_of_week),
            frozenset(when.day_of_month),
            frozenset(when.month_of_year),
            own,
        )
    if "celery.schedules.solar" in kinds:
        return Solar(f"{when.event} at {when.lat}, {when.lon}")
    if "celery.schedules.schedule" in kinds:
        return Interval(when.run_every, bool(when.relative))
    return Unread(Reason.SCHEDULE, f"a schedule of the class {type(when).__module__}.{type(when).__qualname__}")


def zone_name(when: Any) -> str | None:
    """Return the name of the zone of a crontab of django-celery-beat."""
    return str(when.tz) if getattr(when, "tz", None) is not None else None


def describe_when(when: Any) -> str:
    """Return a schedule as it is shown in a comment."""
    try:
        return " ".join(repr(when).split())[:200]
    except Exception:
        return type(when).__name__
