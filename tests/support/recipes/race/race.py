"""A race between processes: start them, hurt them while they work, let them end, and look at the ledger.

Nothing depends on how fast the machine is. After each fault the test waits until the processes have got on with their
work, and only then comes the next one.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.chaos.fleet import Member
from pgsched.db.schema.migrate import upgrade
from pgsched.execute.subprocess.child import DIE_WITH
from tests.support.bouncer import BINARY, Bouncer, bouncing
from tests.support.paths import ROOT
from tests.support.recipes.race.ledger import AWAY, TABLES, Db
from tests.support.server import PrivateCluster
from tests.support.waiting import wait_until

SHORT_S = 1.0  # the ttl of processes that are killed and frozen
# That of the others: three times longer than a race takes. Who waits with it, and was not told, is not served in time.
LONG_S = 900.0
PATIENCE_S = 90.0  # for progress, and for the end
TAIL_LINES = 30

HOLDERS = """
SELECT substring(s.name FROM ':([0-9]+)$')::int FROM pgsched.sessions s
WHERE s.ended_at IS NULL AND s.lease_until > clock_timestamp() AND (
    EXISTS (SELECT FROM pgsched.lock_places p WHERE p.session = s.id AND p.fence IS NOT NULL)
    OR EXISTS (SELECT FROM pgsched.items i WHERE i.session = s.id)
    OR EXISTS (SELECT FROM pgsched.store k WHERE k.session = s.id))"""
LEASES = """
SELECT count(*) FROM pgsched.sessions s
WHERE s.ended_at IS NULL AND s.lease_until > clock_timestamp() AND s.name LIKE %s"""
CUT = """
SELECT count(pg_terminate_backend(a.pid)) FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.pid <> pg_backend_pid()
    AND random() < 0.5"""


@dataclass
class Runner:
    """A process of a race, and with what it was started. `lasting`: it is neither killed nor frozen."""

    member: Member
    module: str
    args: Sequence[str]
    lasting: bool


@dataclass
class Race:
    """Processes on one database. `dice`: decides what happens to whom."""

    cluster: PrivateCluster
    folder: Path
    dice: random.Random
    bouncer: Bouncer | None = None
    runners: list[Runner] = field(default_factory=list)
    killed: list[int] = field(default_factory=list)
    _db: Db | None = None

    # ---- processes

    def start(self, module: str, *args: str, lasting: bool = False) -> None:
        """Start a process of a module beside this one; it gets the DSN, a seed and these arguments."""
        log = self.folder / f"{module}-{len(self.runners)}.log"
        dsn = self.cluster.dsn if self.bouncer is None else self.bouncer.dsn
        seed = str(self.dice.randrange(1_000_000))
        command = [sys.executable, "-m", f"tests.support.recipes.race.{module}", dsn, seed, *args]
        env = {name: value for name, value in os.environ.items() if not name.startswith("PGSCHED_")}
        us = os.getpid()
        with log.open("wb") as sink:
            process = subprocess.Popen(
                command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink,
                preexec_fn=lambda: DIE_WITH(us),  # noqa: PLW1509 - it ends also if the test is killed
            )  # fmt: skip
        self.runners.append(Runner(Member(process, log), module, args, lasting))

    def living(self) -> list[Runner]:
        """Return the processes that were not killed."""
        return [one for one in self.runners if one.member.pid not in self.killed]

    def choose(self) -> Runner:
        """Return a process that may be killed: in most cases one that holds something."""
        some = [one for one in self.living() if not one.lasting]
        holders = {pid for (pid,) in self.ask(HOLDERS)}
        holding = [one for one in some if one.member.pid in holders]
        return self.dice.choice(holding if holding and self.dice.random() < 0.8 else some)

    # ---- the database

    def ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a statement, asked past the pooler, again if the server was restarted."""
        for _ in range(3):
            with contextlib.suppress(*AWAY):
                return self.db.execute(statement.encode(), values or None).fetchall()
        return self.db.execute(statement.encode(), values or None).fetchall()

    def count(self, statement: str, *values: Any) -> int:
        """Return the number that a statement returns."""
        return int(self.ask(statement, *values)[0][0])

    @property
    def db(self) -> Db:
        """A connection past the pooler."""
        if self._db is None or self._db.closed:
            self._db = psycopg.connect(self.cluster.dsn, autocommit=True, application_name="race")
        return self._db

    def close(self) -> None:
        if self._db is not None:
            self._db.close()

    # ---- faults

    def kill(self) -> None:
        """Kill a process, and start another one like it."""
        victim = self.choose()
        self.killed.append(victim.member.pid)
        victim.member.kill()
        self.start(victim.module, *victim.args)

    @contextlib.contextmanager
    def freezing(self) -> Iterator[None]:
        """Let a process stand still in this block, which begins when its lease is over."""
        victim = self.choose().member
        victim.freeze()
        try:
            wait_until(lambda: self.count(LEASES, f"%:{victim.pid}") == 0, 30, "the lease of a frozen process to end")
            yield
        finally:
            victim.thaw()

    def cut(self) -> None:
        """Cut half of the connections."""
        self.ask(CUT)

    def restart(self) -> None:
        """Stop the server, in an orderly way or not, and start it again."""
        self.cluster.stop(self.dice.choice(["fast", "immediate"]))
        self.cluster.start()

    def restart_pooler(self) -> None:
        """Kill PgBouncer, and start it again."""
        assert self.bouncer is not None
        self.bouncer.stop()
        self.bouncer.start()

    def hurt(self, progress: Callable[[], int], enough: int, rounds: int) -> None:
        """Do faults in a random order, each so many times; wait after each until there was this much progress."""
        faults = ["kill", "freeze", "cut", "restart", *([] if self.bouncer is None else ["restart_pooler"])] * rounds
        self.dice.shuffle(faults)
        self.advance(progress, enough, "the start")
        for fault in faults:
            print(f"{time.time():.3f} {fault}", flush=True)
            if fault == "freeze":
                with self.freezing():
                    self.try_to_advance(progress, enough)
            else:
                getattr(self, fault)()
            self.advance(progress, enough, fault)

    def advance(self, progress: Callable[[], int], enough: int, after: str) -> None:
        """Wait for so much progress."""
        before = progress()
        with self.saying_where():
            wait_until(lambda: progress() >= before + enough or self.failed(), PATIENCE_S, f"progress after {after}")
        assert self.failed() == []

    def try_to_advance(self, progress: Callable[[], int], enough: int) -> None:
        """Wait a moment for so much progress: who is frozen in a transaction may be in the way of all."""
        before, until = progress(), time.monotonic() + 2
        while progress() < before + enough and time.monotonic() < until:
            time.sleep(0.02)

    # ---- the end

    def failed(self) -> list[str]:
        """Return which processes have ended with an error."""
        ended = [one.member for one in self.living() if not one.member.alive]
        return [
            f"{one.log.name}: exit {one.process.returncode}: {one.last_line}" for one in ended if one.process.returncode
        ]

    def finish(self, what: str) -> None:
        """Let the last part of the race end, and wait until all processes have ended."""
        self.ask("INSERT INTO race.over VALUES (%s) RETURNING what", what)
        some = [one.member for one in self.living()]
        with self.saying_where():
            wait_until(lambda: not any(one.alive for one in some) or self.failed(), PATIENCE_S, f"the end of {what}")
        assert self.failed() == []

    @contextlib.contextmanager
    def saying_where(self) -> Iterator[None]:
        """Let the processes write where they are into their logs, if this block fails."""
        try:
            yield
        except BaseException:
            asked = [one.member for one in self.living() if one.member.alive]
            for one in asked:
                one.signal(signal.SIGUSR1)
            until = time.monotonic() + 5
            while not all(one.logged("most recent call first") for one in asked) and time.monotonic() < until:
                time.sleep(0.02)
            raise

    def end(self) -> None:
        """Kill what still lives, and print the last lines of each log."""
        for one in self.runners:
            with contextlib.suppress(ProcessLookupError):
                if one.member.alive:
                    os.kill(one.member.pid, signal.SIGKILL)
            one.member.process.wait()
            lines = one.member.log.read_text(errors="replace").splitlines()
            print(f"--- {one.member.log.name} (pid {one.member.pid}, {one.args}, exit {one.member.process.returncode})")
            print("\n".join(lines[-TAIL_LINES:]))
        self.close()


@contextlib.contextmanager
def racing(cluster: PrivateCluster, folder: Path, *, pooled: bool) -> Iterator[Race]:
    """Yield a race on this server; print its seed. `pooled`: its processes go through PgBouncer."""
    if pooled and BINARY is None:
        pytest.skip("PgBouncer is not installed (apt-get install pgbouncer): poolers are not tested")
    seed = int(os.environ.get("PGSCHED_CHAOS_SEED") or random.randrange(1_000_000))
    print(f"seed {seed} (PGSCHED_CHAOS_SEED)")
    upgrade(cluster.dsn)
    with contextlib.ExitStack() as opened:
        race = Race(cluster, folder, random.Random(seed))
        opened.callback(race.end)
        race.db.execute(TABLES.encode())
        if pooled:
            settings = {"server_login_retry": 1, "default_pool_size": 60}
            race.bouncer = opened.enter_context(bouncing(cluster.dsn, **settings))
        yield race


def check_server_log(cluster: PrivateCluster) -> list[str]:
    """Return what the server has noted of deadlocks."""
    text = cluster.cluster.log.read_text(errors="replace")
    return [line for line in text.splitlines() if "deadlock detected" in line]
