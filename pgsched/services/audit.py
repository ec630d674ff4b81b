"""The log of changes (audit): find the changes that a filter selects, and describe each in words."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

from pgsched.core.model import Row
from pgsched.core.text import did_you_mean
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.reports import audit
from pgsched.db.queries.reports.audit import KINDS
from pgsched.errors import InputError

# The main columns of a row that was made or ended.
MAIN_COLUMNS = (
    "task", "schedule", "run_at", "queue", "why", "reason", "state", "run", "job", "from", "to", "concurrency",
    "concurrency_limit", "rate", "max_depth", "resume_at", "fence", "session", "role",
)  # fmt: skip


def changes(
    conn: Connection[Any],
    what: str | None = None,
    name: str | None = None,
    *,
    who: str | None = None,
    since: datetime | timedelta | None = None,
    before_id: int | None = None,
    limit: int = 50,
) -> list[Row]:
    """Return the newest changes first (see audit_list in sql/audit.sql); `before_id` goes on behind a page.

    `since`: an instant, or how long ago. Raises InputError.
    """
    if what is not None and what not in KINDS:
        raise InputError(f'what: "{what}" is not one of {", ".join(KINDS)}{did_you_mean(what, KINDS)}', "what")
    if not 1 <= limit <= 10_000:
        raise InputError(f"limit: {limit} is out of range 1-10000", "limit")
    return audit.entries(conn, what, name, who, since, before_id, limit)


def describe_author(row: dict[str, Any]) -> str:
    """Name the author of a change: the console's user if any, the database user, and the role that it acted as."""
    login = str(row["who"]) if row["acting_as"] is None else f"{row['who']} as {row['acting_as']}"
    return login if row["for_user"] is None else f"{row['for_user']} by {login}"


def describe_change(row: dict[str, Any]) -> str:
    """Describe an edit as `column: before -> after`, and a creation or an end by the main columns."""
    values = row["change"] or {}
    if all(isinstance(pair, list) and len(pair) == 2 for pair in values.values()):
        return "; ".join(f"{column}: {shorten(pair[0])} -> {shorten(pair[1])}" for column, pair in values.items())
    return "; ".join(
        f"{column}: {shorten(values[column])}" for column in MAIN_COLUMNS if values.get(column) is not None
    )


def shorten(value: Any) -> str:
    """Return a value as a short text for the cell of a table."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


def add_job_names(conn: Connection[Any], found: list[Row]) -> list[Row]:
    """Replace the job ids in the changes by names, and add to each whether its job still exists (`is_there`)."""
    ids = {n for row in found for value in (row["change"] or {}).get("after_jobs") or () for n in job_ids(value)}
    names = {row["name"] for row in found if row["what"] == "job"}
    known = audit.jobs_known(conn, sorted(names), sorted(ids))
    there = set(known.values())
    return [row | {"change": replace_job_ids(row["change"], known), "is_there": row["name"] in there} for row in found]


def job_ids(value: Any) -> list[int]:
    """Return the job ids in a value of after_jobs."""
    items = value if isinstance(value, list) else [value]
    return [one for one in items if isinstance(one, int) and 0 < one < 2**63]


def replace_job_ids(change: Any, known: dict[int, str]) -> Any:
    """Return the change with the names of its jobs instead of their ids."""
    if not isinstance(change, dict) or not isinstance(change.get("after_jobs"), list):
        return change

    def name(value: Any) -> Any:
        return [name(one) for one in value] if isinstance(value, list) else known.get(value, value)

    return change | {"after_jobs": name(change["after_jobs"])}
