"""The pages of alerts, and of the changes that people made (audit)."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request

from pgsched.core.input_values import parse_age_or_instant
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import alerts
from pgsched.db.queries.reports.audit import KINDS
from pgsched.services.audit import add_job_names, changes, describe_author, describe_change
from pgsched.web.pages.rendering import query_string
from pgsched.web.pages.responses import View, field_row_id, field_text

PAGE, SHOWN = 50, 100


def incidents(request: Request, conn: Connection[Any]) -> View:
    """Return the page of open incidents and of the newest that are over."""
    newest = alerts.list_alerts(conn, everything=True, n=SHOWN)
    values = {
        "open": alerts.list_alerts(conn, n=SHOWN),
        "over": [one for one in newest if one["closed_at"] is not None],
    }
    return View("alerts.html", values)


def audit(request: Request, conn: Connection[Any]) -> View:
    """Return the page of the newest changes that match the filter."""
    wanted = {name: field_text(request, name) for name in ("what", "name", "who", "since")}
    before = field_row_id(request, "before", "change")
    found = changes(
        conn, wanted["what"], wanted["name"], who=wanted["who"], since=parse_age_or_instant("since", wanted["since"]),
        before_id=before, limit=PAGE + 1,
    )  # fmt: skip
    shown = [
        row | {"by": describe_author(row), "told": describe_change(row)} for row in add_job_names(conn, found[:PAGE])
    ]
    more = query_string(wanted, before=shown[-1]["id"]) if len(found) > PAGE else None
    return View("audit.html", {"changes": shown, "wanted": wanted, "kinds": KINDS, "more": more, "paged": before})
