"""How long things are kept, as forms show and change it.

Invariant: one notation everywhere, `dead=90d, any=7d`. What this notation cannot say is shown as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from starlette.requests import Request

from pgsched.core.input_values import RETENTION_TIMES, format_duration_option, parse_duration, parse_keep
from pgsched.core.wording import describe_keep
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.leader import retention
from pgsched.errors import InputError
from pgsched.services import settings
from pgsched.web.pages.responses import Redirect, field_text

SECONDS = {"second": 1, "sec": 1, "minute": 60, "min": 60, "hour": 3600, "day": 86_400, "week": 604_800}
PLAIN = re.compile(r"(\d{1,9}) (second|sec|minute|min|hour|day|week)s?")


def keep_text(keep: Mapping[str, str] | None) -> str:
    """Return retention as the form takes it, such as `dead=90d, any=7d`."""
    if not keep:
        return ""
    found = {outcome: PLAIN.fullmatch(time) for outcome, time in sorted(keep.items(), key=any_last)}
    if not all(found.values()):
        return json.dumps(keep, ensure_ascii=False)
    times = {name: timedelta(seconds=int(one[1]) * SECONDS[one[2]]) for name, one in found.items() if one}
    return ", ".join(f"{outcome}={format_duration_option(time)}" for outcome, time in times.items())


def any_last(item: tuple[str, str]) -> bool:
    """Return a sort key that puts `any` behind the named outcomes."""
    return item[0] == "any"


def keep_of(text: str | None) -> Any:
    """Return the value of the column for a text; None for an empty text."""
    if not text:
        return None
    return text if text.startswith("{") else parse_keep(part.strip() for part in text.split(",") if part.strip())


def settings_with_texts(conn: Connection[Any]) -> dict[str, Any]:
    """Return the settings for everything, with their texts for the form."""
    found = retention.settings(conn)
    texts = {name: format_duration_option(found[name]) for name in RETENTION_TIMES}
    return found | {"said": describe_keep(found["keep"]), "texts": texts | {"keep": keep_text(found["keep"])}}


def save(request: Request, conn: Connection[Any]) -> Redirect:
    """Save the settings that were changed in the form."""
    before = settings_with_texts(conn)
    texts = {name: field_text(request, name) or "" for name in ("keep", *RETENTION_TIMES)}
    changed = [name for name, text in texts.items() if text != before["texts"][name]]
    if empty := [name for name in changed if not texts[name]]:
        raise InputError(f"{empty[0].replace('_', ' ')}: must not be empty", empty[0])
    values: dict[str, Any] = {
        name: keep_of(texts[name]) if name == "keep" else parse_duration(name.replace("_", " "), texts[name])
        for name in changed
    }
    if (archive := field_text(request, "archive") == "yes") != before["archive"]:
        values["archive"] = archive
    if not values:
        return Redirect("/queues#kept", "Nothing was changed.")
    row = settings.change_retention(conn, values)
    return Redirect(
        "/queues#kept", f"Runs are kept: {describe_keep(row['keep'])}{'; archived' if row['archive'] else ''}."
    )
