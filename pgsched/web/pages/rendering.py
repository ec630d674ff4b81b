"""The templates' environment. The rule: everything is escaped, control characters included; a name that no page gave is
an error, not nothing."""

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
    """An instant in UTC, readable by machines."""
    if value is None:
        return Markup("–")
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3], at.strftime(form)
    )


def local(value: datetime, timezone: str) -> Markup:
    """An instant as the clocks of a zone show it; in UTC when pointed at."""
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S"), value.astimezone(zone(timezone)).strftime("%Y-%m-%d %H:%M:%S")
    )


def since(value: datetime | None, now: datetime) -> Markup:
    """How long ago, or until; the instant itself when pointed at. The browser goes on counting."""
    if value is None:
        return Markup("–")
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC" data-age="{:.1f}">{}</time>').format(
        at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S"), (now - at).total_seconds(), ago(value, now)
    )


def counted(seconds: float | None, way: str = "ago") -> Markup:
    """An age that the browser goes on counting: `3m ago`, as a `span` `3m`, or what is `left` until then."""
    if seconds is None:
        return Markup("–")
    words = {"ago": f"{duration(seconds)} ago", "span": duration(seconds), "left": "now" if seconds >= 0 else
             duration(-seconds)}  # fmt: skip
    begin = round(time.time() - seconds)
    return Markup('<span data-from="{}" data-as="{}" data-age="{:.1f}">{}</span>').format(
        begin, way, seconds, words[way]
    )


def lately(seconds: float) -> Markup:
    """When something was seen that says every few seconds that it is there."""
    return Markup("just now") if seconds < SEEN_S else counted(seconds)


def took(run: dict[str, Any]) -> str | Markup:
    """How long the last attempt took, or has been going on."""
    start, end = run["started_at"], run["finished_at"]
    if start is None:
        return "–"
    if end is not None:
        return duration(max(end - start, timedelta(0)))
    return counted(max((run["now"] - start).total_seconds(), 0.0), "span") if run["state"] == "running" else "–"


def visible(value: Any) -> str:
    """Text of others: control characters and turned writing direction are shown, not obeyed."""
    return "" if value is None else clean(str(value), keep="\n\t")


def pretty(value: Any) -> str:
    """JSON for a person."""
    return visible(json.dumps(value, indent=2, ensure_ascii=False, default=json_value))


def count(value: float | None) -> str:
    """A number with thousands apart."""
    if value is None:
        return "–"
    return f"{value:,}" if isinstance(value, int) else figure(value)


def state(name: str) -> Markup:
    """A state as a badge."""
    return Markup('<span class="state {0}">{0}</span>').format(name)


def query(values: dict[str, Any], **more: Any) -> str:
    """A query string of what is set."""
    return urlencode({name: text for name, text in {**values, **more}.items() if text not in (None, "")})


def broken(value: Any) -> Markup:
    """Text in which lines may break after separators."""
    return Markup("_<wbr>").join(escape(part) for part in visible(value).split("_"))


def shown(value: Any) -> Any:
    """Whatever a template prints: text of others as `visible` has it, unless a filter says that it is `as_it_is`."""
    return visible(value) if type(value) is str and CONTROL.search(value) else value


def as_it_is(value: Any) -> Markup:
    """Text for a field of a form, which is sent back: escaped, and nothing else."""
    return escape("" if value is None else value)


def segment(name: str) -> str:
    """A job's name as one piece of a path. A browser takes the pieces `.` and `..` away: those have a `~` before them,
    and one more than before where they have one already."""
    return quote(f"~{name}" if DOTTED.fullmatch(name) else name, safe="")


def make() -> Environment:
    """The environment with the filters."""
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
