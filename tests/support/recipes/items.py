"""Item queues in tests: end the sessions of consumers, and consume what is there."""

from __future__ import annotations

import psycopg

from pgsched.recipes.items.item_queue import ItemQueue


def end_sessions(db: psycopg.Connection) -> None:
    """Let the time of all sessions be over, as if their processes had stood still."""
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() - interval '1 ms'")
    db.execute("UPDATE pgsched.item_queues SET looked_at = '-infinity'")


def values(queue: ItemQueue, count: int) -> list[object]:
    got = [queue.get(0) for _ in range(count)]
    queue.consume_many(got)
    return [item.value for item in got]
