"""A client without a library, for contestants with an SQL function for enqueueing (`Contestant.sql`): psycopg only."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import psycopg

from bench.peers.record import dsn
from bench.peers.verbs import Adapter, main


class Sql(Adapter):
    """A client that only enqueues. Nothing else runs in its process, so it may block."""

    async def open(self) -> None:
        self.conn = psycopg.connect(dsn(), autocommit=True)
        self.statement = os.environ["BENCH_SQL"].encode()

    async def close(self) -> None:
        self.conn.close()

    async def enqueue(self, i: int) -> None:
        self.conn.execute(self.statement, [i])

    async def setup(self) -> None:
        raise NotImplementedError

    async def enqueue_many(self, numbers: Sequence[int]) -> None:
        raise NotImplementedError

    async def work(self, record: Callable[[int], None], sleep_s: float) -> None:
        raise NotImplementedError


if __name__ == "__main__":
    main(Sql())
