"""What people should hear of: incidents, and who changed what."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from pgsched.cli.commands.audit import by, change
from pgsched.cli.option_values import moment
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import alerts
from pgsched.db.queries.reports.audit import KINDS, entries
from pgsched.db.rows import Row, rows
from pgsched.web.pages.rendering import query
from pgsched.web.pages.responses import View, an_id, given

PAGE, SHOWN = 50, 100


def incidents(request: Request, conn: Connection[Any]) -> View:
    """Those that are open, and the newest that are over."""
    newest = alerts.listed(conn, everything=True, n=SHOWN)
    values = {"open": alerts.listed(conn, n=SHOWN), "over": [one for one in newest if one["closed_at"] is not None]}
    return View("alerts.html", values)


def named(conn: Connection[Any], found: list[Row]) -> list[Row]:
    """The changes with names instead of the numbers of jobs, and whether the job that each is about is there."""
    ids = {n for row in found for value in (row["change"] or {}).get("after_jobs") or () for n in numbers(value)}
    names = {row["name"] for row in found if row["what"] == "job"}
    jobs = rows(conn, "jobs_known", {"names": sorted(names), "ids": sorted(ids)})
    known = {row["id"]: row["name"] for row in jobs}
    there = set(known.values())
    return [row | {"change": with_names(row["change"], known), "is_there": row["name"] in there} for row in found]


def numbers(value: Any) -> list[int]:
    """The ids in a value of after_jobs."""
    items = value if isinstance(value, list) else [value]
    return [one for one in items if isinstance(one, int) and 0 < one < 2**63]


def with_names(change: Any, known: dict[int, str]) -> Any:
    """The change with the names of the jobs that it is about."""
    if not isinstance(change, dict) or not isinstance(change.get("after_jobs"), list):
        return change

    def name(value: Any) -> Any:
        return [name(one) for one in value] if isinstance(value, list) else known.get(value, value)

    return change | {"after_jobs": name(change["after_jobs"])}


def audit(request: Request, conn: Connection[Any]) -> View:
    """The newest changes that the filters mean."""
    wanted = {name: given(request, name) for name in ("what", "name", "who", "since")}
    before = an_id(request, "before", "change")
    found = entries(
        conn, wanted["what"], wanted["name"], who=wanted["who"], since=moment("since", wanted["since"]),
        before_id=before, limit=PAGE + 1,
    )  # fmt: skip
    shown = [row | {"by": by(row), "told": change(row)} for row in named(conn, found[:PAGE])]
    more = query(wanted, before=shown[-1]["id"]) if len(found) > PAGE else None
    return View("audit.html", {"changes": shown, "wanted": wanted, "kinds": KINDS, "more": more, "paged": before})
