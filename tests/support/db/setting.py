"""Helpers of the race tests: due jobs, claims on a plain connection, and statements with a guard cut out.

A guard is proved twice. With the guard, the violation does not happen. With the guard cut out of the statement's text,
the same steps do produce the violation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from pgsched.core.model import Claim, Outcome, Result, Settlement
from pgsched.db.queries.leader import expired_leases
from pgsched.db.queries.runs.claim_rows import claims_of, columns_of, json_as_text
from pgsched.db.queries.runs.claims import FROM_THE_START
from pgsched.db.statements import sql, statements
from tests.support.waiting import wait_until

Open = Callable[..., psycopg.Connection]
ASLEEP = "SELECT setval('pgsched.asleep_until', (date_part('epoch', clock_timestamp()) * 1000)::bigint + %s)"  # in ms
CLAIMS = ("claim", "claim_start")  # the statements that claim from the cursor on, and from the start of the queue
CALENDAR_TIME = (
    "INSERT INTO pgsched.calendar_times (calendar, from_date, until_date, weekdays, from_time, until_time, reason)"
)
KINDS: dict[str, Any] = {"kinds": ["command", "shell", "sql"], "tasks": ["t"], "named": False}


def text_without(name: str, guard: str, instead: str = "") -> bytes:
    """Return the text of a named statement with a guard cut out; fail if the text does not hold the guard once."""
    text = sql(name).decode()
    assert text.count(guard) == 1, f"{name}.sql has {guard!r} {text.count(guard)} times"
    return text.replace(guard, instead).encode()


def cut(monkeypatch: pytest.MonkeyPatch, name: str, guard: str, instead: str = "") -> None:
    """Cut a guard out of the statement `name`, for all code of this process that sends it."""
    monkeypatch.setitem(statements(), name, text_without(name, guard, instead))


def heard(db: psycopg.Connection, listener: psycopg.Connection) -> list[str]:
    """Return the notifications on `pgsched_runs` since `listener` began to listen, or since the last call."""
    db.execute("NOTIFY pgsched_runs, 'end'")
    found: list[str] = []
    for notify in listener.notifies(timeout=10):
        if notify.payload == "end":
            return found
        found.append(notify.payload)
    raise AssertionError("a notification got lost")


def add_runs(db: psycopg.Connection, count: int) -> None:
    """Queue runs of the task `t`."""
    db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, %s)", [count])


def add_jobs(db: psycopg.Connection, count: int, seconds: int, task: str = "t", **columns: Any) -> None:
    """Add jobs that have exactly `seconds` undecided past slots each. A leader sees the jobs only in that state."""
    given = {"overlap": "allow"} | columns
    names = "".join(f", {name}" for name in given)
    with db.transaction():
        db.execute(
            f"INSERT INTO pgsched.jobs (name, schedule, task{names})"
            f" SELECT 'j' || n, '@every 1s', %s{', %s' * len(given)} FROM generate_series(1, %s) n",
            [task, *given.values(), count],
        )
        put_back(db, seconds)


def make_calendar(db: psycopg.Connection, *rows: dict[str, Any], name: str = "office") -> None:
    """Make a calendar unless it exists, and add times to it (columns of calendar_times)."""
    db.execute("INSERT INTO pgsched.calendars (name) VALUES (%s) ON CONFLICT DO NOTHING", [name])
    for row in rows:
        columns = ("from_date", "until_date", "weekdays", "from_time", "until_time", "reason")
        db.execute(
            f"{CALENDAR_TIME} VALUES (%s, %s, %s, %s, %s, %s, %s)".encode(), [name, *(row.get(one) for one in columns)]
        )


def put_back(db: psycopg.Connection, seconds: int) -> None:
    """Let every job begin `seconds` + 0.5 s ago, with no slot decided yet; no trigger runs."""
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute(
            "UPDATE pgsched.jobs SET anchor_at = clock - make_interval(secs => %(s)s + 0.5), next_run_at = clock,"
            " decided_until = clock - make_interval(secs => %(s)s + 0.5), ends_at = clock"
            " FROM (SELECT clock_timestamp() AS clock) c",
            {"s": seconds},
        )


def forget_decided(db: psycopg.Connection) -> None:
    """Put the high-water mark of every job back to where the job began."""
    with db.transaction():
        db.execute("SET LOCAL session_replication_role = replica")
        db.execute("UPDATE pgsched.jobs SET decided_until = anchor_at, next_run_at = clock_timestamp()")


def slots(db: psycopg.Connection) -> tuple[int, int]:
    """Return the number of rows of runs, and the number of distinct slots."""
    row = db.execute("SELECT count(*), count(DISTINCT (job_id, scheduled_at)) FROM pgsched.runs").fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def take(
    conn: psycopg.Connection,
    n: int = 1,
    token: UUID | None = None,
    lease_s: float = 30.0,
    text: bytes | None = None,
    span: Mapping[str, str] = FROM_THE_START,
    places: int = 1000,
) -> list[Claim]:
    """Claim on a plain connection, in its own transaction or the caller's, for a worker with `places` free places."""
    token = token or uuid4()
    values = {
        "queue": "default",
        "n": n,
        "places": places,
        "token": token,
        "worker_id": 1,
        "lease_s": lease_s,
        **KINDS,
        **span,
    }
    json_as_text(cursor := conn.cursor())
    rows = cursor.execute(text or sql("claim"), values).fetchall()
    return claims_of(token, columns_of(cursor), rows, "default")


def reap(conn: psycopg.Connection, before_s: float | None = None) -> list[dict[str, Any]]:
    """Reap every claim whose lease has ended."""
    return expired_leases.reap(conn, expired_leases.find_bad_leases(conn, 100, before_s)[0], 5, before_s)


def let_expire(db: psycopg.Connection) -> None:
    """End the leases of all running runs."""
    db.execute("UPDATE pgsched.runs SET lease_until = clock_timestamp() - interval '1 second' WHERE state = 'running'")


def done(claim: Claim, result: Result = Result.SUCCEEDED, **more: Any) -> Settlement:
    """Return a settlement of this claim."""
    retry_in_s = 60.0 if result is Result.FAILED else None
    error = None if result is Result.SUCCEEDED else "it failed"
    return Settlement.of(claim, Outcome(result, error=error, **more), retry_in_s)


def row_of(db: psycopg.Connection, run_id: int) -> dict[str, Any]:
    """Return all columns of a run."""
    found = db.execute("SELECT to_jsonb(r) FROM pgsched.runs r WHERE id = %s", [run_id]).fetchone()
    assert found is not None
    return dict(found[0])


class Aside:
    """A call in its own thread; `result` waits for the end, then returns the value or raises the error."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call
        self._value: Any = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._value = self._call()
        except BaseException as error:
            self._error = error

    def result(self, timeout: float = 20.0) -> Any:
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"still busy after {timeout:g} s"
        if self._error is not None:
            raise self._error
        return self._value


def wait_until_waits(db: psycopg.Connection) -> None:
    """Wait until one session of the database waits for a lock."""
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    wait_until(lambda: db.execute(waits).fetchone() == (1,), what="a session to wait for a lock")


def wait_until_blocked(db: psycopg.Connection, conn: psycopg.Connection) -> None:
    """Wait until the statement on `conn` waits for a lock of another session."""
    pid = conn.info.backend_pid
    wait_until(
        lambda: db.execute("SELECT cardinality(pg_blocking_pids(%s)) > 0", [pid]).fetchone() == (True,),
        what="the statement to be blocked",
    )


def at_once(calls: list[Callable[[], Any]], timeout: float = 20.0) -> list[Any]:
    """Run the calls in threads that start together; return their results in order."""
    start = threading.Barrier(len(calls))

    def begin(call: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            start.wait(10)
            return call()

        return run

    return [aside.result(timeout) for aside in [Aside(begin(call)) for call in calls]]
