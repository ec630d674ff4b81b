"""`slow`: a task of 50 ms at concurrency 100; the share of the ideal 2,000 runs/s.

The rule: queued beforehand, one worker process, concurrency 100 for everyone; the rate between 10 % and 90 % of all
runs, so that neither the start nor the last ones, which have fewer beside them, count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import psycopg

from bench.adapter import call
from bench.contestants import RAW, Contestant
from bench.drain import Drained, drained
from bench.report import Result, number
from bench.rounds import interleaved
from bench.server import Server

TASK_MS = 50
CONCURRENCY = 100
IDEAL = CONCURRENCY * 1000 / TASK_MS


def slow(server: Server, contestants: Iterable[Contestant], seconds: int) -> Result:
    """Each contestant once."""
    contestants = [one for one in contestants if one is not RAW]  # it runs one at a time
    n = int(IDEAL * seconds)
    found, absent = interleaved(
        "slow", contestants, 1, lambda one: measure(server, one, n), lambda got: f"{got.steady:,.0f}/s"
    )
    title = f"A task of {TASK_MS} ms, concurrency {CONCURRENCY}, {n:,} runs"
    result = Result("slow", title, ["", "runs/s", f"of the ideal {IDEAL:,.0f}/s"])
    for one in contestants:
        if one.name in absent:
            result.rows.append(result.absent(one.label, absent[one.name]))
        else:
            steady = found[one.name][0].steady
            result.rows.append([one.label, number(steady), number(steady / IDEAL * 100, 1, " %")])
    result.data = {"contestants": {name: asdict(got[0]) for name, got in found.items()}, "absent": absent}
    return result


def measure(server: Server, contestant: Contestant, n: int) -> Drained:
    """One contestant, in a fresh database."""
    settings = {"concurrency": CONCURRENCY, "sleep_ms": TASK_MS}
    with server.database(contestant.name) as dsn, psycopg.connect(dsn, autocommit=True) as look:
        call(contestant, "setup", dsn, **settings)
        call(contestant, "bulk", dsn, n=n)
        return drained(look, contestant, dsn, n, 1, **settings)
