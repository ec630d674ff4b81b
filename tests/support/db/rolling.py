"""The function with which the leader's duties begin transactions, for a test's connection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg


def begin(db: psycopg.Connection) -> Any:
    @contextmanager
    def transaction() -> Iterator[psycopg.Connection[Any]]:
        with db.transaction():
            yield db

    return transaction
