"""Item queues in tests: end the sessions of consumers, put, wait, and consume what is there."""

from __future__ import annotations

from uuid import UUID, uuid4

import psycopg

from pgsched.recipes.items.item_queue import ItemQueue
from tests.support.logins import one


def end_sessions(db: psycopg.Connection) -> None:
    """Let the time of all sessions be over, as if their processes had stood still."""
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() - interval '1 ms'")
    db.execute("UPDATE pgsched.item_queues SET looked_at = '-infinity'")


def values(queue: ItemQueue, count: int) -> list[object]:
    got = [queue.get(0) for _ in range(count)]
    queue.consume_many(got)
    return [item.value for item in got]


def put(db: psycopg.Connection, count: int = 1) -> None:
    """Put so many items into the queue `q`."""
    db.execute("SELECT pgsched.item_put_many('q', array_fill('1'::jsonb, ARRAY[%s::int]))", [count])


def waits(db: psycopg.Connection, mine: UUID) -> str:
    """Let a session wait for an item of the queue `q`; return its channel."""
    db.execute("SELECT FROM pgsched.item_get('q', %s, %s, wait => true)", [uuid4(), mine])
    return f"pgsched_session_{one(db, 'SELECT id FROM pgsched.sessions WHERE token = %s', mine)}"
