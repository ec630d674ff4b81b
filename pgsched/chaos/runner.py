"""Run faults one after another, each on a stage of its own, and check the history of each.

Invariant: an exception of a fault, or a wait that times out, is part of its history. The next fault runs anyway.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pgsched.chaos import ledger
from pgsched.chaos.checker import Violation, find_violations
from pgsched.chaos.fleet import Fleet
from pgsched.chaos.history import History
from pgsched.chaos.performance import FaultRun, describe_error
from pgsched.chaos.registry import Fault
from pgsched.chaos.site import requirements
from pgsched.chaos.site.proxy import Proxy
from pgsched.chaos.site.site import ChaosSites
from pgsched.chaos.stage import Stage

Say = Callable[[str], None]
APP = "pgsched.chaos.ledger:app"


@dataclass
class Result:
    """The outcome of one fault.

    `skipped`: why the fault cannot run on this machine; None if it ran.
    `seconds`: how long it took.
    `logs`: the folder with the workers' logs, kept only if a promise was broken.
    """

    fault: Fault
    skipped: str | None = None
    seconds: float = 0.0
    history: History = field(default_factory=History)
    violations: list[Violation] = field(default_factory=list)
    logs: Path | None = None


def run_fault(
    fault: Fault, places: ChaosSites, seed: int, say: Say, app: str = APP, env: Mapping[str, str] | None = None
) -> Result:
    """Run one fault and check its history. `app` and `env` are passed to its workers."""
    result = Result(fault, skipped=requirements.missing(fault.needs))
    if result.skipped:
        return result
    began, logs = time.monotonic(), Path(tempfile.mkdtemp(prefix="pgsched-chaos-logs-"))
    try:
        with stage_of(fault, places, logs, seed, say, app, env or {}) as stage:
            result.history = FaultRun(stage, seed).perform()
    except Exception as error:
        result.history.troubles.append(describe_error(error))
    finally:
        result.seconds = time.monotonic() - began
        result.violations = find_violations(result.history)
        if result.violations:
            result.logs = logs
        else:
            shutil.rmtree(logs, ignore_errors=True)
    return result


@contextmanager
def stage_of(
    fault: Fault, places: ChaosSites, logs: Path, seed: int, say: Say, app: str, env: Mapping[str, str]
) -> Iterator[Stage]:
    """Set up the stage of a fault; everything started on the stage ends with the block."""
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(places.place(fault.options.server))
        ledger.install(place.dsn)
        ledger_dsn = place.dsn
        if fault.options.separate_ledger:
            apart = stack.enter_context(places.place("private"))
            ledger_dsn = apart.dsn
            ledger.install(ledger_dsn)
        proxy = None if fault.options.direct else stack.enter_context(Proxy(place.dsn))
        ledgers = {"PGSCHED_CHAOS_LEDGER": ledger_dsn, "PGSCHED_CHAOS_RUNS": place.dsn}
        fleet = Fleet(proxy.dsn if proxy else place.dsn, logs, app, {**ledgers, **env})
        stack.callback(fleet.end)
        stage = Stage(fault, place, proxy, fleet, seed, say)
        stage.sessions.ledger_dsn = ledger_dsn
        stack.callback(stage.close)
        yield stage
