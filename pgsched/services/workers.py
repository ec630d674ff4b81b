"""Live workers: find one by its name or id, and make it drain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from pgsched.core.model import Row
from pgsched.core.text import did_you_mean
from pgsched.db.connection.connect import Connection
from pgsched.errors import NotFound
from pgsched.services import pauses
from pgsched.services.charts import list_live_workers


def find_worker(conn: Connection[Any], name: str) -> Row:
    """Return the live worker with this name or id. Raises NotFound, with names that may have been meant."""
    alive = list_live_workers(conn)
    for worker in alive:
        if name in (worker["name"], str(worker["id"])):
            return worker
    hint = did_you_mean(name, [worker["name"] for worker in alive])
    raise NotFound(f'there is no live worker "{name}"{hint or "; `pgsched worker list` shows those that are alive"}')


def list_undrained(conn: Connection[Any]) -> list[Row]:
    """Return the live workers that do not drain yet, nor were asked to."""
    return [worker for worker in list_live_workers(conn) if not (worker["stopping"] or worker["drain_asked"])]


def find_joined(conn: Connection[Any]) -> set[int]:
    """Return the ids of the live workers that share a process with another one, and so drain together with it."""
    alive = list_live_workers(conn)
    count = Counter((worker["hostname"], worker["pid"]) for worker in alive)
    return {worker["id"] for worker in alive if count[worker["hostname"], worker["pid"]] > 1}


def drain_workers(conn: Connection[Any], found: Iterable[Row], by: str | None = None) -> list[Row]:
    """Make these workers take no more runs and end; return their rows, without workers that have gone meanwhile."""
    drained = []
    for worker in found:
        with suppress(NotFound):
            pauses.drain(conn, worker["id"], by)
            drained.append(worker)
    return drained
