"""`many-queues`: what an idle worker costs beside many queues, and how soon it starts a run in one of them.

Invariant: each queue holds one run of a task that the worker does not know. So the worker has to look at every queue,
and may take none of these runs. The worker has default settings and no leader. CPU time is the kernel's, after SETTLE_S
seconds. Then one run at a time is enqueued into a random queue; its time is from `created_at` to `started_at`.

    python -m bench many-queues
    python -m bench many-queues --quick     (100 queues: shows that it runs; the figures mean nothing)
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import psycopg

from bench.adapter import call, wait_for, workers
from bench.contestants import PGSCHED
from bench.measures.idle import usage
from bench.report import Result, log_step, number
from bench.server import Server, scalar

SETTLE_S = 20.0
RUNS = 100
CPU_BOUND, PICK_UP_MS = 0.05, 50.0
FOREIGN = "INSERT INTO pgsched.runs (task, queue) SELECT 'nobody.knows', 'queue-' || n FROM generate_series(1, %s) n"
ENQUEUE = "SELECT pgsched.enqueue('noop', queue => %s)"
STARTED = "SELECT count(*) FROM pgsched.runs WHERE task = 'noop' AND started_at IS NOT NULL"
WAITS = """
SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY wait_ms), max(wait_ms)
FROM (SELECT 1000 * extract(epoch FROM started_at - created_at)::float8 AS wait_ms
      FROM pgsched.runs WHERE task = 'noop') w
"""


@dataclass(frozen=True)
class Looked:
    """CPU time as a share of one core; milliseconds from enqueue to start."""

    queues: int
    worker_cpu: float
    server_cpu: float | None
    pick_up_p50_ms: float
    pick_up_max_ms: float


def many_queues(server: Server, counts: Sequence[int], seconds: float) -> Result:
    """Measure each number of queues."""
    columns = ["queues", "worker's processor", "server's processor", "pick-up p50", "pick-up max"]
    result = Result("many-queues", f"An idle worker beside many queues, over {seconds:.0f} s", columns)
    result.notes.append(f"the bounds are {CPU_BOUND:.0%} of a core for the worker and {PICK_UP_MS:.0f} ms for p50")
    for count in counts:
        got = measure(server, count, seconds)
        log_step(f"many-queues, {count:,}: {got.worker_cpu:.1%} of a core, p50 {got.pick_up_p50_ms:.1f} ms")
        result.rows.append(
            [
                f"{count:,}",
                number(got.worker_cpu * 100, 2, " % of a core"),
                number(None if got.server_cpu is None else got.server_cpu * 100, 2, " % of a core"),
                number(got.pick_up_p50_ms, 1, " ms"),
                number(got.pick_up_max_ms, 1, " ms"),
            ]
        )
        result.data[str(count)] = asdict(got)
    return result


def measure(server: Server, count: int, seconds: float) -> Looked:
    """Measure this many queues in a fresh database."""
    chosen = random.Random(1)
    with server.database("many_queues") as dsn:
        call(PGSCHED, "setup", dsn)
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute(FOREIGN, [count])
            conn.execute("VACUUM ANALYZE")
            with workers(PGSCHED, dsn, 1, n=RUNS, flags='["--no-leader"]') as started:
                wait_for(lambda: scalar(conn, "SELECT count(*) FROM pgsched.workers"), started, 600, "the worker")
                time.sleep(SETTLE_S)
                before, server_before = usage(started), server.cpu()
                time.sleep(seconds)
                after, server_after = usage(started), server.cpu()
                for n in range(1, RUNS + 1):
                    conn.execute(ENQUEUE, [f"queue-{chosen.randint(1, count)}"])
                    wait_for(lambda n=n: scalar(conn, STARTED) == n, started, 60, f"run {n}")
                    time.sleep(chosen.uniform(0, 0.3))  # so that the time since the worker's last look varies
            row = conn.execute(WAITS).fetchone()
            assert row is not None
    return Looked(
        count,
        (after.seconds - before.seconds) / seconds,
        None
        if server_before is None or server_after is None
        else (server_after.seconds - server_before.seconds) / seconds,
        *row,
    )
