"""Runs faults one after another: a stage for each, load on it, the fault, quiet, the history, the checks.

The rule: what a fault does wrong (an exception, a wait in vain) is part of its history, and the next fault runs anyway.
"""

from __future__ import annotations

import contextlib
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from pgsched.chaos import ledger, load, needs
from pgsched.chaos.checker import Violation, check
from pgsched.chaos.collect import collect
from pgsched.chaos.fleet import Fleet
from pgsched.chaos.history import History, Trouble
from pgsched.chaos.load import Producer
from pgsched.chaos.place import Place, Places
from pgsched.chaos.proxy import Proxy
from pgsched.chaos.registry import Fault
from pgsched.chaos.stage import Stage

Say = Callable[[str], None]
OPEN_RUNS = "SELECT count(*) FROM pgsched.runs WHERE phase < 3"


@dataclass
class Result:
    """What became of one fault."""

    fault: Fault
    skipped: str | None = None
    seconds: float = 0.0
    history: History = field(default_factory=History)
    violations: list[Violation] = field(default_factory=list)


def run_fault(fault: Fault, places: Places, seed: int, say: Say) -> Result:
    """Run one fault and check its history."""
    result = Result(fault, skipped=needs.missing(fault.needs))
    if result.skipped:
        return result
    began = time.monotonic()
    try:
        with stage_of(fault, places, seed, say) as stage:
            result.history = Performance(stage, seed).perform()
    except Exception as error:
        result.history.troubles.append(trouble(error))
    result.seconds = time.monotonic() - began
    result.violations = check(result.history)
    return result


def trouble(error: BaseException) -> Trouble:
    """The error in one line with the place it came from."""
    where = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(str(error).split())
    return Trouble(f"{type(error).__name__}: {text} ({Path(where.filename).name}:{where.lineno})")


@contextmanager
def stage_of(fault: Fault, places: Places, seed: int, say: Say) -> Iterator[Stage]:
    """The stage, with its workers started; everything that it started ends with the block."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgsched-chaos-logs-")))
        place = stack.enter_context(places.place(fault.options.server))
        ledger.install(place.dsn)
        proxy = None if fault.options.direct else stack.enter_context(Proxy(place.dsn))
        env = {"PGSCHED_CHAOS_LEDGER": ledger_dsn(fault, place, places)}
        fleet = Fleet(proxy.dsn if proxy else place.dsn, folder, "pgsched.chaos.ledger:app", env)
        stack.callback(fleet.end)
        stage = Stage(fault, place, proxy, fleet, seed, say)
        stack.callback(stage.close)
        yield stage


def ledger_dsn(fault: Fault, place: Place, places: Places) -> str:
    return place.dsn


class Performance:
    """One fault on its stage, from the first worker to the history."""

    def __init__(self, stage: Stage, seed: int) -> None:
        self.stage = stage
        self.seed = seed
        self.producer = Producer(stage.workers_dsn, "load", stage.options.rate, seed)
        self.troubles: list[Trouble] = []

    def perform(self) -> History:
        """Load, fault, quiet; what goes wrong is written down."""
        stage = self.stage
        started = [stage.fleet.launch(*stage.worker_options()) for _ in range(stage.options.workers)]
        stage.fleet.await_start(*started)
        load.install_jobs(stage.db, stage.options.jobs)
        self.producer.start()
        for step in (self.suffer, self.quiet):
            try:
                step()
            except Exception as error:
                self.troubles.append(trouble(error))
        return self.history()

    def suffer(self) -> None:
        self.stage.fault.run(self.stage)

    def quiet(self) -> None:
        """No more load; everything must end."""
        stage = self.stage
        self.producer.stop()
        load.end_jobs(stage.db)
        stage.wait(lambda: stage.one(OPEN_RUNS) == 0, stage.options.drain_s, "all runs to end")

    def history(self) -> History:
        with psycopg.connect(self.stage.dsn, autocommit=True) as db:
            found = collect(db, db, self.producer.acknowledged + self.stage.asked)
        options = self.stage.options
        found.settings = {"fault": self.stage.fault.name, "seed": self.seed, "lease_s": options.lease_s or 30.0,
                          "reap_s": options.reap_s or 5.0, "limits": load.LIMITS}  # fmt: skip
        found.figures, found.outages, found.notes = self.stage.figures, self.stage.outages, self.stage.notes
        found.troubles = self.troubles
        return found
