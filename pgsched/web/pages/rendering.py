"""The environment of the templates: filters that turn values into HTML.

Invariant: every value is escaped, control characters included. A name that a page did not set is an error, not an empty
text.
"""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pgsched.control_characters import CONTROL, escape_controls
from pgsched.core.payload import json_value
from pgsched.core.schedule.zones import zone
from pgsched.core.text import format_number
from pgsched.core.wording import describe_keep, due_at, format_age, format_short_duration, shorten

SEEN_S = 15.0
DOTTED = re.compile(r"~*\.{1,2}")


def format_utc(value: datetime | None, form: str = "%Y-%m-%d %H:%M:%S") -> Markup:
    """Return an instant in UTC as a `time` element."""
    if value is None:
        return Markup("–")
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3], at.strftime(form)
    )


def format_local(value: datetime, timezone: str) -> Markup:
    """Return an instant in a time zone as a `time` element; its tooltip shows UTC."""
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S"), value.astimezone(zone(timezone)).strftime("%Y-%m-%d %H:%M:%S")
    )


def age_element(value: datetime | None, now: datetime) -> Markup:
    """Return how long ago an instant was, or how far ahead it is; its tooltip shows the instant.

    The browser keeps counting.
    """
    if value is None:
        return Markup("–")
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC" data-age="{:.1f}">{}</time>').format(
        at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S"), (now - at).total_seconds(), format_age(value, now)
    )


def format_counting_age(seconds: float | None, way: str = "ago") -> Markup:
    """Return an age that the browser keeps counting.

    `seconds`: the age now; negative for an instant ahead.
    `way`: `format_age` for `3m ago`, `span` for `3m`, `left` for the time left until the instant.
    """
    if seconds is None:
        return Markup("–")
    words = {
        "ago": f"{format_short_duration(seconds)} ago",
        "span": format_short_duration(seconds),
        "left": "now" if seconds >= 0 else format_short_duration(-seconds),
    }
    begin = round(time.time() - seconds)
    return Markup('<span data-from="{}" data-as="{}" data-age="{:.1f}">{}</span>').format(
        begin, way, seconds, words[way]
    )


def format_last_seen(seconds: float) -> Markup:
    """Return when a process was last seen, or `just now` within SEEN_S seconds.

    Processes report every few seconds.
    """
    return Markup("just now") if seconds < SEEN_S else format_counting_age(seconds)


def format_took(run: dict[str, Any]) -> str | Markup:
    """Return how long the last attempt took or has been running; a dash before a start and between attempts."""
    start, end = run["started_at"], run["finished_at"]
    if start is None:
        return "–"
    if end is not None:
        return format_short_duration(max(end - start, timedelta(0)))
    return (
        format_counting_age(max((run["now"] - start).total_seconds(), 0.0), "span")
        if run["state"] == "running"
        else "–"
    )


def escape_control(value: Any) -> str:
    """Return text with control characters and changes of writing direction as visible escapes."""
    return "" if value is None else escape_controls(str(value), keep="\n\t")


def format_json(value: Any) -> str:
    """Return JSON, indented for a person."""
    return escape_control(json.dumps(value, indent=2, ensure_ascii=False, default=json_value))


def format_thousands(value: float | None) -> str:
    """Return a number with commas between thousands."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else format_number(value)


def state_badge(name: str) -> Markup:
    """Return a state as a badge."""
    return Markup('<span class="state {0}">{0}</span>').format(name)


def query_string(values: dict[str, Any], **more: Any) -> str:
    """Return a query string of the values that are set."""
    return urlencode({name: text for name, text in {**values, **more}.items() if text not in (None, "")})


def breakable(value: Any) -> Markup:
    """Return text that a browser may break after each `_`."""
    return Markup("_<wbr>").join(escape(part) for part in escape_control(value).split("_"))


def finalize(value: Any) -> Any:
    """Return a value as every template prints it: text as `escape_control` returns it, markup unchanged."""
    return escape_control(value) if type(value) is str and CONTROL.search(value) else value


def field_value(value: Any) -> Markup:
    """Return text for a field of a form: escaped for HTML, but otherwise unchanged, because it is sent back."""
    return escape("" if value is None else value)


def path_segment(name: str) -> str:
    """Return a job's name as one piece of a path.

    A browser removes the pieces `.` and `..` from a path, so a `~` is put in front of them. Names that already are such
    a piece after one or more `~` get one `~` more.
    """
    return quote(f"~{name}" if DOTTED.fullmatch(name) else name, safe="")


def make_environment() -> Environment:
    """Return the environment with its filters."""
    environment = Environment(
        loader=PackageLoader("pgsched.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False, finalize=finalize,
    )  # fmt: skip
    environment.filters |= {
        "moment": format_utc,
        "since": age_element,
        "duration": format_short_duration,
        "visible": escape_control,
        "pretty": format_json,
        "count": format_thousands,
        "state": state_badge,
        "kept": describe_keep,
        "segment": path_segment,
        "took": format_took,
        "broken": breakable,
        "due": due_at,
        "cut": shorten,
        "counted": format_counting_age,
        "lately": format_last_seen,
        "as_it_is": field_value,
        "local": format_local,
    }
    environment.globals |= {"query": query_string}
    return environment


ENVIRONMENT = make_environment()
