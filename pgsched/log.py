"""Logs are events with fields: a console for people, JSON for programs, and never a password.

The only module that knows structlog, and only once there is an event: importing it takes as long as a short command.
`configure()` once per process; `get(name)` anywhere.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, cast

from pgsched.escape import clean

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

PASSWORD = re.compile(r"""(?i)(://[^:/@\s]*:)[^@\s]*(?=@)|(password["']?\s*[=:]\s*)('[^']*'|"[^"]*"|\S+)""")
SECRET = re.compile(r"(?i)://|password")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def redact(text: str) -> str:
    """The same text with the passwords of connection strings replaced by ***."""
    return PASSWORD.sub(lambda m: (m.group(1) or m.group(2)) + "***", text)


def _safe_event(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Without passwords, and without control characters that others' text may hold; a traceback keeps its lines."""
    for key, value in event.items():
        event[key] = _safe(value, "\n\t" if key in ("exception", "stack") else "")
    return event


def _safe(value: Any, keep: str = "") -> Any:
    if isinstance(value, str):
        return clean(redact(value) if SECRET.search(value) else value, keep)
    if isinstance(value, Mapping):
        return {_safe(name): _safe(item, keep) for name, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_safe(item, keep) for item in value]
    plain = value is None or isinstance(value, bool | int | float)
    return value if plain else _safe(str(value), keep)


def configure(level: str = "info", fmt: str = "console", **fields: Any) -> None:
    """Send events at or above `level` to stderr, as lines for a person (`console`) or as `json`, each with `fields`."""
    import structlog

    renderer: Any = (
        structlog.processors.JSONRenderer()
        if fmt == "json"
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=28)
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            lambda _, __, event: {**fields, **event},
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _safe_event,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS.get(level, logging.INFO)),
        logger_factory=structlog.PrintLoggerFactory(cast("Any", Stderr())),
        cache_logger_on_first_use=False,
    )


class Stderr:
    """What sys.stderr is at the time: the output of a handler that logs like us may be kept."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()


class Later:
    """A logger that becomes one when it is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        import structlog

        return getattr(structlog.get_logger(part=self._name), level)


def get(name: str) -> FilteringBoundLogger:
    """A logger whose events carry `part=name`."""
    return cast("FilteringBoundLogger", Later(name))
