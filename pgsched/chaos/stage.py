"""The stage of a fault: a server, a proxy, workers and a producer, with methods to act on them and to report.

Invariant: a fault waits on conditions with a bound, and cleans up after itself even when it fails.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import psycopg

from pgsched.chaos.direct_sessions import DirectSessions
from pgsched.chaos.findings import Findings
from pgsched.chaos.fleet import Fleet, Member, wait_until
from pgsched.chaos.history import Outage
from pgsched.chaos.load import Acknowledged, Producer
from pgsched.chaos.registry import Fault, Options
from pgsched.chaos.site.proxy import Proxy
from pgsched.chaos.site.site import ChaosSite

T = TypeVar("T")
LEASE_S, REAP_S = 30.0, 5.0  # the product's defaults
LEADER = "SELECT CASE WHEN resigned_at IS NULL THEN pid END FROM pgsched.leader ORDER BY term DESC LIMIT 1"
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
EVENTS = "SELECT pid FROM chaos.ledger WHERE run_id = %s AND event = %s ORDER BY seq"
OPEN = "INSERT INTO chaos.gates VALUES (%s) ON CONFLICT DO NOTHING"
SLACK_S = 3.0  # added to bounds, because the machine may be busy with other work


class Stage:
    """Everything that lives while one fault runs.

    `server`: an instance of one of the classes in servers.KINDS.
    `workers_dsn`: the fault's own database as the processes reach it, through the proxy if there is one.
    `findings`: what the fault has reported.
    `gates`: gates that handlers wait for. All are opened when the load ends, at the latest.
    """

    def __init__(
        self, fault: Fault, place: ChaosSite, proxy: Proxy | None, fleet: Fleet, seed: int, say: Callable[[str], None]
    ) -> None:
        self.fault = fault
        self.server = place.server
        self.sessions = DirectSessions(place.dsn)
        self.workers_dsn = proxy.dsn if proxy is not None else place.dsn
        self.fleet = fleet
        self.random = random.Random(f"{seed} {fault.name}")
        self.findings = Findings(say)
        self.gates: set[str] = set()  # what handlers wait for
        self._proxy = proxy
        self._producer = Producer(self.workers_dsn, "fault", 0, 0)

    @property
    def options(self) -> Options:
        """Return the options of the fault."""
        return self.fault.options

    @property
    def proxy(self) -> Proxy:
        """Return the proxy of the processes' connections; a fault declared with direct=True has none."""
        assert self._proxy is not None, f"{self.fault.name} is declared with direct=True"
        return self._proxy

    @property
    def workers(self) -> list[Member]:
        """Return the processes that are alive."""
        return [member for member in self.fleet.members if member.alive]

    @property
    def dsn(self) -> str:
        """Return the DSN of the fault's own database, past the proxy."""
        return self.sessions.dsn

    @property
    def db(self) -> psycopg.Connection[Any]:
        """Return an autocommit connection past the proxy, opened again after the server went away."""
        return self.sessions.db

    @property
    def ledger(self) -> psycopg.Connection[Any]:
        """Return a connection to the ledger, which may be on another server."""
        return self.sessions.ledger

    def close(self) -> None:
        """Close the connections that the stage itself opened."""
        self._producer.stop()
        self.sessions.close()

    # ---- methods that act

    def worker_options(self) -> list[str]:
        """Return the flags for every worker of this stage."""
        found = ["--concurrency", str(self.options.concurrency), "--grace", "5"]
        for flag, value in (("lease", self.options.lease_s), ("reap-every", self.options.reap_s),
                            ("poll", self.options.poll_s)):  # fmt: skip
            found += [] if value is None else [f"--{flag}", f"{value:g}"]
        return found

    def start_worker(
        self,
        *options: str,
        dsn: str | None = None,
        env: Mapping[str, str] | None = None,
        app: str | None = None,
        prefix: Sequence[str] = (),
    ) -> Member:
        """Start one more worker with the stage's options and these, and wait until it has started.

        Raises WaitedTooLong if the worker does not start.
        """
        member = self.fleet.launch(*self.worker_options(), *options, dsn=dsn, env=env, app=app, prefix=prefix)
        self.fleet.await_start(member)
        return member

    def enqueue(self, task: str, n: int = 1, *, max_attempts: int = 20, key: str | None = None, **args: Any) -> int:
        """Enqueue `n` runs of a task of ledger.py, record them as acknowledged, and return the last run's id."""
        self.gates |= {args[name] for name in ("gate", "mended_by") if name in args}
        ids = [self._producer.send(task, args, key, max_attempts) for _ in range(n)]
        return ids[-1]

    @property
    def own_enqueues(self) -> list[Acknowledged]:
        """Return what the fault itself has enqueued."""
        return self._producer.acknowledged

    def open_gate(self, name: str) -> None:
        """Open a gate: handlers that wait for it go on."""
        for dsn in {self.dsn, self.sessions.ledger_dsn}:
            with psycopg.connect(dsn, autocommit=True, connect_timeout=5) as db:
                db.execute(OPEN, [name])

    # ---- methods that observe

    def wait(self, condition: Callable[[], T], within_s: float, what: str) -> T:
        """Poll until the condition is true, and return its value. Raises WaitedTooLong after `within_s` seconds."""
        return wait_until(condition, within_s, what)

    def one(self, query: str, *values: Any) -> Any:
        """Return the only value of the only row, or None if there is no row."""
        row = self.db.execute(query.encode(), values).fetchone()
        return None if row is None else row[0]

    def clock(self) -> float:
        """Return the database's time, in seconds since 1970."""
        return float(self.one(NOW))

    def leader_pid(self) -> int | None:
        """Return the process id of the newest term's leader; None if it resigned or there was none."""
        found = self.one(LEADER)
        return None if found is None else int(found)

    def leader(self, within_s: float = 20.0, *, other_than: Member | None = None) -> Member:
        """Wait for a living worker that leads, and return it.

        Raises WaitedTooLong after `within_s` seconds.
        """

        def found() -> Member | None:
            pid = self.leader_pid()
            member = None if pid is None else self.fleet.by_pid(pid)
            return member if member is not None and member is not other_than and member.alive else None

        member = self.wait(found, within_s, "a leader")
        assert member is not None
        return member

    def other_than(self, *members: Member) -> Member:
        """Return a living worker that is not frozen and not one of these."""
        return next(member for member in self.workers if member not in members and not member.frozen)

    def events(self, run_id: int, event: str = "start") -> list[int]:
        """Return the process ids that wrote this event of the run, oldest first."""
        return [row[0] for row in self.ledger.execute(EVENTS, [run_id, event]).fetchall()]

    @property
    def lease_s(self) -> float:
        """Return the workers' lease, in seconds."""
        return LEASE_S if self.options.lease_s is None else self.options.lease_s

    @property
    def reap_s(self) -> float:
        """Return the leader's reap period, in seconds."""
        return REAP_S if self.options.reap_s is None else self.options.reap_s

    def state(self, run_id: int) -> str:
        """Return the run's current state."""
        return str(self.one("SELECT state FROM pgsched.runs WHERE id = %s", run_id))

    # ---- methods that report

    def figure(self, name: str, value: float, bound: float | None = None) -> None:
        """Record a figure, in seconds unless its name says otherwise; above its bound, it is a violation."""
        self.findings.figure(name, value, bound)

    def note(self, text: str) -> None:
        """Record and print what happens now."""
        self.findings.note(text)

    @contextmanager
    def outage(self, why: str) -> Iterator[None]:
        """Record the block as an outage: nothing has to go on in it, and bounds of the checks begin at its end."""
        began = self.clock()
        try:
            yield
        finally:
            wait_until(self._answers, 60, "the server to answer after the outage")
            self.findings.outages.append(Outage(began, self.clock(), why))

    def _answers(self) -> bool:
        try:
            return self.clock() > 0
        except psycopg.Error:
            return False
