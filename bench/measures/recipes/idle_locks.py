"""What locks cost that are held and not used, by server and client.

Invariant: one process holds all of them, and does nothing else. The time begins when the server has done what was due
after they were acquired. Beside it stands the cost of the same with one lock. Afterwards all of them are still held.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psycopg

from bench.adapter import Failed
from bench.machine import Cpu
from bench.measures.recipes.field import Coordinator, Field, begin, fresh_name, programs
from bench.report import Result, number
from bench.rounds import each, fill, interleaved, middle

SETTLE_S = 5.0


@dataclass(frozen=True)
class Idle:
    """Processor time in per cent of a core. `server`: 0 for a server that the benchmark did not start."""

    server: float
    client: float


def idle_locks(field: Field, contestants: Sequence[Coordinator], n: int, seconds: int, rounds: int) -> Result:
    """Measure in interleaved rounds; report medians."""
    counts = (1, n)
    found, absent = interleaved(
        "idle locks",
        contestants,
        rounds,
        lambda one: [measure(field, one, count, seconds) for count in counts],
        lambda got: "; ".join(f"server {one.server:.3f} %, client {one.client:.3f} %" for one in got),
    )
    columns = [""]
    for count in counts:
        columns += [f"{count:,} held, server: % of a core", "rounds", "client: % of a core", "rounds"]
    result = Result("recipes-idle", f"Locks that are held and not used, over {seconds} s", columns)
    data = {name: [[asdict(one) for one in got] for got in every] for name, every in found.items()}
    result.data = {"contestants": data, "absent": absent}

    def row(one: Coordinator) -> list[str]:
        got, cells = found[one.name], [one.label]
        for i in range(len(counts)):
            for value in (lambda of, i=i: of[i].server, lambda of, i=i: of[i].client):
                cells += [number(middle(got, value), 3), each(got, value, 3)]
        return cells

    fill(result, contestants, absent, row)
    result.notes.append("all in one process and one session; of Kazoo, ephemeral nodes")
    return result


def measure(field: Field, one: Coordinator, n: int, seconds: int) -> Idle:
    """Measure one round of one contestant."""
    name = fresh_name()
    with field.place(one) as dsn, programs(one, dsn, [("hold", {"name": name, "n": n})]) as [holder]:
        settle(field, one)
        before = used(field, one, holder.popen.pid)
        time.sleep(seconds)
        after = used(field, one, holder.popen.pid)
        begin([holder])
        held = holder.answer()["held"]
    if held != n:
        raise Failed(f"{one.name}: {n} locks were acquired, {held} are held")
    server, client = ((late - early) / seconds * 100 for early, late in zip(before, after, strict=True))
    return Idle(server, client)


def settle(field: Field, one: Coordinator) -> None:
    """Let the server write what it has to write."""
    if not one.needs_zookeeper:
        with psycopg.connect(field.postgresql.dsn, autocommit=True) as conn:
            conn.execute("CHECKPOINT")
    time.sleep(SETTLE_S)


def used(field: Field, one: Coordinator, client: int) -> tuple[float, float]:
    """Return the processor seconds of server and client so far."""
    server = field.cpu(one)
    return 0.0 if server is None else server.seconds, Cpu.of(client).seconds
