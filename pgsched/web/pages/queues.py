"""The page of queues, limits of keys, pauses and retention, and its forms.

Invariant: a form shows all settings of a row, and an empty field removes a setting.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from starlette.requests import Request

from pgsched.core import policies
from pgsched.core.input_values import NONE, bounds, span, span_text, whole
from pgsched.core.wording import describe_limit, describe_queue
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import queues as queue_settings
from pgsched.services import pauses, settings
from pgsched.services.pauses import Target
from pgsched.web.pages import retention
from pgsched.web.pages.responses import Done, View, given


def index(request: Request, conn: Connection[Any]) -> View:
    """Return the page."""
    queues, limits = queue_settings.list_queues(conn), queue_settings.list_limits(conn)
    values = {
        "queues": [row | {"said": describe_queue(row), "rate_text": rate_text(row)} for row in queues],
        "limits": [
            row | {"said": describe_limit(row, row["concurrency"]), "rate_text": rate_text(row)} for row in limits
        ],
        "pauses": queue_settings.list_pauses(conn), "ageing_text": ageing_text, "keep_text": retention.keep_text,
        "kept": retention.shown(conn), "on_full": policies.ON_FULL,
    }  # fmt: skip
    return View("queues.html", values)


def rate_text(row: dict[str, Any]) -> str:
    """Return the rate of a row as the form takes it, such as `100/m`."""
    if row["rate"] is None:
        return ""
    text = span_text(timedelta(seconds=row["rate_s"]))
    return f"{row['rate']}/{text[1:] if text[0] == '1' and not text[1].isdigit() else text}"


def ageing_text(row: dict[str, Any]) -> str:
    """Return the ageing of a queue as the form takes it; empty without one."""
    return "" if row["ageing"] is None else span_text(row["ageing"])


def text(request: Request, name: str) -> str:
    """Return the text of a field; an empty field means `none`, which removes the setting."""
    return given(request, name) or NONE


def save_queue(request: Request, conn: Connection[Any]) -> Done:
    """Save all settings of a queue."""
    name = given(request, "name") or ""
    on_full = given(request, "on_full") or "reject"
    values = bounds("concurrency_limit", text(request, "concurrency"), text(request, "rate"), text(request, "burst"))
    ageing = given(request, "ageing")
    values |= {
        "fair": given(request, "fair") == "yes", "on_full": on_full,
        "max_depth": whole("max depth", text(request, "max_depth"), 1),
        "ageing": None if ageing is None else span("ageing", ageing), "keep": retention.keep_of(given(request, "keep")),
    }  # fmt: skip
    row = settings.set_queue(conn, name, values)
    return Done("/queues", f"Queue {name}: {describe_queue(row)}.")


def save_limit(request: Request, conn: Connection[Any]) -> Done:
    """Save all settings of a limit."""
    name = given(request, "name") or ""
    values = bounds("concurrency", text(request, "concurrency"), text(request, "rate"), text(request, "burst"))
    weight = whole("weight", given(request, "weight") or "1", 1)
    row = settings.set_limit(conn, name, values | {"ordered": given(request, "ordered") == "yes", "weight": weight})
    return Done("/queues#limits", f"Limit {name}: {describe_limit(row, row['concurrency'])}.")


def remove_limit(request: Request, conn: Connection[Any]) -> Done:
    """Remove a limit."""
    name = given(request, "name") or ""
    settings.remove_limit(conn, name)
    return Done("/queues#limits", f"Limit {name} is gone.")


def target(request: Request) -> Target:
    """Return what a pause is about."""
    return Target(given(request, "what") or "", given(request, "name") or "")


def pause(request: Request, conn: Connection[Any]) -> Done:
    """Pause a queue, a task or everything."""
    wanted, lasts = target(request), given(request, "lasts")
    user = request.state.visitor.user or None
    pauses.pause(conn, wanted, given(request, "reason"), user, None if lasts is None else span("for", lasts))
    return Done("/queues", f"{wanted.words[:1].upper()}{wanted.words[1:]} is paused. What runs goes on.")


def resume(request: Request, conn: Connection[Any]) -> Done:
    """End a pause."""
    wanted = target(request)
    pauses.resume(conn, wanted)
    return Done("/queues", f"{wanted.words[:1].upper()}{wanted.words[1:]} goes on.")
