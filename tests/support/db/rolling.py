"""A transaction that ends runs while they are counted."""

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
