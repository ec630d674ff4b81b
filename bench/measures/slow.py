"""`slow`: a task of 50 ms at concurrency 100; the share of the ideal 2,000 runs/s.

Invariant: runs are queued beforehand, for one worker process, with concurrency 100 for every contestant. The rate
counts between 10 % and 90 % of all runs. So neither the start counts, nor the last runs, which have fewer runs beside
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import psycopg

from bench.adapter import call
from bench.contestants import RAW, RAW_500, STATEMENTS, Contestant
from bench.measures.drain import Drained, drained, steady
from bench.report import Result, number
from bench.rounds import against, each, fill, interleaved, middle
from bench.server import Server

TASK_MS = 50
CONCURRENCY = 100
IDEAL = CONCURRENCY * 1000 / TASK_MS


def slow(server: Server, contestants: Iterable[Contestant], seconds: int, rounds: int = 1) -> Result:
    """Measure in interleaved rounds; report medians, and ratios within each round."""
    contestants = [one for one in contestants if one not in (RAW, RAW_500, STATEMENTS)]  # these run one at a time
    n = int(IDEAL * seconds)
    found, absent = interleaved(
        "slow", contestants, rounds, lambda one: measure(server, one, n), lambda got: f"{got.steady:,.0f}/s"
    )
    title = f"A task of {TASK_MS} ms, concurrency {CONCURRENCY}, {n:,} runs"
    columns = ["", "runs/s", "rounds", f"of the ideal {IDEAL:,.0f}/s", "pgsched / this one", "deadlocks"]
    result = Result("slow", title, columns)
    result.data = {"contestants": {name: [asdict(one) for one in got] for name, got in found.items()}, "absent": absent}
    fill(result, contestants, absent, lambda one: row(one, found))
    return result


def row(one: Contestant, found: dict[str, list[Drained]]) -> list[str]:
    """Return one row of the table."""
    got = found[one.name]
    rate = middle(got, steady)
    return [
        one.label,
        number(rate),
        each(got, steady),
        number(rate / IDEAL * 100, 1, " %"),
        against(found, one, steady),
        number(sum(turn.deadlocks for turn in got)),
    ]


def measure(server: Server, contestant: Contestant, n: int) -> Drained:
    """Measure one contestant in a fresh database."""
    settings = {"concurrency": CONCURRENCY, "sleep_ms": TASK_MS}
    with server.database(contestant.name) as dsn, psycopg.connect(dsn, autocommit=True) as look:
        call(contestant, "setup", dsn, **settings)
        call(contestant, "bulk", dsn, n=n)
        return drained(look, contestant, dsn, n, 1, **settings)
