"""Logs: events with fields, as lines for people or as JSON for programs, and never with a password.

Only this module uses structlog. It imports structlog at the first event, because the import takes as long as a short
command. Call `configure()` once per process, and `get(name)` anywhere.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pgsched.control_characters import escape_controls

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger

PASSWORD = re.compile(
    r"""(?ix)((?:password|oauth_client_secret|scram_(?:client|server)_key)["']?\s*[=:]\s*)
    (?:'(?:[^'\\]|\\.)*'?|"(?:[^"\\]|\\.)*"?|(?:\\.|\S)+)"""
)
USER = re.compile(r"://[^:/@\s]*:")
POSTGRES_USER = re.compile(r"(?i)(?:postgres(?:ql)?|pgsql|psql|postgis|timescale(?:gis)?)(?:\+\w+)?://[^:@\s]*:")
SECRET = re.compile(r"(?i)://|password|secret|scram_")
PLAIN = "plain"  # the field of an event that has the whole line for people; programs get the other fields
# the fields that people get beside such a line
BESIDE_PLAIN = frozenset({"level", "timestamp", "exception", "process", "job", "trace_id", "span_id"})
FIELD_NAMES = ("run", "attempt", "job", "task", "trace_id", "span_id")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
FORMATS = ("console", "json")


class Attempt(NamedTuple):
    """The attempt that log lines name where there is no Claim."""

    id: int
    job_id: int | None
    attempt: int
    task: str


# The attempt of this context, running or last: a Claim or an Attempt. A handler's tasks and threads inherit it.
ATTEMPT: ContextVar[Any] = ContextVar("pgsched_attempt", default=None)


def bound_fields() -> dict[str, Any]:
    """Return the fields of the current attempt and trace for log lines; empty outside of them."""
    one = ATTEMPT.get()
    found: dict[str, Any] = {}
    if one is not None:
        found = {"run": one.id, "attempt": one.attempt, "task": one.task[:80]}
        if one.job_id is not None:
            found["job"] = one.job_id
    return found | trace_ids()


def trace_ids() -> dict[str, str]:
    """Return the current trace and span of OpenTelemetry, as hexadecimal text; empty where there is none."""
    api = sys.modules.get("opentelemetry.trace")
    return {} if api is None else ids_of_span(api.get_current_span())


def ids_of_span(span: Any) -> dict[str, str]:
    """Return the trace and the span, as hexadecimal text; empty where the span belongs to no trace."""
    found = span.get_span_context()
    return {"trace_id": f"{found.trace_id:032x}", "span_id": f"{found.span_id:016x}"} if found.is_valid else {}


def attempt_fields(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the fields of attempt and trace to an event; the event's own fields win. A processor of structlog."""
    return {**bound_fields(), **event}


def redact(text: str) -> str:
    """Return the text with the passwords of connection strings replaced by ***.

    A password that was not escaped ends at the last @ of its line.
    """
    if "@" in text and "://" in text:
        text = "\n".join(map(_hide_in_line, text.split("\n")))
    return PASSWORD.sub(r"\1***", text)


def _hide_in_line(line: str) -> str:
    line = _hide_before_at(POSTGRES_USER, line)
    return re.sub(r"\S+", lambda word: _hide_before_at(USER, word[0]), line)


def _hide_before_at(user: re.Pattern[str], text: str) -> str:
    """Hide the text between the user and the last @.

    The time is proportional to the length of the text, which may come from a stranger.
    """
    end = text.rfind("@")
    found = user.search(text, 0, max(end, 0))
    return text if found is None else f"{text[: found.end()]}***{text[end:]}"


def say_plainly(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace an event by its line for people, without the fields that the line says. A processor of structlog."""
    plain = event.pop(PLAIN, None)
    if plain is None:
        return event
    return {"event": plain, **{key: value for key, value in event.items() if key in BESIDE_PLAIN}}


def say_fields(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove the line for people from an event, which keeps its fields. A processor of structlog."""
    event.pop(PLAIN, None)
    return event


def _safe_event(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Remove passwords and control characters from an event; a traceback keeps its lines."""
    for key, value in event.items():
        event[key] = _safe(value, "\n\t" if key in ("exception", "stack") else "")
    return event


def _safe(value: Any, keep: str = "") -> Any:
    if isinstance(value, str):
        return escape_controls(redact(value) if SECRET.search(value) else value, keep)
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
        else structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=28, sort_keys=False)
    )
    on_terminal = fmt != "json" and sys.stderr.isatty()
    processors = [
        structlog.contextvars.merge_contextvars,
        attempt_fields,
        lambda _, __, event: {**fields, **event},
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="%H:%M:%S" if on_terminal else "iso", utc=not on_terminal),
        structlog.processors.format_exc_info,
        say_fields if fmt == "json" else say_plainly,
        _safe_event,
        renderer,
    ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS.get(level, logging.INFO)),
        logger_factory=structlog.WriteLoggerFactory(cast("Any", Stderr())),  # one write per line: threads log at once
        cache_logger_on_first_use=False,
    )
    mark_records()
    logging.lastResort = Unhandled(processors)


def mark_records() -> None:
    """Give each record of `logging` the fields of its attempt, for formatters; they are empty outside of attempts.

    The fields are pgsched_run, pgsched_attempt, pgsched_job, pgsched_task, pgsched_trace_id and pgsched_span_id.
    """
    below = logging.getLogRecordFactory()

    def marked(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = below(*args, **kwargs)
        fields = bound_fields()
        record.__dict__.update({f"pgsched_{name}": fields.get(name, "") for name in FIELD_NAMES})
        return record

    if getattr(below, "__name__", "") != marked.__name__:
        logging.setLogRecordFactory(marked)


class Unhandled(logging.StreamHandler[Any]):
    """A handler that shows lines of `logging` for which the program has no handler, like pgsched's own lines."""

    def __init__(self, processors: Sequence[Any]) -> None:
        logging.Handler.__init__(self, logging.WARNING)
        self._processors = processors

    @property
    def stream(self) -> Any:
        """The present sys.stderr."""
        return sys.stderr

    def format(self, line: logging.LogRecord) -> str:
        """Return the record as a line like pgsched's own."""
        event: Any = {"event": line.getMessage(), "logger": line.name}
        if line.exc_info:
            event["exc_info"] = line.exc_info
        for process in self._processors:
            event = process(None, line.levelname.lower(), event)
        return str(event)


class Stderr:
    """The present sys.stderr at each write, because a handler that logs may have its output captured."""

    def write(self, text: str) -> int:
        """Write to the present sys.stderr."""
        return sys.stderr.write(text)

    def flush(self) -> None:
        """Flush the present sys.stderr."""
        sys.stderr.flush()


def is_enabled(name: str, level: str) -> bool:
    """Check whether events of this level are written at present, by the logger of this name."""
    found = sys.modules.get("structlog")
    if found is None or not found.is_configured():
        return logging.getLogger(f"pgsched.{name}").isEnabledFor(LEVELS[level])
    return bool(found.get_logger().is_enabled_for(LEVELS[level]))


class LazyLogger:
    """A logger that imports structlog only when it is used.

    In a program that has not set up structlog, events go to the logger `pgsched.NAME` of `logging`.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, level: str) -> Any:
        found = sys.modules.get("structlog")
        if found is None or not found.is_configured():
            return partial(log_by_logging, self._name, level)
        return getattr(found.get_logger(part=self._name), level)


def log_by_logging(name: str, level: str, event: str, **fields: Any) -> None:
    """Log an event as a record of `logging`, with its fields after the text, and without passwords."""
    logger, number = logging.getLogger(f"pgsched.{name}"), LEVELS.get(level, logging.ERROR)
    if not logger.isEnabledFor(number):
        return
    exc_info = fields.pop("exc_info", level == "exception")
    plain = fields.pop(PLAIN, None)
    if plain is not None:
        event, fields = plain, {key: value for key, value in fields.items() if key in BESIDE_PLAIN}
    safe = _safe_event(None, level, {"event": event, **bound_fields(), **fields})
    text = " ".join([str(safe.pop("event")), *(f"{key}={value}" for key, value in safe.items() if value is not None)])
    logger.log(number, "%s", text, exc_info=exc_info)


def get(name: str) -> FilteringBoundLogger:
    """Return a logger whose events carry `part=name`."""
    return cast("FilteringBoundLogger", LazyLogger(name))
