"""Backfills: preview one, ask the leader for one, watch and end one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from pgsched.core.model import Row
from pgsched.core.planning.backfill import Choice
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import backfills
from pgsched.db.queries.jobs.backfills import Range, Request
from pgsched.services.runs.waiting import EVERY_S, PATIENCE_S


@dataclass(frozen=True, slots=True)
class BackfillPreview:
    """A preview of a backfill: the range that is possible, and the decision for every slot in it."""

    range: Range
    choices: list[Choice]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Result of a cancel. `result`: `cancelled`, or `finished` for a backfill that had ended already."""

    id: int
    result: str

    @property
    def words(self) -> str:
        """The same as the end of a sentence about the backfill."""
        return "is cancelled" if self.result == "cancelled" else "had ended already"


def preview(conn: Connection[Any], job: str, request: Request) -> BackfillPreview:
    """Return every slot of a request with its decision as of now; nothing is written. Raises InputError."""
    return BackfillPreview(*backfills.preview_backfill(conn, job, request))


def start(conn: Connection[Any], job: str, request: Request) -> Row:
    """Ask the leader for a backfill; return it. Raises InputError."""
    return backfills.add_backfill(conn, job, request)


@dataclass(frozen=True, slots=True)
class Together:
    """Which jobs have part in a backfill besides its own."""

    upstream: bool = False
    downstream: bool = False

    def __bool__(self) -> bool:
        """Whether there may be others."""
        return self.upstream or self.downstream


@dataclass(frozen=True, slots=True)
class Several:
    """Backfills of several jobs as one thing, in their order; `left_out`: why other jobs have no part, by name."""

    backfills: list[Row]
    left_out: dict[str, str]


def preview_together(
    conn: Connection[Any], job: str, request: Request, others: Together
) -> tuple[list[BackfillPreview], dict[str, str]]:
    """Return the preview of each job's part, in their order, and why other jobs have none. Raises InputError."""
    plan = backfills.plan_in_order(conn, job, request, upstream=others.upstream, downstream=others.downstream)
    previews = [BackfillPreview(one, backfills.preview_range(conn, one, request)) for one in plan.ranges]
    return previews, plan.left_out


def start_together(conn: Connection[Any], job: str, request: Request, others: Together) -> Several:
    """Ask the leader for backfills of a job and of those before or behind it, in their order. Raises InputError."""
    plan = backfills.plan_in_order(conn, job, request, upstream=others.upstream, downstream=others.downstream)
    return Several(backfills.add_in_order(conn, plan, request), plan.left_out)


def watch(
    conn: Connection[Any], backfill_id: int, note: Callable[[str], object], every_s: float = EVERY_S
) -> Iterator[Row]:
    """Yield a backfill as it goes on, the last time when it has ended. `note`: called once if no process leads."""
    begun, is_noted = time.monotonic(), False
    while (found := backfills.show_backfill(conn, backfill_id))["finished_at"] is None:
        yield found
        if not found["leading"] and not is_noted and time.monotonic() - begun > PATIENCE_S:
            is_noted = True
            note("no live leader works on it; start a `pgsched worker`")
        time.sleep(every_s)
    yield found


def cancel(conn: Connection[Any], backfill_id: int, reason: str | None = None) -> Cancelled:
    """End a backfill and its open runs. Raises NotFound."""
    return Cancelled(backfill_id, backfills.cancel(conn, backfill_id, reason))
