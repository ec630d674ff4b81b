"""What tests of locks share: contenders in threads and processes, the line of a lock, and what is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import psycopg

from pgsched import App
from pgsched.recipes.lock import Lock
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

Db = psycopg.Connection[Any]


def line(db: Db, name: str = "a") -> list[bool]:
    """Return for each place in the line of a lock whether it is granted, in their order."""
    found = db.execute("SELECT fence IS NOT NULL FROM pgsched.lock_places WHERE lock = %s ORDER BY place", [name])
    return [granted for (granted,) in found.fetchall()]


def wait_in_line(db: Db, count: int, name: str = "a", timeout: float = 15) -> None:
    """Wait until so many hold this lock or wait for it."""
    wait_until(lambda: len(line(db, name)) == count, timeout, f"{count} places in the line of {name}")


def wait_for_nothing(db: Db, timeout: float = 15) -> None:
    """Wait until no lock is held, and nobody waits for one."""
    left = "SELECT lock, mode, fence FROM pgsched.lock_places"
    wait_until(lambda: not db.execute(left).fetchall(), timeout, "all places to be gone")


def fences(db: Db, name: str = "a") -> list[int]:
    """Return the fences of the holders."""
    found = db.execute("SELECT fence FROM pgsched.lock_places WHERE lock = %s AND fence IS NOT NULL", [name])
    return [fence for (fence,) in found.fetchall()]


def asserted(db: Db, fence: int, name: str = "a") -> bool:
    """Return whether this grant passes `assert_lock` now."""
    try:
        db.execute("SELECT pgsched.assert_lock(%s, %s)", [name, fence])
    except psycopg.Error as error:
        assert error.sqlstate == "PS410", error
        return False
    return True


def end_leases(db: Db) -> None:
    """Let the time of all sessions be over in the database, as if they had not been renewed."""
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() - interval '1 s' WHERE ended_at IS NULL")


def fill_line(db: Db, name: str, count: int, token: UUID) -> None:
    """Add so many places that wait to the end of a line, all of one session."""
    db.execute(
        "INSERT INTO pgsched.lock_places (lock, place, session, token, mode)"
        " SELECT %s, 1000 + n, s.id, gen_random_uuid(), 'exclusive'"
        " FROM generate_series(1, %s) n, pgsched.sessions s WHERE s.token = %s",
        [name, count, token],
    )


@contextmanager
def in_threads(*locks: Lock, timeout: float | None = 30) -> Iterator[list[Future[Lock]]]:
    """Let each of these contenders acquire in a thread of its own; the block gets their futures."""
    with ThreadPoolExecutor(max(1, len(locks))) as pool:
        yield [pool.submit(lock.acquire, timeout) for lock in locks]


@contextmanager
def another(dsn: str, count: int = 1) -> Iterator[list[App]]:
    """Yield Apps of the same program, as other processes would have them."""
    apps = [App(f"app{n}", dsn=dsn) for n in range(count)]
    try:
        yield apps
    finally:
        for app in apps:
            app.close()


def program(dsn: str, text: str, *args: str) -> subprocess.Popen[str]:
    """Start a program in Python with `app`, an App on this database, and `say(text)`, which the test reads by line."""
    begin = (
        "import os, sys, time, signal, threading, asyncio\nfrom pgsched import App, LeaseLost\n"
        "app = App('program', dsn=os.environ['PGSCHED_DSN'])\n"
        "def say(*what): print(*what, flush=True)\n"
    )
    env = {name: value for name, value in os.environ.items() if not name.startswith("PGSCHED_")}
    return subprocess.Popen(
        [sys.executable, "-c", begin + text, *args],
        cwd=ROOT, env=env | {"PGSCHED_DSN": dsn}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@contextmanager
def running(dsn: str, text: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Run a program as `program` starts it; kill it at the end of the block."""
    process = program(dsn, text, *args)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def said(process: subprocess.Popen[str]) -> str:
    """Return the next line that a program says; "" where it has ended."""
    assert process.stdout is not None
    return process.stdout.readline().strip()
