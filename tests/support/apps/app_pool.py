"""What the tests of an App's connections look at: its sessions in the server, its runs and its threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import psycopg

OURS = "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'pgsched enqueue%'"


def sessions(db: psycopg.Connection[Any]) -> list[int]:
    return [pid for (pid,) in db.execute(f"SELECT pid {OURS} ORDER BY pid").fetchall()]


def runs(db: psycopg.Connection[Any]) -> list[int]:
    return [n for (n,) in db.execute("SELECT (args ->> 'n')::int FROM pgsched.runs ORDER BY 1").fetchall()]


def in_threads(count: int, call: Callable[[int], object]) -> None:
    threads = [threading.Thread(target=call, args=[n]) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def closers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "pgsched-idle"]
