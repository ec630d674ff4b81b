"""The pages of alerts, and of the changes that people made (audit)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from pgsched.core.input_values import moment
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import alerts
from pgsched.db.queries.reports.audit import KINDS
from pgsched.services.changes import author, changes, describe_change, with_jobs_named
from pgsched.web.pages.rendering import query
from pgsched.web.pages.responses import View, an_id, given

PAGE, SHOWN = 50, 100


def incidents(request: Request, conn: Connection[Any]) -> View:
    """Return the page of open incidents and of the newest that are over."""
    newest = alerts.listed(conn, everything=True, n=SHOWN)
    values = {"open": alerts.listed(conn, n=SHOWN), "over": [one for one in newest if one["closed_at"] is not None]}
    return View("alerts.html", values)


def audit(request: Request, conn: Connection[Any]) -> View:
    """Return the page of the newest changes that match the filter."""
    wanted = {name: given(request, name) for name in ("what", "name", "who", "since")}
    before = an_id(request, "before", "change")
    found = changes(
        conn, wanted["what"], wanted["name"], who=wanted["who"], since=moment("since", wanted["since"]),
        before_id=before, limit=PAGE + 1,
    )  # fmt: skip
    shown = [row | {"by": author(row), "told": describe_change(row)} for row in with_jobs_named(conn, found[:PAGE])]
    more = query(wanted, before=shown[-1]["id"]) if len(found) > PAGE else None
    return View("audit.html", {"changes": shown, "wanted": wanted, "kinds": KINDS, "more": more, "paged": before})
