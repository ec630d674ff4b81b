"""The pages of jobs: the list, the page of one job, and the actions of its buttons."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

from starlette.requests import Request

from pgsched.core.input_values import parse_instant
from pgsched.core.model import Row
from pgsched.core.schedule import zones
from pgsched.core.schedule.calendar import describe_times
from pgsched.core.schedule.preview import preview_job
from pgsched.core.wording import describe_keep, format_short_duration
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import backfills, jobs
from pgsched.db.queries.leader import alerts
from pgsched.errors import InputError
from pgsched.services import long_charts
from pgsched.services.jobs import job_changes, slots
from pgsched.services.jobs.explain import explain_slot
from pgsched.services.jobs.order import neighbours
from pgsched.web.pages import months
from pgsched.web.pages.charts import SAMPLED, Chart, Series, bars, chart, draw_strip, duration_paths, number
from pgsched.web.pages.responses import Redirect, View, field_text, job_url

PAGE = 50
FORESEEN = 8
DAY_SHOWN = 60
TIMES_SHOWN = 20


def index(request: Request, conn: Connection[Any]) -> View:
    """Return the list of jobs."""
    wanted = {name: field_text(request, name) for name in ("state", "queue", "after")}
    found = jobs.list_jobs(conn, **wanted, limit=PAGE + 1)
    shown = found[:PAGE]
    strips = slots.read_strips(conn, [job["id"] for job in shown])
    values = {
        "jobs": shown, "wanted": wanted, "states": jobs.STATES,
        "more": shown[-1]["name"] if len(found) > PAGE else None,
        "strips": {job["id"]: slot_strips(strips.get(job["id"], [])) for job in shown},
    }  # fmt: skip
    return View("jobs.html", values)


def slot_strips(found: list[Row]) -> tuple[Any, Any]:
    """Return two strips of a job's last slots: how long the runs took, and how they ended."""
    slot_bars = bars(found)
    return duration_paths(slot_bars, slots.SHOWN), draw_strip(slot_bars, slots.SHOWN)


def show(request: Request, conn: Connection[Any]) -> View:
    """Return the page of a job: its slots, what comes next, and why a slot did not run."""
    job = jobs.show_planned_job(conn, request.path_params["name"])
    today = job["now"].astimezone(zones.zone(job["timezone"])).date()
    day = field_date(request, "day")
    first = (field_date(request, "month") or day or today).replace(day=1)
    of_day = (
        slots.list_of_day(conn, job, day, parse_instant("before", field_text(request, "before")), DAY_SHOWN + 1)
        if day
        else []
    )
    span = field_text(request, "range")
    span = span if span in long_charts.OF_A_JOB else None
    recent = slots.read_strips(conn, [job["id"]], 100).get(job["id"], []) if span is None else []
    before, behind = neighbours(conn, job)
    found = slots.read_month(conn, job, first)
    values = {
        "job": job,
        "facts": policies_set(job),
        "preview": preview_job(job, FORESEEN),
        "bars": bars(recent),
        "span": span,
        "spans": long_charts.OF_A_JOB,
        "charts": [] if span is None else long_charts_of_job(conn, job, span),
        "after": before,
        "waited_for_by": behind,
        "calendar_times": calendar_words(job),
        "dates": [dict(zip(("first", "last", "reason"), one, strict=True)) for one in job["excluded"] or ()],
        "month": found,
        "month_days": months.days(job, found),
        "kinds": months.KINDS,
        "today": today,
        "day": day,
        "before": first - timedelta(days=1),
        "behind": first + timedelta(days=32),
        "blank": first.weekday(),
        "of_day": of_day[:DAY_SHOWN] if day else None,
        "more_of_day": len(of_day) > DAY_SHOWN,
        "changes": slots.around_changes(job),
        "told_why": explanation(request, conn, job),
        "alerts": alerts.list_alerts(conn, everything=True, job_id=job["id"], n=5),
        "backfills": [one for one in backfills.list_backfills(conn, 20) if one["job_id"] == job["id"]],
    }
    return View("job.html", values, every_s=None if span is None else 10.0)


def calendar_words(job: Row) -> list[str]:
    """Return the times of the job's calendar in words, at most TIMES_SHOWN: past dates are left out."""
    today = f"{job['now']:%Y-%m-%d}"
    coming = [row for row in job["calendar_times"] or () if row[2] is None or str(row[2]) >= today]
    words = [describe_times(*row).partition(": ")[2] for row in sorted(coming, key=lambda row: str(row[1] or ""))]
    more = [f"and {len(words) - TIMES_SHOWN} more"] if len(words) > TIMES_SHOWN else []
    return words[:TIMES_SHOWN] + more


def long_charts_of_job(conn: Connection[Any], job: Row, span: str) -> list[Chart]:
    """Return charts of durations, lateness and outcomes, over longer than rows are kept."""
    lately = long_charts.read_job_stretches(conn, job["id"], span)
    times, begin = [f"{one.from_at:%Y-%m-%d %H:%M} UTC" for one in lately], f"{span} ago"
    sampled = SAMPLED if any(one.sampled for one in lately) else ""
    took = [Series("half took at most", "a", [one.took_50 for one in lately]),
            Series("95 %", "b", [one.took_95 for one in lately])]  # fmt: skip
    late = [Series("95 % started within", "a", [one.late_95 for one in lately])]
    ended = [Series("executed", "a", [one.runs for one in lately], filled=True),
             Series("dead", "bad", [one.dead for one in lately]),
             Series("missed", "b", [one.missed for one in lately])]  # fmt: skip
    return [
        chart("Durations", took, times, format_short_duration, begin),
        chart("Lateness", late, times, format_short_duration, begin),
        chart("Runs", ended, times, number, begin, note=sampled),
    ]


def explanation(request: Request, conn: Connection[Any], job: Row) -> str | None:
    """Return the explanation of the slot that the URL asks about; None if it asks about none."""
    if "at" not in request.query_params:
        return None
    try:
        return explain_slot(conn, job["name"], field_text(request, "at")).text
    except InputError as error:
        return str(error)


def field_date(request: Request, name: str) -> date | None:
    """Return a date of the URL; None if it is empty. `YYYY-MM` means the first of the month.

    Raises InputError for other texts, and for a year that no job can have.
    """
    text = field_text(request, name)
    if text is None:
        return None
    try:
        found = date.fromisoformat(text if len(text) > 7 else f"{text}-01")
    except ValueError:
        raise InputError(f'{name}: "{text[:50]}" is not a date such as 2026-03-29', name) from None
    if not 1970 <= found.year < 9000:
        raise InputError(f"{name}: {text} is not between 1970 and 9000", name)
    return found


POLICIES = (
    "overlap", "max_buffer", "retry_within", "misfire_after", "catch_up", "max_catch_up", "catch_up_window",
    "start_deadline", "calendar", "on_excluded", "max_attempts", "timeout", "kill_after", "backoff", "backoff_base",
    "backoff_max", "backoff_jitter", "jitter", "starts_at", "ends_at", "max_runs", "run_count", "concurrency_key",
    "concurrency_limit", "success_codes", "retry_codes", "dead_codes", "delete_after_run",
    "alert_after_failures", "max_lateness", "max_duration", "expect_every", "finish_by", "alert_to",
    "pause_after_failures", "keep",
)  # fmt: skip


def policies_set(job: Row) -> dict[str, Any]:
    """Return the policies of a job that are set."""
    usual = {"on_excluded": "skip"}  # not shown
    found = {name: job[name] for name in POLICIES if job[name] not in (None, False, timedelta(0), usual.get(name))}
    return found | ({"keep": describe_keep(job["keep"])} if job["keep"] else {})


# ---- actions of one button


def pause(request: Request, conn: Connection[Any]) -> Redirect:
    """Pause the job's schedule."""
    name = request.path_params["name"]
    user = request.state.visitor.user or None
    job = job_changes.pause(conn, name, field_text(request, "reason"), user)
    return Redirect(job_url(name), " ".join(["The schedule is paused. Runs that exist go on.", *job["notes"]]))


def resume(request: Request, conn: Connection[Any]) -> Redirect:
    """Resume the job's schedule."""
    name = request.path_params["name"]
    job = job_changes.resume(conn, name, field_text(request, "from") or "now")
    return Redirect(job_url(name), " ".join(["The job is active again.", *job["notes"]]))


def set_mode(request: Request, conn: Connection[Any]) -> Redirect:
    """Let the job's slots run, or only be recorded."""
    name = request.path_params["name"]
    job = job_changes.set_mode(conn, name, field_text(request, "mode") or "run")
    runs = "The next slot runs." if job["mode"] == "run" else "Its slots are recorded, and nothing runs."
    return Redirect(job_url(name), " ".join([runs, *job["notes"]]))


def delete(request: Request, conn: Connection[Any]) -> Redirect:
    """Delete the job if its name was typed again."""
    name = request.path_params["name"]
    if field_text(request, "name") != name:
        return Redirect(job_url(name), "Not deleted: the name that you typed is not this job's.", bad=True)
    gone = job_changes.delete(conn, name).result
    still = f" {gone['running']} of its runs still run." if gone["running"] else ""
    return Redirect("/jobs", f"Job {name} is deleted.{still}")
