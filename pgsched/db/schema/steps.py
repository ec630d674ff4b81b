"""The rule: whatever takes time is a step of its own before its revision, may be cut off, and may be run again.

A step is one file of `migrations/VERSION/before`. Nobody waits for one for long: an index is built CONCURRENTLY, a
backfill commits its batches, and what needs a strong lock asks for it for half a second at a time.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psycopg.conninfo import make_conninfo

from pgsched.db.connection.connect import Connection, DatabaseError, connect
from pgsched.db.connection.dsn import in_use
from pgsched.db.queries import migration
from pgsched.db.schema.revision import LOCKS
from pgsched.db.statements import folder
from pgsched.errors import PgschedError

LOCK_WAIT = "500ms"
AGAIN = ("55P03", "57014", "40P01", "40001")  # what a lock that was not to be had, or a deadlock, ends with
LONGEST_PAUSE_S = 5.0
TELL_EVERY_S = 5.0
BUILT = re.compile(r"^CREATE (?:UNIQUE )?INDEX CONCURRENTLY IF NOT EXISTS (\w+)", re.MULTILINE)
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Step:
    """One file. `index`: the one that it builds; `alone`: it cannot be part of a transaction."""

    name: str
    text: str
    index: str | None
    alone: bool


def steps(revision: str) -> list[Step]:
    """What is to be done before the revision, in order."""
    files = sorted((folder("migrations") / revision / "before").glob("*.sql"))
    return [step(file) for file in files]


def step(file: Path) -> Step:
    """A file, read."""
    text = file.read_text(encoding="utf-8")
    built = BUILT.search(text)
    return Step(f"{file.parent.parent.name}/{file.stem}", text, built and built[1], bool(built) or "COMMIT;" in text)


def drop_invalid() -> str:
    """Removes what is left of an index of which the build was cut off."""
    return (folder("migrations") / "drop_invalid.sql").read_text(encoding="utf-8")


def run(conn: Connection[Any], one: Step) -> None:
    """Do a step on an autocommit connection. An index that is being built is waited for by nobody, and may wait."""
    conn.execute("SELECT set_config('lock_timeout', %s, false)", [LOCK_WAIT])
    if one.index is not None:
        conn.execute("SELECT set_config('pgsched.index', %s, false)", [one.index])
        conn.execute(drop_invalid().encode())
        conn.execute("SET lock_timeout = 0")
        conn.execute(one.text.encode())
    elif one.alone:
        conn.execute(one.text.encode())
    else:
        with conn.transaction():
            conn.execute(LOCKS[0].encode())
            conn.execute(one.text.encode())


def patiently(conn: Connection[Any], do: Callable[[], None], name: str, wait_s: float, tell: Tell) -> None:
    """Do it again and again while somebody is in the way; raises PgschedError after `wait_s` seconds."""
    until, pause, tries = time.monotonic() + wait_s, 0.25, 0
    while True:
        try:
            return do()
        except DatabaseError as error:
            if error.sqlstate not in AGAIN:
                raise
            if time.monotonic() > until:
                raise PgschedError(f"{name} got no lock within {wait_s:.0f} s: {in_the_way(conn)} is in the way; "
                                   "what was done stays, `pgsched migrate` goes on from there") from error  # fmt: skip
        tries += 1
        if tries in (2, 4) or tries % 10 == 0:
            tell(f"{name}: waits for {in_the_way(conn)}")
        time.sleep(pause)
        pause = min(LONGEST_PAUSE_S, pause * 2)


def in_the_way(conn: Connection[Any]) -> str:
    """Who holds locks on our tables, the oldest transaction first."""
    return migration.in_the_way(conn) or "a transaction that has ended by now"


@contextmanager
def turn(conn: Connection[Any], key: int, tell: Tell) -> Iterator[None]:
    """Our turn to migrate. Asked for again and again: who waits in one statement holds a snapshot, and whoever builds
    an index would wait for that. Anybody may hold the lock: of one who may not migrate the next key is tried."""
    asked = 0
    while not (row := migration.take_turn(conn, key))["got"]:
        if not row["waits"]:
            key += 1
            continue
        if asked % 50 == 0:
            tell("another process is migrating: waiting for it")
        asked += 1
        time.sleep(0.1)
    try:
        yield
    finally:
        if not conn.closed and not conn.broken:
            conn.execute("SELECT pg_advisory_unlock(%s)", [key])


@contextmanager
def progress(conn: Connection[Any], one: Step, tell: Tell) -> Iterator[None]:
    """Tell now and then how far an index is."""
    if one.index is None:
        yield
        return
    done = threading.Event()
    about = (make_conninfo("", **in_use(conn)), conn.info.backend_pid)
    watcher = threading.Thread(target=watch, args=(*about, one, tell, done), daemon=True)
    watcher.start()
    try:
        yield
    finally:
        done.set()
        watcher.join()


def watch(dsn: str, pid: int, one: Step, tell: Tell, done: threading.Event) -> None:
    """Look at what the server says of the index that session `pid` builds, until it is done."""
    while not done.wait(TELL_EVERY_S):
        try:
            with connect(dsn, purpose="migrate") as looking:
                text = migration.index_progress(looking, pid)
        except PgschedError:
            continue
        if text is not None and not done.is_set():
            tell(f"{one.name}: {text}")
