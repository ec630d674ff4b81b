"""`roles`: what row security costs the hot path, in CPU time of the server process that works for it.

Invariant: the same statements run on two databases: as the owner of one without roles, and as a login with the worker's
role in another one where roles are in force. Both alternate, and so does which comes first. This needs Linux, and a
server on this host.
"""

from __future__ import annotations

import asyncio
import statistics
import uuid
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from bench.machine import cpu_s
from bench.report import Result, log_step, number
from bench.server import Server
from pgsched import App
from pgsched.core.model import DONE, Claim, Settlement
from pgsched.db.connection.connect import BY_KEY, AsyncConnection, aconnect
from pgsched.db.queries.runs.claims import WorkerOffer, claim, settle
from pgsched.db.schema import migrate

BATCH = 200
PHASES = ("enqueue", "claim", "settle")

app = App("bench-roles")


@app.task(name="noop")
def noop() -> None: ...


async def spent(conn: AsyncConnection[object], work: Callable[[], Awaitable[object]]) -> float:
    """Return the server's CPU time of some work, in microseconds."""
    pid = conn.info.backend_pid
    before = cpu_s(pid)
    await work()
    return (cpu_s(pid) - before) * 1e6


async def one_round(conn: AsyncConnection[object], n: int) -> dict[str, float]:
    """Enqueue `n` runs one by one, claim and settle them in batches; return the CPU time per run, in microseconds."""
    wanted = WorkerOffer(1, 60.0, [], ["noop"])
    taken: list[list[Claim]] = []

    async def make() -> None:
        for _ in range(n):
            await noop.enqueue_async(connection=conn)

    async def take() -> None:
        while claims := await claim(conn, wanted, "default", BATCH, uuid4()):
            taken.append(claims)

    async def end() -> None:
        for claims in taken:
            verdicts = await settle(conn, [Settlement.of(one, DONE) for one in claims], "bench")
            assert set(verdicts) == {"succeeded"}, verdicts

    found = {name: await spent(conn, work) / n for name, work in zip(PHASES, (make, take, end), strict=True)}
    assert sum(map(len, taken)) == n
    return found


def roles(server: Server, n: int, rounds: int) -> Result:
    """Report the medians of the rounds, and of their ratios."""
    mark = uuid.uuid4().hex[:8]
    owner, worker = f"bench_owner_{mark}", f"bench_worker_{mark}"
    with ExitStack() as held, psycopg.connect(server.dsn, autocommit=True) as admin:
        for name in (owner, worker):
            admin.execute(sql.SQL("CREATE ROLE {} LOGIN PASSWORD 'x'").format(sql.Identifier(name)))
            held.callback(drop, server.dsn, name)
        plain, guarded = (held.enter_context(server.database(name)) for name in ("plain", "guarded"))
        dbname = sql.Identifier(str(conninfo_to_dict(plain)["dbname"]))
        admin.execute(sql.SQL("ALTER DATABASE {} OWNER TO {}").format(dbname, sql.Identifier(owner)))
        as_owner = make_conninfo(plain, user=owner, password="x")
        migrate.upgrade(as_owner)
        migrate.upgrade(guarded, with_roles=True)
        admin.execute(sql.SQL("GRANT pgsched_worker TO {}").format(sql.Identifier(worker)))
        pairs = asyncio.run(take_turns(as_owner, make_conninfo(guarded, user=worker, password="x"), n, rounds))
    return told(pairs, n)


async def take_turns(plain: str, guarded: str, n: int, rounds: int) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Return the figures of each round: without roles, with them."""
    conns = [
        await aconnect(dsn, purpose="bench", settings=BY_KEY | {"synchronous_commit": "off"})
        for dsn in (plain, guarded)
    ]
    pairs = []
    for conn in conns:
        await one_round(conn, n)  # warm up plans and caches
    for turn in range(rounds):
        found: dict[int, dict[str, float]] = {}
        for which in (0, 1)[:: 1 if turn % 2 == 0 else -1]:
            found[which] = await one_round(conns[which], n)
        pairs.append((found[0], found[1]))
        totals = [sum(found[which].values()) for which in (0, 1)]
        log_step(f"roles: without {totals[0]:.1f} us a run, with {totals[1]:.1f} us")
    for conn in conns:
        await conn.close()
    return pairs


def told(pairs: list[tuple[dict[str, float], dict[str, float]]], n: int) -> Result:
    result = Result("roles", f"Row security: {len(pairs)} rounds of {n:,} runs", ["", "without", "with", "cost"])
    for name in (*PHASES, "a run"):
        totals = [[sum(one.values()) if name == "a run" else one[name] for one in pair] for pair in pairs]
        without, within = (statistics.median(pair[which] for pair in totals) for which in (0, 1))
        cost = statistics.median(b / a for a, b in totals) - 1
        result.rows.append([name, f"{number(without, 1)} us", f"{number(within, 1)} us", f"{100 * cost:+.1f} %"])
        result.data[name] = {"without_us": without, "with_us": within, "cost": cost}
    result.notes.append("CPU time of the server process; the median of the rounds' ratios is the cost")
    return result


def drop(dsn: str, name: str) -> None:
    """Remove a login."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(sql.SQL("DROP ROLE IF EXISTS {}").format(sql.Identifier(name)))
