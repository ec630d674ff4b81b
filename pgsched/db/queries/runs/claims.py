"""Claim, renew, settle: the three kinds of statements about who owns a run.

Invariant: each statement is safe to send twice. A claim's token is chosen before the statement is sent, so that the
worker can ask again after a lost answer. Every later write is fenced by (id, token, running).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter, lt
from typing import Any
from uuid import UUID, uuid4

from psycopg.rows import dict_row

from pgsched.config import CRASH_LIMIT
from pgsched.core import payload
from pgsched.core.model import DONE, SUCCEEDED, Claim, Claims, Key, Row, Settlement, keys_of
from pgsched.db import fleets
from pgsched.db.arrays import literal, plain
from pgsched.db.connection.connect import AsyncConnection, Connection
from pgsched.db.queries.runs.claim_rows import prepare, send_claim
from pgsched.db.rows import fetch
from pgsched.db.statements import sql

LOCKED = "locked"
RUN, OUTCOME = itemgetter(Settlement._fields.index("id")), itemgetter(Settlement._fields.index("outcome"))
TOKEN = itemgetter(1)  # of a pair (run id, token)
FROM_THE_START: Mapping[str, str] = {
    "priorities": plain(range(10)),
    "after_ats": plain(["-infinity"] * 10),
    "after_ids": plain([0] * 10),
}


@dataclass(frozen=True, slots=True)
class WorkerOffer:
    """What a worker may run: all runs of `kinds`, and the Python `tasks` that its app registered.

    `with_outside_names`: claims include the name that each run has outside of the database
    `values`: all of this as parameters
    """

    worker_id: int
    lease_s: float
    kinds: list[str]
    tasks: list[str]
    with_outside_names: bool = False
    values: Mapping[str, object] = field(init=False)

    def __post_init__(self) -> None:
        kinds, tasks = literal(self.kinds), literal(self.tasks)
        values = {"worker_id": self.worker_id, "lease_s": self.lease_s, "kinds": kinds, "tasks": tasks}
        object.__setattr__(self, "values", values | {"named": self.with_outside_names})


async def claim(
    conn: AsyncConnection[Any],
    wanted: WorkerOffer,
    queue: str,
    n: int,
    token: UUID,
    span: Mapping[str, str] = FROM_THE_START,
    places: int = 0,
) -> Claims:
    """Claim up to `n` queued runs of `queue` whose keys lie in `span`, which a claim cursor gives.

    `places`: how many places of the worker are free now.
    """
    values = {"queue": queue, "n": n, "places": places, "token": token, **wanted.values, **span}
    text = sql("claim_start") if span is FROM_THE_START else sql("claim")
    return await send_claim(conn, text, values, token, queue)


async def plan_claims(
    conn: AsyncConnection[Any],
    wanted: WorkerOffer,
    spans: Sequence[Mapping[str, str]] = (FROM_THE_START, {**FROM_THE_START}),
) -> None:
    """Let the server plan the claiming statements on this connection, by claims of 0 runs of the queue ''.

    Otherwise the first claims would wait longer for their plans than they take.
    """
    for span in spans:
        await claim(conn, wanted, "", 0, uuid4(), span)


async def plan_settlements(conn: AsyncConnection[Any]) -> None:
    """Let the server plan, on this connection, the statement that settles."""
    await settle_succeeded(conn, success_parameters([], []))


async def claim_many(
    conn: AsyncConnection[Any], wanted: WorkerOffer, queues: Sequence[str], n: int, token: UUID, places: int = 0
) -> Claims:
    """Claim up to `n` queued runs of these queues, of the first queues first. `places`: as in `claim`."""
    values = {"queues": literal(queues), "queue": "", "n": n, "places": places, "token": token, **wanted.values}
    found = await send_claim(conn, sql("claim_many"), values, token, "")
    # a run with only one attempt was claimed for a free place and begins at once: before those of other queues
    found.sort(key=lambda claim: claim.max_attempts > 1)
    return found


async def claim_unconfirmed(conn: AsyncConnection[Any], queues: Sequence[str], token: UUID) -> Claims:
    """Return the claims that an earlier claim of these queues with this token made; its answer was lost."""
    queue = queues[0] if len(queues) == 1 else ""
    values = {"queues": literal(queues), "queue": queue, "token": token, "named": False}
    return await send_claim(conn, sql("claim_unconfirmed"), values, token, queue)


async def lease_left(conn: AsyncConnection[Any], claims: Sequence[Claim]) -> float | None:
    """Return for how many seconds the first of these claims, all of one token, is still valid; None: none is."""
    values = {"ids": plain(map(RUN, claims)), "token": claims[0].token}
    async with conn.cursor(row_factory=dict_row) as cursor:
        (row,) = await (await cursor.execute(sql("claim_lease_left"), values)).fetchall()
    left_s: float | None = row["left_s"]
    return left_s


async def settle_succeeded(conn: AsyncConnection[Any], values: Mapping[str, str | None]) -> int:
    """Record attempts that succeeded; return how many of these claims were still ours."""
    cursor = await conn.execute(sql("settle_succeeded"), values, prepare=prepare(conn))
    return cursor.rowcount


async def settle(
    conn: AsyncConnection[Any], batch: Sequence[Settlement], worker: str, crash_limit: int = CRASH_LIMIT
) -> list[str]:
    """Record a batch of outcomes; return for each the run's new state, 'repeated' or 'lost'.

    A run that has crashed `crash_limit` times is not tried again.
    """
    order = sorted(batch, key=RUN)
    if list(map(OUTCOME, order)).count(DONE) == len(order):  # the usual case, and quick to find out
        succeeded = order
    else:
        succeeded = [s for s in order if s.outcome.result is SUCCEEDED]
    ids = list(map(RUN, succeeded))
    if not all(map(lt, ids, ids[1:])):  # two claims of one run: the statement `settle` finds which one is ours
        succeeded = []
    verdicts: dict[Key, str] = {}
    ours = 0
    if succeeded:
        given = None if succeeded is order else results(succeeded)
        tokens, values = [s.token for s in succeeded], None if given is None else json_array(given)
        ours = await settle_succeeded(conn, success_parameters(ids, tokens, values))
        if ours == len(batch):
            return ["succeeded"] * ours
        if ours == len(succeeded):
            verdicts.update(dict.fromkeys(keys_of(succeeded), "succeeded"))
    others = [s for s in order if s.outcome.result is not SUCCEEDED] if succeeded else order
    if others:
        parameters = {**settlement_fences(others), **evidence(others), "worker": worker, "crash_limit": crash_limit}
        async with conn.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(sql("settle"), parameters)
            verdicts.update((others[row["n"] - 1].key, row["state"]) for row in await cursor.fetchall())
    missing = [s for s in order if s.key not in verdicts]
    if missing:
        async with conn.cursor(row_factory=dict_row) as cursor:
            found = await (await cursor.execute(sql("settle_missing"), settlement_fences(missing))).fetchall()
        for row in found:
            s, verdict = missing[row["n"] - 1], row["verdict"]
            # A batch is repeated as a whole. If some claims were still ours, this statement recorded the success (or a
            # handler's own transaction did, a moment before).
            now = verdict == "repeated" and ours > 0 and s.outcome.result is SUCCEEDED
            verdicts[s.key] = "succeeded" if now else verdict
    return [verdicts[s.key] for s in batch]


async def settle_unlocked(
    conn: AsyncConnection[Any], batch: Sequence[Settlement], worker: str, crash_limit: int = CRASH_LIMIT
) -> list[str]:
    """Do what `settle` does, but wait for no lock: where another session has locked a run, its verdict is LOCKED."""
    async with conn.transaction():
        async with conn.cursor(row_factory=dict_row) as cursor:
            await cursor.execute(sql("settle_lock"), settlement_fences(batch))
            locked = {row["n"] - 1 for row in await cursor.fetchall() if row["locked"]}
        free = [s for n, s in enumerate(batch) if n not in locked]
        verdicts = iter(await settle(conn, free, worker, crash_limit) if free else [])
        return [LOCKED if n in locked else next(verdicts) for n in range(len(batch))]


def settlement_fences(batch: Sequence[Settlement]) -> dict[str, str]:
    """Return the fences of settlements, as `fences` does."""
    return fences(keys_of(batch))


def fences(keys: Iterable[Key]) -> dict[str, str]:
    """Return keys of claims as the parallel arrays `ids` and `tokens`."""
    keys = list(keys)
    texts: dict[int, str] = {}  # many claims share a token
    tokens = [texts.get(token) or texts.setdefault(token, f"{token:032x}") for _, token in keys]
    return {"ids": plain([run_id for run_id, _ in keys]), "tokens": plain(tokens)}


def success_parameters(ids: Sequence[int], tokens: Sequence[UUID], values: str | None = None) -> dict[str, str | None]:
    """Return the parameters of `settle_succeeded`. `ids`: ascending, none twice; `values`: results as a JSON array."""
    stretches = [(next(runs)[0], token.hex) for token, runs in groupby(zip(ids, tokens, strict=True), TOKEN)]
    firsts, each = zip(*stretches, strict=True) if stretches else ((), ())
    return {"ids": plain(ids), "firsts": plain(firsts), "tokens": plain(each), "results": values}


def json_array(texts: Iterable[str | None]) -> str:
    """Return JSON texts as the text of a JSON array, None as null."""
    return "[" + ",".join([text or "null" for text in texts]) + "]"


def results(batch: Sequence[Settlement]) -> list[str | None] | None:
    """Return the results as JSON texts; None when no attempt has one."""
    values = [s.outcome.value for s in batch]
    if values.count(None) == len(values):
        return None
    return [None if value is None else payload.encode(value) for value in values]


def evidence(batch: Sequence[Settlement]) -> dict[str, Any]:
    """Return what is kept of attempts that did not succeed, as parallel arrays."""
    return {
        "outcomes": [str(s.outcome.result) for s in batch],
        "retry_ins": [s.retry_in_s for s in batch],
        "results": results(batch),
        "errors": [s.outcome.error for s in batch],
        "tracebacks": [s.outcome.traceback for s in batch],
        "log_tails": [s.outcome.log_tail for s in batch],
    }


@dataclass(frozen=True, slots=True)
class Vitals:
    """What a worker reports of itself with each heartbeat.

    `begun`: the attempts that are being made; `abandoned`: how many attempts do not stop and have lost their places
    `blocked`: for how many seconds the event loop has not turned, and what blocks it; None: it turns
    """

    begun: frozenset[Key] = frozenset()
    abandoned: int = 0
    stopping: bool = False
    blocked: tuple[float, str] | None = None


NO_VITALS = Vitals()


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The result of one heartbeat. A claim that is neither in `renewed` nor in `unsure` is lost.

    `renewed`: the claims whose leases were renewed; `unsure`: those whose rows another session has locked
    `cancel`: those of both whose cancellation was requested
    `known`: the database knows the worker; `drain_by`: who asked the worker to drain, None: no request
    """

    renewed: frozenset[Key]
    unsure: frozenset[Key]
    cancel: frozenset[Key]
    known: bool
    drain_by: str | None


def find_cancelled(conn: Connection[Any], claim_keys: Sequence[Key]) -> tuple[list[Key], frozenset[Key]]:
    """Return the held claims that were taken away, and those whose cancellation was requested."""
    found = fetch(conn, "cancel_asked", fences(claim_keys))
    return [key_of(row) for row in found if not row["cancel"]], frozenset(key_of(row) for row in found if row["cancel"])


def heartbeat(
    conn: Connection[Any],
    worker_id: int,
    lease_s: float,
    claim_keys: Sequence[Key],
    vitals: Vitals = NO_VITALS,
    *,
    name: str = "",
) -> HeartbeatResult:
    """Renew the lease of every held claim, and the row of the worker with this id and `name`."""
    values = {
        "worker_id": worker_id,
        "name": name,
        "fleet": fleets.expected_fleet(conn),
        "lease_s": lease_s,
        "running": len(claim_keys),
        "abandoned": vitals.abandoned,
        "stopping": vitals.stopping,
        "blocked_s": vitals.blocked and vitals.blocked[0],
        "blocked_by": vitals.blocked and vitals.blocked[1],
        "clock_s": time.time(),
        **fences(claim_keys),
        "begun": plain(["t" if key in vitals.begun else "f" for key in claim_keys]),
    }
    found = fetch(conn, "heartbeat", values)
    rows, mine = [row for row in found if row["id"] is not None], [row for row in found if row["id"] is None]
    return HeartbeatResult(
        renewed=frozenset(key_of(row) for row in rows if row["renewed"]),
        unsure=frozenset(key_of(row) for row in rows if not row["renewed"]),
        cancel=frozenset(key_of(row) for row in rows if row["cancel"]),
        known=bool(mine),
        drain_by=str(mine[0]["asked_by"]) if mine and mine[0]["cancel"] else None,
    )


def key_of(row: Row) -> Key:
    """Return the key of the claim that a row names."""
    return row["id"], row["token"].int
