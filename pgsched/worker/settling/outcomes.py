"""The path of each outcome of a worker: it is logged, waits for the attempt's output, and is then written."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from pgsched.core.model import SUCCEEDED, Claim, Outcome, Result, Settlement
from pgsched.execute.base import Executor
from pgsched.execute.output.record import Journal
from pgsched.execute.python.executor import PythonExecutor
from pgsched.worker.attempts.attempt import job_of
from pgsched.worker.leases import Leases
from pgsched.worker.observers.run_lines import RunLines
from pgsched.worker.output import LogPump
from pgsched.worker.settling.settler import Settler, retry_in_s


class Outcomes:
    """The outcomes of one worker.

    - `verdicts`: how many runs have reached each state.
    - `log_fields`: extra fields for log lines about an attempt.
    - `on_room()`: called when fewer outcomes wait.
    """

    def __init__(
        self,
        settler: Settler,
        logs: LogPump,
        journal: Journal,
        leases: Leases,
        executors: Mapping[str, Executor],
        lines: RunLines,
        on_room: Callable[[], None],
    ) -> None:
        """Connect the parts. `journal`: receives the attempts' output, which `logs` writes."""
        self.verdicts: dict[str, int] = {}
        self.log_fields: Callable[[Claim], dict[str, Any]] = job_of
        self.settler = settler
        self.logs = logs
        self._journal = journal
        self._leases = leases
        self._executors = executors
        self._lines = lines
        lines.verdicts = self.verdicts
        self._on_room = on_room
        settler.on_settled, settler.on_taken = self._settled, on_room

    def take(self, claims: Sequence[Claim], outcome: Outcome) -> None:
        """Take the outcome of the attempts at these claims."""
        if outcome.result is SUCCEEDED:
            self._put([Settlement.of(claim, outcome) for claim in claims])
            return
        for claim in claims:
            self._take_other(claim, outcome)

    def is_behind(self) -> bool:
        """Check whether too many outcomes wait to claim more runs."""
        return self.settler.queue.is_behind(self.logs.waiting_outcomes)

    async def flushed(self) -> None:
        """Wait until all output and all outcomes so far are written."""
        await self.logs.finished()
        await self.settler.queue.flushed()

    def _take_other(self, claim: Claim, outcome: Outcome) -> None:
        again_s = retry_in_s(claim, outcome, random.random)
        if outcome.result not in (Result.INTERRUPTED, Result.RELEASED):
            self._lines.attempt_failed(claim, outcome, again_s, self.log_fields(claim))
        if outcome.result in (Result.TIMED_OUT, Result.CRASHED):
            executor = self._executors.get(claim.kind)
            if isinstance(executor, PythonExecutor):
                executor.ended_badly(claim, outcome)
        self._put([Settlement.of(claim, outcome, again_s)])

    def _put(self, settlements: Sequence[Settlement]) -> None:
        if not self._journal.unwritten:
            self.settler.queue.put(settlements)
            return
        for settlement in settlements:
            self.logs.before(settlement.key, partial(self.settler.queue.put, [settlement]))

    def _settled(self, batch: list[Settlement], verdicts: list[str]) -> None:
        self._leases.drop(batch)
        self._lines.settled(batch, verdicts)
        for verdict, count in Counter(verdicts).items():
            self.verdicts[verdict] = self.verdicts.get(verdict, 0) + count
        self._on_room()
