"""Job stores of APScheduler, without APScheduler: pickles of the states of jobs, and what a hostile one would hold."""

from __future__ import annotations

import pickle
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

TABLE = "CREATE TABLE apscheduler_jobs (id VARCHAR(191) PRIMARY KEY, next_run_time FLOAT, job_state BLOB NOT NULL)"
CRON_FIELDS = ("year", "month", "day", "week", "day_of_week", "hour", "minute", "second")
KINDS = {"month": "MonthField", "day": "DayOfMonthField", "week": "WeekField", "day_of_week": "DayOfWeekField"}
CRON = "apscheduler.triggers.cron"
INTERVAL = "apscheduler.triggers.interval.IntervalTrigger"


class Pickled:
    """Pickles as an object of a named class with a state, as protocol 2 and later write it: NEWOBJ and BUILD."""

    def __init__(self, name: str, state: Any = None, args: Sequence[Any] = ()) -> None:
        self.name, self.state, self.args = name, state, tuple(args)


class Called:
    """Pickles as the call of a named function."""

    def __init__(self, name: str, *args: Any) -> None:
        self.name, self.args = name, args


class Writer:
    """Writes a pickle of protocol 4 by hand: plain values by Python, the two classes above by their opcodes."""

    def dump(self, value: Any) -> bytes:
        return b"\x80\x04" + self.part(value) + b"."

    def part(self, value: Any) -> bytes:
        if isinstance(value, Pickled):
            new = self.name(value.name) + self.tuple(value.args) + b"\x81"
            return new if value.state is None else new + self.part(value.state) + b"b"
        if isinstance(value, Called):
            return self.name(value.name) + self.tuple(value.args) + b"R"
        if isinstance(value, tuple):
            return self.tuple(value)
        if isinstance(value, list):
            return b"](" + b"".join(map(self.part, value)) + b"e"
        if isinstance(value, dict):
            return b"}(" + b"".join(self.part(key) + self.part(one) for key, one in value.items()) + b"u"
        written = pickle.dumps(value, 3)  # without frames and memo numbers that others could disturb
        return written[2:-1].replace(b"q\x00", b"")

    def name(self, name: str) -> bytes:
        module, _, attribute = name.rpartition(".")
        return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"

    def tuple(self, values: Iterable[Any]) -> bytes:
        return b"(" + b"".join(map(self.part, values)) + b"t"


def dump(value: Any) -> bytes:
    """Return the pickle of a value with Pickled and Called in it."""
    return Writer().dump(value)


def cron_trigger(timezone: Any, **expressions: list[Pickled]) -> Pickled:
    """Return a cron trigger; a field without expressions is `*`, or its first number after a field that has some."""
    fields = []
    for name in CRON_FIELDS:
        given = expressions.get(name) or [Pickled(f"{CRON}.expressions.AllExpression", {"step": None})]
        fields.append(Pickled(f"{CRON}.fields.{KINDS.get(name, 'BaseField')}", {"name": name, "expressions": given}))
    state = {"version": 2, "timezone": timezone, "start_date": None, "end_date": None, "fields": fields, "jitter": None}
    return Pickled(f"{CRON}.CronTrigger", state)


def number(first: int, last: int | None = None, step: int | None = None) -> Pickled:
    """Return the expression of a number or range."""
    last = first if last is None and step is None else last
    return Pickled(f"{CRON}.expressions.RangeExpression", {"first": first, "last": last, "step": step})


def zone(name: str) -> Called:
    """Return a zone, as zoneinfo pickles it."""
    return Called("zoneinfo.ZoneInfo._unpickle", name, 1)


def moment(*parts: int) -> Called:
    """Return an hour in UTC: year, month, day, hour."""
    year, month, day, hour = parts
    return Called("datetime.datetime", bytes([*divmod(year, 256), month, day, hour, 0, 0, 0, 0, 0]), zone("UTC"))


def interval(seconds: int, **changed: Any) -> Pickled:
    """Return an interval trigger."""
    state = {"version": 2, "timezone": zone("UTC"), "start_date": moment(2026, 1, 1, 0), "end_date": None,
             "jitter": None}  # fmt: skip
    return Pickled(INTERVAL, state | {"interval": Called("datetime.timedelta", 0, seconds, 0)} | changed)


def job_state(**changed: Any) -> dict[str, Any]:
    """Return the state of a job that runs at nine o'clock in Berlin, next on 2 June 2026."""
    return {
        "version": 1,
        "id": "nightly",
        "func": "shop.jobs:nightly",
        "trigger": cron_trigger(zone("Europe/Berlin"), hour=[number(9)], minute=[number(0)], second=[number(0)]),
        "executor": "default",
        "args": (),
        "kwargs": {},
        "name": "nightly",
        "misfire_grace_time": 3600,
        "coalesce": True,
        "max_instances": 1,
        "next_run_time": Called("datetime.datetime", b"\x07\xea\x06\x02\x07\x00\x00\x00\x00\x00", zone("UTC")),
    } | changed


def write_store(path: Path, rows: Iterable[tuple[str, bytes]]) -> None:
    """Write a job store of SQLite."""
    with sqlite3.connect(path) as conn:
        conn.execute(TABLE)
        conn.executemany("INSERT INTO apscheduler_jobs VALUES (?, 0, ?)", list(rows))
    conn.close()
