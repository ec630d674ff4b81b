"""What a fault acts on: a server, a proxy, workers, producers, and the words in which it tells what it saw.

The rule: a fault waits on conditions with a bound, and cleans up after itself even when it fails.
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
from pgsched.chaos.site.site import Place

T = TypeVar("T")
LEASE_S, REAP_S = 30.0, 5.0  # the product's defaults
LEADER = "SELECT CASE WHEN resigned_at IS NULL THEN pid END FROM pgsched.leader ORDER BY term DESC LIMIT 1"
NOW = "SELECT extract(epoch FROM clock_timestamp())::float8"
EVENTS = "SELECT pid FROM chaos.ledger WHERE run_id = %s AND event = %s ORDER BY seq"
OPEN = "INSERT INTO chaos.gates VALUES (%s) ON CONFLICT DO NOTHING"
SLACK_S = 3.0  # of a machine with other things to do


class Stage:
    """Everything that lives while one fault runs. `server` is one of servers.KINDS; `workers_dsn` leads to the fault's
    own database as the processes go there. `findings`: what the fault found."""

    def __init__(
        self, fault: Fault, place: Place, proxy: Proxy | None, fleet: Fleet, seed: int, say: Callable[[str], None]
    ) -> None:
        self.fault = fault
        self.server = place.server
        self.sessions = DirectSessions(place.dsn)
        self.workers_dsn = proxy.dsn if proxy is not None else place.dsn
        self.fleet = fleet
        self.random = random.Random(f"{seed} {fault.name}")
        self.findings = Findings(say)
        self.gates: set[str] = set()  # what handlers wait for: opened at the latest when all is to end
        self._proxy = proxy
        self._asker = Producer(self.workers_dsn, "fault", 0, 0)

    @property
    def options(self) -> Options:
        return self.fault.options

    @property
    def proxy(self) -> Proxy:
        """What the processes' connections go through; a fault declared with direct=True has none."""
        assert self._proxy is not None, f"{self.fault.name} is declared with direct=True"
        return self._proxy

    @property
    def workers(self) -> list[Member]:
        """The processes that live."""
        return [member for member in self.fleet.members if member.alive]

    @property
    def dsn(self) -> str:
        """Leads to the fault's own database directly."""
        return self.sessions.dsn

    @property
    def db(self) -> psycopg.Connection[Any]:
        """A direct autocommit connection; a new one after the server went away."""
        return self.sessions.db

    @property
    def ledger(self) -> psycopg.Connection[Any]:
        """A connection to where the ledger is: the database, or another server."""
        return self.sessions.ledger

    def close(self) -> None:
        """Close what the stage itself opened."""
        self._asker.stop()
        self.sessions.close()

    # ---- acting

    def worker_options(self) -> list[str]:
        """The flags of every worker of this stage."""
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
        """One more worker with the stage's options and these; returns when it is at work."""
        member = self.fleet.launch(*self.worker_options(), *options, dsn=dsn, env=env, app=app, prefix=prefix)
        self.fleet.await_start(member)
        return member

    def enqueue(self, task: str, n: int = 1, *, max_attempts: int = 20, key: str | None = None, **args: Any) -> int:
        """Enqueue `n` runs of a task of ledger.py, recorded as acknowledged; the last one's id."""
        self.gates |= {args[name] for name in ("gate", "mended_by") if name in args}
        ids = [self._asker.send(task, args, key, max_attempts) for _ in range(n)]
        return ids[-1]

    @property
    def asked(self) -> list[Acknowledged]:
        """What the fault itself enqueued."""
        return self._asker.acknowledged

    def open_gate(self, name: str) -> None:
        """Let the handlers go on that wait for this gate."""
        for dsn in {self.dsn, self.sessions.ledger_dsn}:
            with psycopg.connect(dsn, autocommit=True, connect_timeout=5) as db:
                db.execute(OPEN, [name])

    # ---- seeing

    def wait(self, condition: Callable[[], T], within_s: float, what: str) -> T:
        """Poll until it is true and give its value. Raises WaitedTooLong."""
        return wait_until(condition, within_s, what)

    def one(self, query: str, *values: Any) -> Any:
        """The only value of the only row."""
        row = self.db.execute(query.encode(), values).fetchone()
        return None if row is None else row[0]

    def clock(self) -> float:
        """The database's time, in seconds since 1970."""
        return float(self.one(NOW))

    def leader_pid(self) -> int | None:
        """Who leads by the newest term, None if it resigned or there is none."""
        found = self.one(LEADER)
        return None if found is None else int(found)

    def leader(self, within_s: float = 20.0, *, other_than: Member | None = None) -> Member:
        """The worker that leads, and lives. Raises WaitedTooLong."""

        def found() -> Member | None:
            pid = self.leader_pid()
            member = None if pid is None else self.fleet.by_pid(pid)
            return member if member is not None and member is not other_than and member.alive else None

        member = self.wait(found, within_s, "a leader")
        assert member is not None
        return member

    def other_than(self, *members: Member) -> Member:
        """A living worker that is none of these."""
        return next(member for member in self.workers if member not in members and not member.frozen)

    def events(self, run_id: int, event: str = "start") -> list[int]:
        """The pids of the processes that wrote this event of the run, oldest first."""
        return [row[0] for row in self.ledger.execute(EVENTS, [run_id, event]).fetchall()]

    @property
    def lease_s(self) -> float:
        """The workers' lease, in seconds."""
        return LEASE_S if self.options.lease_s is None else self.options.lease_s

    @property
    def reap_s(self) -> float:
        """The leader's reap period, in seconds."""
        return REAP_S if self.options.reap_s is None else self.options.reap_s

    def state(self, run_id: int) -> str:
        """The run's state now."""
        return str(self.one("SELECT state FROM pgsched.runs WHERE id = %s", run_id))

    # ---- telling

    def figure(self, name: str, value: float, bound: float | None = None) -> None:
        """Record a figure (seconds where the name does not say otherwise); above its bound it is a violation."""
        self.findings.figure(name, value, bound)

    def note(self, text: str) -> None:
        """Say what happens now."""
        self.findings.note(text)

    @contextmanager
    def outage(self, why: str) -> Iterator[None]:
        """While this lasts nothing can be expected to move: bounds of the checks begin at its end."""
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
