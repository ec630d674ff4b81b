"""The rows of `workers`: who is there, what they can run, when they were last seen."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Any

from pgsched.db.connect import Connection
from pgsched.db.statements import sql


@dataclass(frozen=True, slots=True)
class Registration:
    """What a worker says of itself at start."""

    name: str
    version: str
    app: str | None
    concurrency: int
    queues: list[str] | None
    kinds: list[str]
    tasks: list[str]
    lease_s: float


def start(conn: Connection[Any], registration: Registration) -> int:
    """Register this process; returns the worker's id."""
    values = {name: getattr(registration, name) for name in Registration.__slots__}
    row = conn.execute(sql("worker_start"), {**values, "hostname": socket.gethostname(), "pid": os.getpid()}).fetchone()
    assert row is not None
    return int(row[0])


def stop(conn: Connection[Any], worker_id: int, *, stopped: bool) -> None:
    """Say that the worker is stopping, or gone."""
    conn.execute(sql("worker_stop"), {"worker_id": worker_id, "stopped": stopped})
