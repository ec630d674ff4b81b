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

from pgsched.control_characters import CONTROL, clean
from pgsched.core.payload import json_value
from pgsched.core.schedule.zones import zone
from pgsched.core.text import figure
from pgsched.core.wording import ago, cut, describe_keep, due, duration

SEEN_S = 15.0
DOTTED = re.compile(r"~*\.{1,2}")
GOOD, BAD, HELD = ("succeeded", "active", "ok", "alive"), ("dead", "missed", "error", "fail"), ("paused", "warn")


def moment(value: datetime | None, form: str = "%Y-%m-%d %H:%M:%S") -> Markup:
    """Return an instant in UTC as a `time` element."""
    if value is None:
        return Markup("–")
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3], at.strftime(form)
    )


def local(value: datetime, timezone: str) -> Markup:
    """Return an instant in a time zone as a `time` element; its tooltip shows UTC."""
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S"), value.astimezone(zone(timezone)).strftime("%Y-%m-%d %H:%M:%S")
    )


def since(value: datetime | None, now: datetime) -> Markup:
    """Return how long ago an instant was, or how far ahead it is; its tooltip shows the instant.

    The browser keeps counting.
    """
    if value is None:
        return Markup("–")
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC" data-age="{:.1f}">{}</time>').format(
        at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S"), (now - at).total_seconds(), ago(value, now)
    )


def counted(seconds: float | None, way: str = "ago") -> Markup:
    """Return an age that the browser keeps counting.

    `seconds`: the age now; negative for an instant ahead.
    `way`: `ago` for `3m ago`, `span` for `3m`, `left` for the time left until the instant.
    """
    if seconds is None:
        return Markup("–")
    words = {"ago": f"{duration(seconds)} ago", "span": duration(seconds), "left": "now" if seconds >= 0 else
             duration(-seconds)}  # fmt: skip
    begin = round(time.time() - seconds)
    return Markup('<span data-from="{}" data-as="{}" data-age="{:.1f}">{}</span>').format(
        begin, way, seconds, words[way]
    )


def lately(seconds: float) -> Markup:
    """Return when a process was last seen, or `just now` within SEEN_S seconds.

    Processes report every few seconds.
    """
    return Markup("just now") if seconds < SEEN_S else counted(seconds)


def took(run: dict[str, Any]) -> str | Markup:
    """Return how long the last attempt took or has been running; a dash before a start and between attempts."""
    start, end = run["started_at"], run["finished_at"]
    if start is None:
        return "–"
    if end is not None:
        return duration(max(end - start, timedelta(0)))
    return counted(max((run["now"] - start).total_seconds(), 0.0), "span") if run["state"] == "running" else "–"


def visible(value: Any) -> str:
    """Return text with control characters and changes of writing direction as visible escapes."""
    return "" if value is None else clean(str(value), keep="\n\t")


def pretty(value: Any) -> str:
    """Return JSON, indented for a person."""
    return visible(json.dumps(value, indent=2, ensure_ascii=False, default=json_value))


def count(value: float | None) -> str:
    """Return a number with commas between thousands."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else figure(value)


def state(name: str) -> Markup:
    """Return a state as a badge."""
    return Markup('<span class="state {0}">{0}</span>').format(name)


def query(values: dict[str, Any], **more: Any) -> str:
    """Return a query string of the values that are set."""
    return urlencode({name: text for name, text in {**values, **more}.items() if text not in (None, "")})


def broken(value: Any) -> Markup:
    """Return text that a browser may break after each `_`."""
    return Markup("_<wbr>").join(escape(part) for part in visible(value).split("_"))


def shown(value: Any) -> Any:
    """Return a value as every template prints it: text as `visible` returns it, markup unchanged."""
    return visible(value) if type(value) is str and CONTROL.search(value) else value


def as_it_is(value: Any) -> Markup:
    """Return text for a field of a form: escaped for HTML, but otherwise unchanged, because it is sent back."""
    return escape("" if value is None else value)


def segment(name: str) -> str:
    """Return a job's name as one piece of a path.

    A browser removes the pieces `.` and `..` from a path, so a `~` is put in front of them. Names that already are such
    a piece after one or more `~` get one `~` more.
    """
    return quote(f"~{name}" if DOTTED.fullmatch(name) else name, safe="")


def make() -> Environment:
    """Return the environment with its filters."""
    made = Environment(
        loader=PackageLoader("pgsched.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False, finalize=shown,
    )  # fmt: skip
    made.filters |= {
        "moment": moment, "since": since, "duration": duration, "visible": visible, "pretty": pretty, "count": count,
        "state": state, "kept": describe_keep, "segment": segment, "took": took, "broken": broken,
        "due": due, "cut": cut, "counted": counted, "lately": lately, "as_it_is": as_it_is, "local": local,
    }  # fmt: skip
    made.globals |= {"query": query}
    return made


ENVIRONMENT = make()
