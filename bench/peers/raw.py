"""The raw ceiling: a bare asyncio loop with batched claims and settlements, on two connections and a minimal table.

It does what any queue must do for a job: claim a row with a token under FOR UPDATE SKIP LOCKED, decode its JSON, run a
coroutine, and write the outcome under the same token. It has no leases, retries, policies, queues, wake-ups or
evidence. Claims and settlements overlap.

A settlement of several claims accepts a row under the token of any of these claims. So it leaves a row alone that
another worker has taken over. It would not leave a row alone that another claim of this worker has taken over. Here,
no worker takes rows over.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID, uuid4

import psycopg

from bench.peers.record import dsn
from bench.peers.verbs import Adapter, main
from pgsched import gc_tuning

TABLE = """
CREATE TABLE raw (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, priority smallint NOT NULL DEFAULT 5,
    state smallint NOT NULL DEFAULT 0, token uuid, finished_at timestamptz, payload jsonb NOT NULL
) WITH (fillfactor = {});
CREATE INDEX raw_open ON raw (priority, id) WHERE finished_at IS NULL
"""
CLAIM = """
WITH picked AS MATERIALIZED (
    SELECT id FROM raw WHERE finished_at IS NULL AND state = 0 AND (priority, id) > (5, %s)
    ORDER BY priority, id LIMIT %s FOR UPDATE SKIP LOCKED
)
UPDATE raw SET state = 1, token = %s FROM picked WHERE raw.id = picked.id RETURNING raw.id, raw.payload::text
"""
# Not a join with unnest: if the statistics have no claimed row, the planner reads the whole table for each batch.
SETTLE = """
UPDATE raw SET state = 2, finished_at = clock_timestamp()
WHERE id = ANY (%s::bigint[]) AND token = ANY (%s::uuid[]) AND state = 1
"""
AHEAD = 4
IDLE_S = 0.005
FULL_S, SHARE = 1.0, 20


class Raw(Adapter):
    """The raw ceiling, without a library. `batch`: rows of a claim; `fillfactor`: of a page, in per cent."""

    batch = 4000  # faster than 500, 1,000 and 2,000, measured in turns
    fillfactor = 37

    async def setup(self) -> None:
        async with await psycopg.AsyncConnection.connect(dsn()) as conn:
            await conn.execute(TABLE.format(self.fillfactor))

    async def open(self) -> None:
        self.conn = await psycopg.AsyncConnection.connect(dsn(), autocommit=True)

    async def close(self) -> None:
        await self.conn.close()

    async def enqueue(self, i: int) -> None:
        await self.conn.execute("INSERT INTO raw (payload) VALUES (%s::text::jsonb)", [json.dumps({"i": i})])

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        async with self.conn.cursor() as cursor, cursor.copy("COPY raw (payload) FROM STDIN") as copy:
            await copy.write("".join(f'{{"i": {i}}}\n' for i in numbers))

    async def work(self, record: Callable[[int], None], sleep_s: float) -> None:
        self.begin()
        self.record, self.sleep_s = record, sleep_s
        ready: asyncio.Queue[tuple[UUID, list[Any]]] = asyncio.Queue(1)
        done: asyncio.Queue[tuple[UUID, list[int]]] = asyncio.Queue(AHEAD)
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._claim(ready))
            parts.create_task(self._settle(done))
            while True:
                token, rows = await ready.get()
                for args in self.read([text for _, text in rows]):
                    await self._noop(**args)
                await done.put((token, [run for run, _ in rows]))

    def begin(self) -> None:
        """Prepare the process before anything is claimed."""
        gc_tuning.tune_for_long_run()  # as a pgsched worker does

    def read(self, texts: list[str]) -> list[dict[str, int]]:
        """Return the arguments of a batch, decoded together: a tenth of the time of decoding each by itself."""
        return list(json.loads(f"[{','.join(texts)}]"))

    async def _noop(self, i: int) -> None:
        self.record(i)
        if self.sleep_s:
            await asyncio.sleep(self.sleep_s)

    async def _claim(self, ready: asyncio.Queue[tuple[UUID, list[Any]]]) -> None:
        async with await psycopg.AsyncConnection.connect(dsn(), autocommit=True, prepare_threshold=1) as conn:
            await plan_by_index(conn)
            after, full_at = 0, 0.0
            while True:
                token, sent_at = uuid4(), time.monotonic()
                rows = await (await conn.execute(CLAIM, [after, self.batch, token])).fetchall()
                if rows:
                    await ready.put((token, rows))
                # The claim cursor: scan the dead beginning of the index at most once a second, and for at most a
                # twentieth of the time.
                if after == 0:
                    full_at = (now := time.monotonic()) + max(FULL_S, SHARE * (now - sent_at))
                after = max((run for run, _ in rows), default=after)
                if len(rows) < self.batch:
                    after = 0 if time.monotonic() >= full_at else after
                    await asyncio.sleep(IDLE_S)

    async def _settle(self, done: asyncio.Queue[tuple[UUID, list[int]]]) -> None:
        async with await psycopg.AsyncConnection.connect(dsn(), autocommit=True, prepare_threshold=1) as conn:
            await plan_by_index(conn)
            while True:
                batches = [await done.get()]
                while not done.empty():
                    batches.append(done.get_nowait())
                runs = [run for _, ids in batches for run in ids]
                settled = await conn.execute(SETTLE, [runs, [token for token, _ in batches]])
                if settled.rowcount != len(runs):
                    raise RuntimeError(f"{len(runs)} rows were run, {settled.rowcount} of them were still ours")


async def plan_by_index(conn: psycopg.AsyncConnection[Any]) -> None:
    """Make the planner read rows one by one through the index, whatever the statistics of a changing table say."""
    for way in ("seqscan", "hashjoin", "mergejoin"):
        await conn.execute(f"SET enable_{way} = off")


if __name__ == "__main__":
    main(Raw())
