"""Run one fault on its stage: from the first worker to the history.

Invariant: an exception or a wait that times out is recorded as trouble in the history. The later steps still run,
because what they record explains the trouble.
"""

from __future__ import annotations

import contextlib
import time
import traceback
from pathlib import Path

import psycopg

from pgsched.chaos import leftovers, load
from pgsched.chaos.collect import collect
from pgsched.chaos.fleet import Member, WaitedTooLong
from pgsched.chaos.history import History, Leak, Process, Trouble
from pgsched.chaos.load import Producer
from pgsched.chaos.stage import SLACK_S, Stage

OPEN_RUNS = "SELECT count(*) FROM pgsched.runs WHERE phase < 3"
SEEN = "SELECT DISTINCT pid FROM chaos.ledger WHERE seq > %s"
NEWEST = "SELECT coalesce(max(seq), 0) FROM chaos.ledger"
STARTED = "SELECT DISTINCT run_id FROM chaos.ledger WHERE event = 'start'"
WARM = "warm"
ROLL_CALL_S, REST_S, STOP_S = 30.0, 10.0, 20.0
COMPLAINTS = ("warning", "error", "critical")


def describe_error(error: BaseException) -> Trouble:
    """Return the error in one line, with the place that raised it.

    Raises KeyboardInterrupt if an interrupt caused the error: code that was interrupted may have raised another error.
    """
    behind: BaseException | None = error
    while behind is not None:
        if isinstance(behind, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        behind = behind.__cause__ or behind.__context__
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return Trouble(f"{type(error).__name__}: {text} ({Path(where.filename).name}:{where.lineno})")


class FaultRun:
    """One fault on its stage, and what was recorded of it so far."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.seed = seed
        self.producer = Producer(stage.workers_dsn, "load", stage.options.rate, seed)
        self.troubles: list[Trouble] = []
        self.before: dict[int, dict[str, int]] = {}
        self.after: dict[int, dict[str, int]] = {}
        self.fates: dict[int, str] = {}
        self.stop_s: dict[int, float] = {}
        self.leaks: list[Leak] = []

    def perform(self) -> History:
        """Do all steps (load, fault, healing, quiet, roll call, end), and return the history."""
        self.warm_up()
        for step in (self.suffer, self.heal, self.quiet, self.roll_call, self.settle_down, self.end):
            try:
                step()
            except Exception as error:
                self.troubles.append(describe_error(error))
        return self.history()

    def warm_up(self) -> None:
        """Start the workers, use each of their places once, record what they hold at rest, then start the load."""
        stage, options = self.stage, self.stage.options
        started = [stage.fleet.launch(*stage.worker_options()) for _ in range(options.workers)]
        stage.fleet.await_start(*started)
        if started:
            self.use_all_slots(options.workers * options.concurrency)
        self.before = holdings_by_pid(started)
        load.install_jobs(stage.db, options.jobs)
        self.producer.start()

    def use_all_slots(self, count: int) -> None:
        """Run `count` handlers at the same time.

        After that, each place of a worker has its thread, and each thread has its connection to the ledger.
        """
        stage = self.stage
        stage.enqueue("hold", count, gate=WARM)
        stage.wait(lambda: stage.ledger.execute(STARTED).rowcount == count, 30, "a run in each slot")
        stage.open_gate(WARM)
        stage.wait(lambda: stage.one(OPEN_RUNS) == 0, 30, "the first runs to end")

    def suffer(self) -> None:
        """Run the fault."""
        self.stage.fault.run(self.stage)

    def heal(self) -> None:
        """Thaw frozen workers, and start one if none is left."""
        for member in self.stage.workers:
            if member.frozen:
                member.thaw()
        if not self.stage.workers:
            self.stage.start_worker()

    def quiet(self) -> None:
        """Stop the load, open all gates, and wait until every run has ended."""
        self.producer.stop()
        load.end_jobs(self.stage.db)
        for name in self.stage.gates:
            self.stage.open_gate(name)
        self.stage.wait(lambda: self.stage.one(OPEN_RUNS) == 0, self.stage.options.drain_s, "all runs to end")

    def roll_call(self) -> None:
        """Check that every living process runs a handler, or logs why it cannot."""
        stage = self.stage
        (since,) = stage.ledger.execute(NEWEST).fetchone() or (0,)
        logged = {member.pid: member.log.stat().st_size for member in stage.workers}
        seen: set[int] = set()
        deadline = time.monotonic() + ROLL_CALL_S
        while not seen.issuperset(logged) and time.monotonic() < deadline:
            stage.enqueue("brief", stage.options.concurrency * len(logged), seconds=0.1)
            with contextlib.suppress(WaitedTooLong):
                stage.wait(lambda: stage.one(OPEN_RUNS) == 0, 10, "the roll call to end")
            seen = {row[0] for row in stage.ledger.execute(SEEN, [since]).fetchall()}
        for member in stage.workers:
            self.fates[member.pid] = "worked" if member.pid in seen else fate_of(member, logged.get(member.pid, 0))
        stage.wait(lambda: stage.one(OPEN_RUNS) == 0, 10, "the roll call to end")

    def settle_down(self) -> None:
        """Wait until the workers are idle, and record what they hold."""
        with contextlib.suppress(WaitedTooLong):
            self.stage.wait(lambda: leftovers.at_rest(self.stage.workers, self.before), REST_S, "rest")
        self.after = holdings_by_pid(self.stage.workers)

    def end(self) -> None:
        """Stop all workers, then record the sessions and locks that are left in the server."""
        asked = time.monotonic()
        living = self.stage.workers
        for member in living:
            member.terminate()
        for member in living:
            member.ended(STOP_S)
            self.stop_s[member.pid] = time.monotonic() - asked
        self.stage.close()
        with psycopg.connect(self.stage.dsn, autocommit=True, application_name="chaos stage") as db:
            with contextlib.suppress(WaitedTooLong):
                self.stage.wait(lambda: not leftovers.find_leaks(db), REST_S, "all sessions to end")
            self.leaks = leftovers.find_leaks(db)

    def history(self) -> History:
        """Return the history of this fault, with settings, figures, processes, troubles and leaks."""
        stage, findings = self.stage, self.stage.findings
        with psycopg.connect(stage.dsn, autocommit=True) as db, psycopg.connect(stage.sessions.ledger_dsn) as ledger:
            found = collect(db, ledger, self.producer.acknowledged + stage.own_enqueues)
            ended = db.execute("SELECT extract(epoch FROM clock_timestamp())::float8").fetchone()
        lease_s, reap_s = stage.lease_s, stage.reap_s
        found.settings = {
            "fault": stage.fault.name, "seed": self.seed, "lease_s": lease_s, "reap_s": reap_s, "limits": load.LIMITS,
            "ended": ended[0] if ended else None, "stuck_s": reap_s + SLACK_S, "stop_within_s": STOP_S,
            "ledger": "apart" if stage.sessions.ledger_dsn != stage.dsn else "here", **findings.settings,
        }  # fmt: skip
        found.figures, found.outages, found.notes = findings.figures, findings.outages, findings.notes
        found.processes = [self.process(member) for member in stage.fleet.members]
        found.troubles = self.troubles + [Trouble(f"an enqueue was refused: {text}") for text in self.producer.refused]
        found.leaks = self.leaks
        return found

    def process(self, member: Member) -> Process:
        """Return the row of one process for the history."""
        pid = member.pid
        fate = self.fates.get(pid, "exited" if not member.alive else "silent")
        code = None if member.alive else member.process.returncode
        before, after = self.before.get(pid), self.after.get(pid)
        return Process(pid, fate, code, member.ended_by, self.stop_s.get(pid), before, after)


def holdings_by_pid(members: list[Member]) -> dict[int, dict[str, int]]:
    """Return what each process holds, by its process id."""
    return {member.pid: found for member in members if (found := leftovers.holdings(member.pid)) is not None}


def fate_of(member: Member, logged: int) -> str:
    """Return what became of a process that ran nothing: "exited", "unhealthy" or "silent".

    A process is unhealthy if it has logged a warning or an error after the first `logged` bytes of its log.
    """
    if not member.alive:
        return "exited"
    with member.log.open("rb") as log:
        log.seek(logged)
        log_text = log.read().decode(errors="replace").lower()
    return "unhealthy" if any(word in log_text for word in COMPLAINTS) else "silent"
