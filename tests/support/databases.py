"""A database for each test, created while the previous test runs, because creation takes longer than many tests."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo


class Databases:
    """Databases copied from a template, and dropped later, by one thread with one connection.

    An error of that thread is raised by the next call.
    """

    def __init__(self, server_dsn: str, session: str, template: str) -> None:
        self._dsn, self._session, self._template = server_dsn, session, template
        self._thread = ThreadPoolExecutor(1, "databases")
        self._connection = psycopg.connect(server_dsn, autocommit=True)
        # Copying the files takes a third of the time that writing their pages to the WAL takes.
        self._strategy = " STRATEGY FILE_COPY" if self._connection.info.server_version >= 150_000 else ""
        self._next: Future[str] | None = None
        self._drops: list[Future[None]] = []

    @contextmanager
    def one(self) -> Iterator[str]:
        """Yield the DSN of a fresh database; drop it afterwards, even if sessions are still connected."""
        self._check()
        made, self._next = self._next or self._thread.submit(self._create), None
        name = made.result()
        self._next = self._thread.submit(self._create)
        try:
            yield make_conninfo(self._dsn, dbname=name)
        finally:
            self._drops.append(self._thread.submit(self._drop, name))

    def close(self) -> None:
        """Drop the database that was created ahead, and wait for all drops."""
        if self._next is not None:
            self._drops.append(self._thread.submit(self._drop, self._next.result()))
        self._thread.shutdown()
        self._connection.close()
        self._check()

    def _check(self) -> None:
        ended = [drop for drop in self._drops if drop.done()]
        self._drops = [drop for drop in self._drops if not drop.done()]
        for drop in ended:
            drop.result()

    def _create(self) -> str:
        name = f"pgsched_test_{self._session}_{uuid.uuid4().hex[:8]}"
        words = sql.SQL("CREATE DATABASE {} TEMPLATE {}" + self._strategy)
        self._connection.execute(words.format(sql.Identifier(name), sql.Identifier(self._template)))
        return name

    def _drop(self, name: str) -> None:
        self._connection.execute(sql.SQL("DROP DATABASE IF EXISTS {} WITH (FORCE)").format(sql.Identifier(name)))
