"""The templates' environment. The rule: everything is escaped; a name that no page gave is an error, not nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from pgsched.cli.output.printing import ago, cut, due, duration, json_value
from pgsched.cli.output.retention_text import said
from pgsched.core.text import clean

UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s"), (1, "ms"))
GOOD, BAD, HELD = ("succeeded", "active", "ok", "alive"), ("dead", "missed", "error", "fail"), ("paused", "warn")


def moment(value: datetime | None, form: str = "%Y-%m-%d %H:%M:%S") -> Markup:
    """An instant in UTC, readable by machines."""
    if value is None:
        return Markup("–")
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3], at.strftime(form)
    )


def since(value: datetime | None, now: datetime) -> Markup:
    """How long ago, or until; the instant itself when pointed at."""
    if value is None:
        return Markup("–")
    at = value.astimezone(UTC)
    return Markup('<time datetime="{}" title="{} UTC">{}</time>').format(
        at.isoformat(), at.strftime("%Y-%m-%d %H:%M:%S"), ago(value, now)
    )


def took(run: dict[str, Any]) -> str:
    """How long the last attempt took, or has been going on."""
    start, end = run["started_at"], run["finished_at"] or run["now"]
    open_attempt = run["finished_at"] is not None or run["state"] == "running"
    return duration(max(end - start, timedelta(0))) if start is not None and open_attempt else "–"


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
    return f"{value:,}" if isinstance(value, int) else f"{value:,.3g}"


def state(name: str) -> Markup:
    """A state as a badge."""
    return Markup('<span class="state {0}">{0}</span>').format(name)


def query(values: dict[str, Any], **more: Any) -> str:
    """A query string of what is set."""
    return urlencode({name: text for name, text in {**values, **more}.items() if text not in (None, "")})


def broken(value: Any) -> Markup:
    """Text in which lines may break after separators."""
    return Markup("_<wbr>").join(escape(part) for part in visible(value).split("_"))


def span_text(value: timedelta) -> str:
    """A time as the forms take it: `90s`, `10m`."""
    ms = round(value.total_seconds() * 1000)
    size, unit = next((size, unit) for size, unit in UNITS if ms % size == 0)
    return f"{ms // size}{unit}"


def make() -> Environment:
    """The environment with the filters."""
    made = Environment(
        loader=PackageLoader("pgsched.web"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, auto_reload=False,
    )  # fmt: skip
    made.filters |= {
        "moment": moment, "since": since, "duration": duration, "visible": visible, "pretty": pretty, "count": count,
        "state": state, "kept": said, "segment": lambda text: quote(text, safe=""), "took": took, "broken": broken,
        "due": due, "cut": cut,
    }  # fmt: skip
    made.globals |= {"query": query}
    return made


ENVIRONMENT = make()
