"""The options of a Celery message as columns of a job.

Invariant: each option becomes a column or a remark, or is one of those that only concern the broker.

Source: https://docs.celeryq.dev/en/stable/userguide/calling.html and the arguments of `Task.apply_async`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo

from pgsched.importers.imported import Reason, Remark
from pgsched.importers.job_names import clean_name

# They say how a message is sent and what is kept of it.
OF_THE_MESSAGE = frozenset(
    {
        "serializer", "compression", "delivery_mode", "mandatory", "immediate", "retry", "retry_policy",
        "ignore_result", "shadow", "add_to_parent", "reply_to", "correlation_id", "exchange_type", "producer",
        "connection", "router",
    }
)  # fmt: skip
OF_LINKS = frozenset({"link", "link_error", "chain", "chord", "group_id"})
MOST_SECONDS = 300_000_000
LOWEST_PRIORITY = 9


class Broker(Enum):
    """What carries the messages; it decides which priority goes first."""

    AMQP = "amqp"
    REDIS = "redis"
    UNKNOWN = ""

    @classmethod
    def of(cls, url: Any) -> Broker:
        """Return the broker of a URL such as `redis://`."""
        scheme = str(url or "").partition(":")[0].lower()
        if scheme in ("amqp", "amqps", "pyamqp", "librabbitmq"):
            return cls.AMQP
        return cls.REDIS if scheme in ("redis", "rediss", "sentinel") else cls.UNKNOWN


def add_options(columns: dict[str, Any], options: Mapping[str, Any], broker: Broker, tz: ZoneInfo) -> list[Remark]:
    """Add what the options say to the columns; return the remarks. `tz`: the zone of a naive time."""
    remarks = []
    of_message = []
    given = {name: value for name, value in options.items() if value is not None and value not in ({}, [])}
    limits: dict[str, Any] = {name: given.pop(name) for name in ("time_limit", "soft_time_limit") if name in given}
    add_limits(columns, limits)
    for name, value in given.items():
        match name:
            case "queue" if isinstance(getattr(value, "name", value), str) and value:
                columns["queue"] = clean_name(str(getattr(value, "name", value)))
            case "expires":
                remarks.append(add_expiry(columns, value, tz))
            case "priority":
                remarks += add_priority(columns, value, broker)
            case _ if name in OF_THE_MESSAGE:
                of_message.append(name)
            case _ if name in OF_LINKS:
                remarks.append(Remark(Reason.LINKS, name, "task"))
            case _:
                remarks.append(Remark(Reason.OPTION, f"{name[:50]}={value!r:.100}", "task"))
    if of_message:
        remarks.append(Remark(Reason.MESSAGE, ", ".join(of_message), "task"))
    return remarks


def read_seconds(value: Any) -> timedelta | None:
    """Return a length of time of at least a second; None for another value."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value <= MOST_SECONDS:
        return None
    return timedelta(seconds=value)


def add_expiry(columns: dict[str, Any], value: Any, tz: ZoneInfo) -> Remark:
    """Add when a run is not to start any more: so long after its slot, or from an instant on."""
    length = read_seconds(value)
    if length is not None:
        columns["start_deadline"] = length
        return Remark(Reason.EXPIRES, f"expires after {length}", "start_deadline")
    if isinstance(value, datetime):
        try:
            columns["ends_at"] = (value if value.tzinfo else value.replace(tzinfo=tz)).astimezone(UTC)
        except OverflowError:
            return Remark(Reason.OPTION, f"expires={value!r:.100}", "task")
        return Remark(Reason.EXPIRES, "expires at an instant", "ends_at")
    return Remark(Reason.OPTION, f"expires={value!r:.100}", "task")


def add_priority(columns: dict[str, Any], value: Any, broker: Broker) -> list[Remark]:
    """Add the priority, lower first: as in Redis, and turned round from RabbitMQ's."""
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LOWEST_PRIORITY
    if not known or broker is Broker.UNKNOWN:
        return [Remark(Reason.PRIORITY, f"priority={value!r:.20}", "task")]
    columns["priority"] = value if broker is Broker.REDIS else LOWEST_PRIORITY - value
    return []


def add_limits(columns: dict[str, Any], limits: Mapping[str, Any]) -> None:
    """Add how long an attempt may take: it is asked to stop after the soft limit, and killed at the hard one."""
    hard, soft = read_seconds(limits.get("time_limit")), read_seconds(limits.get("soft_time_limit"))
    first = min(filter(None, (hard, soft)), default=None)
    if first is None:
        return
    columns["timeout"] = first
    if hard and soft and hard > soft:
        columns["kill_after"] = hard - soft
