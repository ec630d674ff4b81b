"""The page of queues, limits of keys, pauses and retention, and its forms.

Invariant: a form shows all settings of a row, and an empty field removes a setting.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from starlette.requests import Request

from pgsched.core import policies
from pgsched.core.input_values import NONE, format_duration_option, limit_columns, parse_duration, parse_whole_number
from pgsched.core.wording import describe_limit, describe_queue
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import queues as queue_settings
from pgsched.services import pauses, settings
from pgsched.services.pauses import Target
from pgsched.web.pages import retention
from pgsched.web.pages.responses import Redirect, View, field_text


def index(request: Request, conn: Connection[Any]) -> View:
    """Return the page."""
    queues, limits = queue_settings.list_queues(conn), queue_settings.list_limits(conn)
    values = {
        "queues": [row | {"said": describe_queue(row), "rate_text": rate_text(row)} for row in queues],
        "limits": [
            row | {"said": describe_limit(row, row["concurrency"]), "rate_text": rate_text(row)} for row in limits
        ],
        "pauses": queue_settings.list_pauses(conn), "ageing_text": ageing_text, "keep_text": retention.keep_text,
        "kept": retention.settings_with_texts(conn), "on_full": policies.ON_FULL,
    }  # fmt: skip
    return View("queues.html", values)


def rate_text(row: dict[str, Any]) -> str:
    """Return the rate of a row as the form takes it, such as `100/m`."""
    if row["rate"] is None:
        return ""
    text = format_duration_option(timedelta(seconds=row["rate_s"]))
    return f"{row['rate']}/{text[1:] if text[0] == '1' and not text[1].isdigit() else text}"


def ageing_text(row: dict[str, Any]) -> str:
    """Return the ageing of a queue as the form takes it; empty without one."""
    return "" if row["ageing"] is None else format_duration_option(row["ageing"])


def field_or_none(request: Request, name: str) -> str:
    """Return the text of a field; an empty field means `none`, which removes the setting."""
    return field_text(request, name) or NONE


def limit_fields(request: Request, concurrency_column: str) -> dict[str, Any]:
    """Return the columns of a limit from the form's fields `concurrency`, `rate` and `burst`."""
    concurrency, rate, burst = (field_or_none(request, name) for name in ("concurrency", "rate", "burst"))
    return limit_columns(concurrency_column, concurrency, rate, burst)


def save_queue(request: Request, conn: Connection[Any]) -> Redirect:
    """Save all settings of a queue."""
    name = field_text(request, "name") or ""
    on_full = field_text(request, "on_full") or "reject"
    values = limit_fields(request, "concurrency_limit")
    ageing = field_text(request, "ageing")
    values |= {
        "fair": field_text(request, "fair") == "yes",
        "on_full": on_full,
        "max_depth": parse_whole_number("max depth", field_or_none(request, "max_depth"), 1),
        "ageing": None if ageing is None else parse_duration("ageing", ageing),
        "keep": retention.keep_of(field_text(request, "keep")),
    }
    row = settings.set_queue(conn, name, values)
    return Redirect("/queues", f"Queue {name}: {describe_queue(row)}.")


def save_limit(request: Request, conn: Connection[Any]) -> Redirect:
    """Save all settings of a limit."""
    name = field_text(request, "name") or ""
    values = limit_fields(request, "concurrency")
    weight = parse_whole_number("weight", field_text(request, "weight") or "1", 1)
    row = settings.set_limit(
        conn, name, values | {"ordered": field_text(request, "ordered") == "yes", "weight": weight}
    )
    return Redirect("/queues#limits", f"Limit {name}: {describe_limit(row, row['concurrency'])}.")


def remove_limit(request: Request, conn: Connection[Any]) -> Redirect:
    """Remove a limit."""
    name = field_text(request, "name") or ""
    settings.remove_limit(conn, name)
    return Redirect("/queues#limits", f"Limit {name} is gone.")


def target(request: Request) -> Target:
    """Return what a pause is about."""
    return Target(field_text(request, "what") or "", field_text(request, "name") or "")


def pause(request: Request, conn: Connection[Any]) -> Redirect:
    """Pause a queue, a task or everything."""
    wanted, lasts = target(request), field_text(request, "lasts")
    user = request.state.visitor.user or None
    pauses.pause(
        conn, wanted, field_text(request, "reason"), user, None if lasts is None else parse_duration("for", lasts)
    )
    return Redirect("/queues", f"{wanted.words[:1].upper()}{wanted.words[1:]} is paused. What runs goes on.")


def resume(request: Request, conn: Connection[Any]) -> Redirect:
    """End a pause."""
    wanted = target(request)
    pauses.resume(conn, wanted)
    return Redirect("/queues", f"{wanted.words[:1].upper()}{wanted.words[1:]} goes on.")
