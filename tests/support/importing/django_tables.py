"""The tables of django-celery-beat, with the columns that its migrations make."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

PREFIX = "django_celery_beat_"
COLUMNS = {
    "intervalschedule": ("id", "every", "period"),
    "crontabschedule": ("id", "minute", "hour", "day_of_week", "day_of_month", "month_of_year", "timezone"),
    "solarschedule": ("id", "event", "latitude", "longitude"),
    "clockedschedule": ("id", "clocked_time"),
    "periodictask": (
        "id", "name", "task", "args", "kwargs", "queue", "exchange", "routing_key", "expires", "enabled", "last_run_at",
        "total_run_count", "date_changed", "description", "crontab_id", "interval_id", "solar_id", "one_off",
        "start_time", "priority", "headers", "clocked_id", "expire_seconds",
    ),
}  # fmt: skip
TASK_ROW: dict[str, Any] = {
    "id": 1, "name": "poll", "task": "shop.poll", "args": "[]", "kwargs": "{}", "enabled": 1, "one_off": 0,
    "headers": "{}", "interval_id": 5, "description": "",
}  # fmt: skip
INTERVAL_ROW: dict[str, Any] = {"id": 5, "every": 30, "period": "seconds"}
CRONTAB_ROW: dict[str, Any] = {
    "id": 6, "minute": "0", "hour": "3", "day_of_week": "*", "day_of_month": "*", "month_of_year": "*",
    "timezone": "Europe/Berlin",
}  # fmt: skip

Rows = Iterable[Mapping[str, Any]]


def create_statements(types: Mapping[str, str] | None = None) -> list[str]:
    """Return the statements that make the tables; a column without a type of its own is of type text."""
    known = {"id": "integer", "every": "integer", "crontab_id": "integer", "interval_id": "integer", **(types or {})}
    return [
        f"CREATE TABLE {PREFIX}{name} ({', '.join(column + ' ' + known.get(column, 'text') for column in columns)})"
        for name, columns in COLUMNS.items()
    ]


def write_beat_tables(path: Path, *, tasks: Rows = (), intervals: Rows = (), crontabs: Rows = ()) -> None:
    """Write the tables into a file of SQLite."""
    with sqlite3.connect(path) as conn:
        for statement in create_statements():
            conn.execute(statement)
        for name, rows in (("periodictask", tasks), ("intervalschedule", intervals), ("crontabschedule", crontabs)):
            for row in rows:
                marks = ", ".join("?" * len(row))
                conn.execute(f"INSERT INTO {PREFIX}{name} ({', '.join(row)}) VALUES ({marks})", list(row.values()))
    conn.close()
