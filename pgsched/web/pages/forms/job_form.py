"""The form that creates or changes a job.

Invariant: a field is a column, and its text is what PostgreSQL reads. Only changed fields are sent, because a schedule
that is set again starts again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from pgsched.core import policies
from pgsched.core.input_values import json_arguments, parse_age_or_instant
from pgsched.core.model import Kind, Row
from pgsched.core.payload import json_value
from pgsched.core.planning.job_schedule import job_calendar, whole_schedule
from pgsched.core.schedule import preview as previews
from pgsched.core.schedule.calendar import INSTANT
from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.describe import describe
from pgsched.core.schedule.shifting_days import STEPS
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import declarations, jobs
from pgsched.db.queries.jobs.shared_calendars import add_times_of_calendars
from pgsched.errors import InputError, NotFound
from pgsched.services.jobs import job_changes
from pgsched.services.jobs.order import neighbours
from pgsched.web.pages.rendering import ENVIRONMENT
from pgsched.web.pages.responses import Redirect, View, field_text, job_url
from pgsched.web.pages.retention import keep_of, keep_text
from pgsched.web.security.prefix import prefix_of

SHOWN = 8
CRON_FIELDS = ("second", "minute", "hour", "day of month", "month", "day of week")


@dataclass(frozen=True, slots=True)
class Field:
    """A column of a job as a field of the form.

    `hint`: what to enter.
    `choices`: the values to choose from.
    `long`: the field has several lines.
    `tick`: the field is a box to tick.
    `default`: the text of the column's default.
    `of_task`: the job may leave the choice to its task.
    """

    name: str
    hint: str = ""
    choices: tuple[str, ...] = ()
    long: bool = False
    tick: bool = False
    default: str = ""
    of_task: bool = False


TASK_FIELDS = (
    Field("name"),
    Field("kind", choices=tuple(Kind), default=Kind.TASK),
    Field("task", "registered name, program, command line, statement or URL", long=True),
    Field("args", "JSON: an object or an array", long=True, default="{}"),
    Field("description", long=True),
)
SCHEDULE_FIELDS = (
    Field("schedule", "0 2 * * *, @every 90s, @daily; several with ; between them; empty: once"),
    Field("timezone", "IANA name", default="UTC"),
    Field("run_at", "once, at this instant"),
    Field("starts_at", "the first slot there can be"),
    Field("ends_at", "the last"),
    Field("max_runs", "no slot after so many runs"),
    Field("jitter", "spread the starts over this long", default="0 seconds"),
    Field("delete_after_run", tick=True),
    Field("calendar", "the name of a shared calendar, whose times are excluded"),
    Field("on_excluded", choices=policies.ON_EXCLUDED, default="skip"),
    Field("after_jobs", "names of jobs, one a line: a slot waits for their runs of the same slot", long=True),
    Field("after_match", choices=policies.AFTER_MATCH, default="same"),
)
SLOT_FIELDS = (
    Field("mode", "shadow: slots are recorded, and nothing runs", choices=policies.MODES, default="run"),
    Field("overlap", choices=policies.OVERLAP, default="skip"),
    Field("max_buffer", default="100"),
    Field("retry_within", "a slot that overlap skips may start until then"),
    Field("catch_up", choices=policies.CATCH_UP, default="latest"),
    Field("max_catch_up", default="100"),
    Field("catch_up_window", default="86400 seconds"),
    Field("misfire_after", "later than this is late", default="60 seconds"),
    Field("start_deadline", "not started by then: missed"),
)
ATTEMPT_FIELDS = (
    Field("max_attempts", "empty: as its task says, or 3"),
    Field("timeout", "of one attempt: 90 seconds, 2h"),
    Field("kill_after", "empty: as its task says, or 10 seconds"),
    Field("backoff", choices=policies.BACKOFF, of_task=True),
    Field("backoff_base", "empty: as its task says, or 5 seconds"),
    Field("backoff_max", "empty: as its task says, or 1 hour"),
    Field("backoff_jitter", "empty: as its task says, or 0.2"),
    Field("success_codes", default="0"),
    Field("retry_codes", "exit codes, with commas"),
    Field("dead_codes", "exit codes, with commas"),
)
QUEUE_FIELDS = (
    Field("queue", "empty: as its task says, or default"),
    Field("priority", "0-9, lower first; empty: as its task says, or 5"),
    Field("tags", "with commas"),
    Field("concurrency_key", "runs of one key share a limit"),
    Field("concurrency_limit", "so many at a time"),
)
ALERT_FIELDS = (
    Field("alert_after_failures", "so many runs in a row"),
    Field("max_lateness", "from the slot to the start: 10 minutes"),
    Field("max_duration", "of one attempt"),
    Field("expect_every", "a success, paused or not: 26 hours"),
    Field("finish_by", "a slot has succeeded so long after its time: 4 hours"),
    Field("pause_after_failures", "so many runs in a row: the job pauses itself"),
    Field("alert_to", "names of sinks, with commas; {}: none of them; empty: all"),
    Field("ping_url", "gets each start, success and failure, by POST"),
    Field("keep", "its ended runs: dead=90d, any=7d; empty: as its queue says, or everything else"),
)
GROUPS = {
    "What to run": TASK_FIELDS,
    "When": SCHEDULE_FIELDS,
    "Late and overlapping slots": SLOT_FIELDS,
    "Attempts": ATTEMPT_FIELDS,
    "Queue and limits": QUEUE_FIELDS,
    "Alerts and retention": ALERT_FIELDS,
}
FIELDS = {field.name: field for group in GROUPS.values() for field in group}
LISTS = ("tags", "success_codes", "retry_codes", "dead_codes", "alert_to")


def new(request: Request, conn: Connection[Any]) -> View:
    """Return an empty form, or a form filled in with another job's values."""
    texts = {name: field.default for name, field in FIELDS.items()}
    if (like := field_text(request, "like")) is not None:
        texts = texts_of(conn, jobs.show_job(conn, like)) | {"name": ""}
    return form_view(None, texts)


def edit(request: Request, conn: Connection[Any]) -> View:
    """Return the form of a job."""
    job = jobs.show_job(conn, request.path_params["name"])
    return form_view(job, texts_of(conn, job))


def form_view(
    job: Row | None,
    texts: Mapping[str, str],
    problem: InputError | None = None,
    *,
    seen: Mapping[str, str] | None = None,
    theirs: Mapping[str, str] | None = None,
) -> View:
    """Return the form, with a problem beside its field.

    `seen`: the texts that changes are compared with; None: `texts`.
    `theirs`: another person's new texts of fields that were changed here as well.
    """
    wrong = None if problem is None else field_of_error(problem)
    values = {
        "job": job, "texts": texts, "groups": GROUPS, "problem": None if problem is None else str(problem),
        "wrong": wrong if wrong in FIELDS else None, "seen": json.dumps(dict(texts if seen is None else seen)),
        "theirs": theirs or {},
    }  # fmt: skip
    return View("job_form.html", values, 200 if problem is None else 422)


def field_of_error(problem: InputError) -> str | None:
    """Return the field that an error is about; parts of a cron expression are the field `schedule`."""
    return "schedule" if problem.field in CRON_FIELDS else problem.field


def create(request: Request, conn: Connection[Any]) -> View | Redirect:
    """Create the job."""
    texts = form_texts(request)
    try:
        filled = {name: text for name, text in texts.items() if text != FIELDS[name].default}
        job = job_changes.add(conn, column_values(conn, filled) | paused_column(request))
    except InputError as problem:
        return form_view(None, texts, problem)
    return Redirect(job_url(job["name"]), f"Job {job['name']} is made.")


def change(request: Request, conn: Connection[Any]) -> View | Redirect:
    """Change the fields that were changed in the form.

    What another person changed meanwhile stays, unless the same field was changed here as well: then the form shows
    both texts.
    """
    texts = form_texts(request)
    try:
        job = jobs.show_job(conn, request.path_params["name"])
    except NotFound as gone:
        return form_view(None, texts, InputError(f"{gone}: it was deleted meanwhile; saving makes it again"), seen={})
    now = texts_of(conn, job)
    seen = texts_seen(request, now)
    mine = {name: text for name, text in texts.items() if text != seen[name]}
    theirs = {name: now[name] for name, text in mine.items() if now[name] not in (seen[name], text)}
    texts = now | mine
    try:
        if theirs:
            raise InputError(f"{', '.join(theirs)}: changed by others meanwhile; the fields below are yours, with"
                             " theirs beside them; save again to put yours over theirs")  # fmt: skip
        changes = column_values(conn, {name: text for name, text in mine.items() if text != now[name]})
        if not changes:
            return Redirect(job_url(job["name"]), "Nothing was changed.")
        job = job_changes.update(conn, job["name"], changes)
    except InputError as problem:
        return form_view(job, texts, problem, seen=now, theirs=theirs)
    return Redirect(job_url(job["name"]), f"Changed: {', '.join(changes)}.")


def texts_seen(request: Request, otherwise: Mapping[str, str]) -> dict[str, str]:
    """Return the texts that the form was filled in with; for a missing text, the current one."""
    try:
        found = json.loads(field_text(request, "seen") or "{}")
    except ValueError:
        found = {}
    known = found if isinstance(found, dict) else {}
    return {name: known[name] if isinstance(known.get(name), str) else text for name, text in otherwise.items()}


def form_texts(request: Request) -> dict[str, str]:
    """Return the texts of the form's fields; a box without a tick is not sent, and is `no`."""
    texts = {name: (field_text(request, name) or "").replace("\r\n", "\n") for name in FIELDS}
    return {name: (text or "no") if FIELDS[name].tick else text for name, text in texts.items()}


def paused_column(request: Request) -> dict[str, Any]:
    """Return the column that creates the job paused, if the box is ticked."""
    return {"paused": True} if field_text(request, "paused") else {}


def column_values(conn: Connection[Any], texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of columns for these texts; an empty text puts the default back."""
    found = {name: value_of(name, text) for name, text in texts.items()}
    if found.get("after_jobs"):
        found["after_jobs"] = declarations.ids_of(conn, texts.get("name") or "this", found["after_jobs"])
    return found


def value_of(name: str, text: str) -> Any:
    """Return the value of a column for a text; None for an empty text."""
    if not text:
        return None
    if name == "args":
        return json_arguments(text)
    if name == "keep":
        return keep_of(text)
    if name == "after_jobs":
        return [line.strip() for line in text.split("\n") if line.strip()]
    if name in LISTS:
        return [item.strip() for item in text.strip("{}").split(",") if item.strip()]
    return text == "yes" if FIELDS[name].tick else text


def texts_of(conn: Connection[Any], job: Row) -> dict[str, str]:
    """Return a job's columns as texts of the form; deleted jobs in `after_jobs` are left out."""
    after = [one["name"] for one in neighbours(conn, job)[0] if one["name"] is not None] if job["after_jobs"] else []
    return {name: text_of_value(name, job[name]) for name in FIELDS} | {"after_jobs": "\n".join(after)}


def text_of_value(name: str, value: Any) -> str:
    """Return a value as a text that PostgreSQL reads as the same value."""
    if name == "args":
        return json.dumps(value, indent=2, ensure_ascii=False, default=json_value)
    if name == "keep":
        return keep_text(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.15g} seconds"
    if isinstance(value, list):
        return ", ".join(map(str, value)) or ("{}" if name == "alert_to" else "")
    if isinstance(value, datetime):
        return value.isoformat()
    return "" if value is None else str(value)


def preview(request: Request, conn: Connection[Any]) -> Response:
    """Return a piece of HTML that says what the typed schedule means and when it fires."""
    values: dict[str, Any] = {"problem": None, "sentence": "", "fires": [], "notes": []}
    try:
        values |= preview_schedule(request, conn)
    except InputError as error:
        values["problem"] = str(error)
    values |= {"csrf": "", "root": prefix_of(request)}
    return HTMLResponse(ENVIRONMENT.get_template("preview.html").render(values))


def preview_schedule(request: Request, conn: Connection[Any]) -> dict[str, Any]:
    """Return the description and the next slots of the schedule in the URL.

    Slots on excluded dates of an existing job say so.
    """
    schedule, zone = field_text(request, "schedule"), field_text(request, "timezone") or "UTC"
    if schedule is None:
        at = field_text(request, "run_at")
        return {"sentence": f"Once, at {at}" if at else "Once, as soon as it is made"}
    now = datetime.now(UTC)
    begin, end = field_instant(request, "starts_at"), field_instant(request, "ends_at")
    parsed = parse(schedule, zone, max(now, begin or now))
    if parsed.fixed_delay:
        return {"sentence": describe(parsed), "notes": ["its slots depend on when runs end"]}
    name = field_text(request, "job")
    shown = field_text(request, "calendar"), field_text(request, "on_excluded") or "skip"
    job = excluding_job(conn, name, *shown) | {
        "schedule": schedule, "timezone": zone, "anchor_at": max(now, begin or now), "shifts": None
    }  # fmt: skip
    dates, since = job_calendar(job), max(now, begin - INSTANT) if begin else now
    coming = previews.next_slots(whole_schedule(job), since, SHOWN)
    fires = [replace(one, excluded=dates.excluded(one.at)) for one in coming if end is None or one.at <= end]
    sentence = describe(parsed)
    return {"sentence": sentence if zone in sentence else f"{sentence} ({zone})", "fires": fires}


def excluding_job(conn: Connection[Any], name: str | None, calendar: str | None, on_excluded: str) -> Row:
    """Return what a job of this name excludes with the calendar and the policy in the form."""
    own = jobs.show_job(conn, name)["excluded"] if name else None
    given = {"excluded": own, "calendar": calendar, "on_excluded": on_excluded if on_excluded in STEPS else "skip"}
    return add_times_of_calendars(conn, [given])[0]


def field_instant(request: Request, name: str) -> datetime | None:
    """Return the instant in a field; None while the text is not an instant yet."""
    try:
        found = parse_age_or_instant(name, field_text(request, name))
    except InputError:
        return None
    return found if isinstance(found, datetime) else None
