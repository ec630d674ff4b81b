"""The load under a fault: jobs with a slot every one to three seconds, limits, and producers that record each answer.

Invariant: an enqueue is acknowledged when its answer has arrived. An enqueue without an answer is sent again, with the
same idempotency key. Applications have to do the same, and it must not make two runs.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg.types.json import Jsonb

from pgsched.db.connection.connect import connect
from pgsched.errors import PgschedError

SCHEDULES = ("* * * * * *", "@every 1s", "*/2 * * * * *", "@every 3s", "1-59/2 * * * * *", "@every 2s")
LIMITS = {"tenant": 2, "single": 1}
JOB = """INSERT INTO pgsched.jobs (name, schedule, task, overlap, max_attempts, backoff_base, concurrency_key)
VALUES (%s, %s, 'brief', 'allow', 20, '1 second', %s)"""
LIMIT = "INSERT INTO pgsched.limits (name, concurrency) VALUES (%s, %s)"
END_JOBS = "UPDATE pgsched.jobs SET ends_at = clock_timestamp() WHERE schedule IS NOT NULL AND ends_at IS NULL"
ENQUEUE = """SELECT id, how FROM pgsched.enqueue_result(task => %s, args => %s, idempotency_key => %s,
concurrency_key => %s, max_attempts => %s)"""
PAUSE_S = 0.2


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """An enqueue whose answer arrived.

    `key`: the idempotency key that was sent.
    `at`: when the answer arrived, in seconds since 1970 on this machine's clock.
    `sent`: how often the enqueue was sent.
    """

    key: str
    run_id: int
    at: float
    sent: int


def install_jobs(db: psycopg.Connection, count: int) -> None:
    """Insert `count` jobs and the limits; the limit `single` applies to every third job."""
    for name, limit in LIMITS.items():
        db.execute(LIMIT, [name, limit])
    for n in range(count):
        db.execute(JOB, [f"chaos-{n}", SCHEDULES[n % len(SCHEDULES)], f"single:{n}" if n % 3 == 2 else None])


def end_jobs(db: psycopg.Connection) -> None:
    """End all jobs now: they have no later slots."""
    db.execute(END_JOBS)


class Producer:
    """A thread that enqueues `rate` runs per second, on a connection of its own, until it is stopped."""

    def __init__(self, dsn: str, name: str, rate: float, seed: int) -> None:
        self.dsn = dsn
        self.name = name
        self.rate = rate
        self.random = random.Random(seed)
        self.acknowledged: list[Acknowledged] = []
        self.refused: list[str] = []
        self._conn: psycopg.Connection[Any] | None = None
        self._number = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread, unless the rate is 0."""
        if self.rate > 0:
            self._thread.start()

    def stop(self, within_s: float = 60.0) -> None:
        """Stop sending, after the enqueue in progress has been answered.

        Raises TimeoutError if there is no answer within `within_s` seconds.
        """
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)
            if self._thread.is_alive():
                raise TimeoutError(f"the producer {self.name} had no answer for {within_s:g} s")
        if self._conn is not None:
            self._conn.close()

    def _run(self) -> None:
        while not self._stop.is_set():
            started = time.monotonic()
            limited = self.random.random() < 0.2
            key = f"tenant:{self.random.randrange(3)}" if limited else None
            self.send("brief", {"seconds": round(self.random.random() / 20, 3)}, key)
            self._stop.wait(max(0.0, 1 / self.rate - (time.monotonic() - started)))

    def send(self, task: str, args: dict[str, Any], key: str | None = None, max_attempts: int = 20) -> int:
        """Enqueue one run, sending again until there is an answer; return the run's id."""
        self._number += 1
        name = f"{self.name}-{self._number}"
        values = [task, Jsonb(args), name, key, max_attempts]
        sent = 0
        while True:
            sent += 1
            try:
                row = self._connection().execute(ENQUEUE, values).fetchone()
                assert row is not None
                self.acknowledged.append(Acknowledged(name, int(row[0]), time.time(), sent))
                return int(row[0])
            except (psycopg.OperationalError, psycopg.InterfaceError, PgschedError):
                time.sleep(PAUSE_S)
            except psycopg.Error as error:
                self.refused.append(str(error))
                raise

    def _connection(self) -> psycopg.Connection[Any]:
        if self._conn is None or self._conn.closed or self._conn.broken:
            self._conn = connect(self.dsn, purpose="producer", timeout_s=10)
        return self._conn
