"""A process that has seen a newer timeline of a cluster never connects to an older one."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from pgsched.db.connection import failover

PAIR = "host=a,b port=5432,5433 dbname=x"


class Server:
    """A connection that only answers where it leads: its cluster and timeline, or no row for a standby."""

    def __init__(self, host: str, found: tuple[str, int] | None) -> None:
        self.info = type("Info", (), {"host": host, "port": 5432})()
        self.found, self.closed = found, False

    def execute(self, _: str) -> Server:
        return self

    def fetchone(self) -> tuple[str, int] | None:
        return self.found

    def close(self) -> None:
        self.closed = True


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failover, "_newest", {})


def world(**timelines: int | None) -> Any:
    """Return a `connect` that connects as libpq does: to the first host that is up.

    `timelines`: the timeline of each host that is up; None for a standby.
    """

    def connect(conninfo: str) -> Any:
        for host in str(conninfo_to_dict(conninfo)["host"]).split(","):
            if host in timelines:
                found = timelines[host]
                return Server(host, None if found is None else ("cluster", found))
        raise psycopg.OperationalError("nobody is there")

    return connect


def test_each_server_has_its_own_connection_string() -> None:
    given = [conninfo_to_dict(one) for one in failover.servers(PAIR)]
    assert [(one["host"], one["port"], one["dbname"]) for one in given] == [("a", "5432", "x"), ("b", "5433", "x")]
    (one,) = failover.servers("host=a port=1")
    assert conninfo_to_dict(one) == {"host": "a", "port": "1"}
    assert [conninfo_to_dict(one)["port"] for one in failover.servers("host=a,b port=7")] == ["7", "7"]
    assert len(failover.servers("dbname=x")) == 1


def test_an_old_primary_that_comes_back_is_passed_over() -> None:
    assert failover.primary(PAIR, world(a=1)).info.host == "a"
    assert failover.primary(PAIR, world(b=2)).info.host == "b", "after the failover"
    assert failover.primary(PAIR, world(a=1, b=2)).info.host == "b", "the old one is back"


def test_an_old_primary_is_refused_even_if_no_other_server_is_up() -> None:
    failover.primary(PAIR, world(b=2))
    with pytest.raises(psycopg.OperationalError, match="old primary"):
        failover.primary(PAIR, world(a=1))


def test_a_new_process_accepts_the_first_primary_it_finds() -> None:
    assert failover.primary(PAIR, world(a=1, b=2)).info.host == "a", "hence the survey at the start of a worker"


def test_a_dsn_with_one_server_accepts_any_timeline() -> None:
    failover.primary(PAIR, world(b=2))
    assert failover.primary("host=a", world(a=1)).info.host == "a"


def test_another_cluster_has_timelines_of_its_own() -> None:
    assert not failover.note_timeline(("one", 5))
    assert not failover.note_timeline(("two", 1))
    assert failover.note_timeline(("one", 4))
    assert not failover.note_timeline(None)


class Refusing(Server):
    """A connection whose first statement fails."""

    def __init__(self, error: BaseException) -> None:
        super().__init__("a", None)
        self.error = error

    def execute(self, _: str) -> Server:
        raise self.error


class AsyncRefusing(Refusing):
    async def execute(self, _: str) -> Server:  # type: ignore[override]
        raise self.error

    async def close(self) -> None:  # type: ignore[override]
        self.closed = True


ERRORS = [psycopg.errors.QueryCanceled("timeout"), psycopg.errors.UndefinedTable("odd"), KeyboardInterrupt()]


@pytest.mark.parametrize("error", ERRORS)
def test_a_connection_that_does_not_answer_is_closed(error: BaseException) -> None:
    conn: Any = Refusing(error)
    with pytest.raises(type(error)):
        failover.primary(PAIR, lambda _: conn)
    assert conn.closed


@pytest.mark.parametrize("error", [*ERRORS[:2], asyncio.CancelledError()])
def test_an_asyncio_connection_that_does_not_answer_is_closed(error: BaseException) -> None:
    conn: Any = AsyncRefusing(error)

    async def connect(_: str) -> Any:
        return conn

    async def main() -> None:
        with pytest.raises(type(error)):
            await failover.primary_async(PAIR, connect)

    asyncio.run(main())
    assert conn.closed


def test_each_server_that_does_not_answer_is_closed() -> None:
    opened: list[Any] = []

    def connect(_: str) -> Any:
        opened.append(Refusing(psycopg.OperationalError("gone")) if opened else Server("a", ("cluster", 1)))
        return opened[-1]

    failover.note_timeline(("cluster", 2))
    with pytest.raises(psycopg.OperationalError, match="old primary"):
        failover.primary(PAIR, connect)
    assert [conn.closed for conn in opened] == [True, True, True]
