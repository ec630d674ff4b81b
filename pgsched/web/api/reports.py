"""The reports of the JSON API: figures of charts, slots, tasks, alerts, changes, and the doctor's findings."""

from __future__ import annotations

from dataclasses import asdict
from datetime import timedelta
from typing import Any

from pgsched.core.input_values import parse_age_or_instant, parse_bounded_instant
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.leader import alerts
from pgsched.errors import InputError
from pgsched.services import long_charts, tasks
from pgsched.services.audit import changes
from pgsched.services.jobs import slots
from pgsched.web.api.operations import Given

LISTED = 100


def show_rates(conn: Connection[Any], given: Given) -> Any:
    """Return throughput, latency, lateness and errors over a range of time."""
    span = given.get("range", "1h")
    return {"range": span, "stretches": [asdict(one) for one in long_charts.read_range(conn, span)]}


def show_job_rates(conn: Connection[Any], given: Given) -> Any:
    """Return durations and outcomes of a job over a range of time."""
    span, job = given.get("range", "7d"), jobs.show_job(conn, given["job"])
    return {"range": span, "stretches": [asdict(one) for one in long_charts.read_job_stretches(conn, job["id"], span)]}


def list_slots(conn: Connection[Any], given: Given) -> Any:
    """Return the newest slots with a row between two instants; by default of the last 30 days."""
    job = jobs.show_job(conn, given["job"])
    since, until = (parse_bounded_instant(name, given[name]) if given.get(name) else None for name in ("from", "until"))
    until = until or job["now"]
    try:
        since = since or (until - timedelta(days=30))
    except OverflowError:
        raise InputError("until: is too early", "until") from None
    return {"slots": slots.list_between(conn, job["id"], since, until, given.get("limit", LISTED))}


def list_tasks(conn: Connection[Any], given: Given) -> Any:
    """Return the known tasks by name, with the schemas of their arguments."""
    return {"tasks": [asdict(one) for one in tasks.list_tasks(conn, most=given.get("limit", LISTED))]}


def show_task(conn: Connection[Any], given: Given) -> Any:
    """Return one task, once for each app that has it. Raises NotFound."""
    return {"tasks": [asdict(one) for one in tasks.show_task(conn, given["name"])]}


def list_alerts(conn: Connection[Any], given: Given) -> Any:
    """Return the open incidents, or all."""
    return {"alerts": alerts.list_alerts(conn, everything=given.get("all", False), n=given.get("limit", LISTED))}


def list_changes(conn: Connection[Any], given: Given) -> Any:
    """Return changes that people made, newest first."""
    found = changes(
        conn,
        given.get("what"),
        given.get("name"),
        who=given.get("who"),
        since=parse_age_or_instant("since", given.get("since")),
        before_id=given.get("before"),
        limit=given.get("limit", LISTED),
    )
    return {"changes": [row | {"address": row["address"] and str(row["address"])} for row in found]}


def diagnose(conn: Connection[Any], given: Given) -> Any:
    """Return the findings of the doctor's last check, and their age in seconds.

    The first check takes seconds: until it ends there are no findings, and the age is null.
    """
    findings, age_s = given["diagnosis"]
    looked = findings is not None
    return {"findings": [asdict(one) for one in findings or ()], "age_s": round(age_s, 1) if looked else None}
