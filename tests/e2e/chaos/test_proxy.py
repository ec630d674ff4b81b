"""The chaos proxy does to connections exactly what its faults say."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import psycopg
import pytest

from pgsched.chaos.site.proxy import Proxy, with_application_name
from pgsched.chaos.site.wire_protocol import Backend, Frontend
from tests.support.sessions import BLOCKED
from tests.support.waiting import wait_until

Connect = Callable[..., psycopg.Connection]


@pytest.fixture
def proxy(empty_dsn: str) -> Iterator[Proxy]:
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        db.execute("CREATE TABLE t (n int)")
    with Proxy(empty_dsn) as running:
        yield running


@pytest.fixture
def near(empty_dsn: str) -> Iterator[psycopg.Connection]:
    """A connection that does not use the proxy."""
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        yield db


@pytest.fixture
def far(proxy: Proxy) -> Iterator[Connect]:
    """A function that opens connections through the proxy."""
    opened: list[psycopg.Connection] = []

    def open_one(**options: str) -> psycopg.Connection:
        opened.append(psycopg.connect(proxy.dsn, autocommit=True, connect_timeout=3, **options))
        return opened[-1]

    yield open_one
    for conn in opened:
        conn.close()


def count(db: psycopg.Connection) -> int:
    row = db.execute("SELECT count(*) FROM t").fetchone()
    assert row is not None
    return int(row[0])


def test_the_proxy_passes_everything_on(far: Connect) -> None:
    conn = far()
    text = "x" * 1_000_000
    assert conn.execute("SELECT %s || ''", [text]).fetchone() == (text,)
    with conn.cursor().copy("COPY t FROM STDIN") as copy:
        for n in range(50_000):
            copy.write_row([n])
    assert conn.execute("SELECT sum(n) FROM t").fetchone() == (49_999 * 25_000,)
    with conn.pipeline():
        cursors = [conn.execute("SELECT %s::int", [n]) for n in range(500)]
        assert [c.fetchone() for c in cursors] == [(n,) for n in range(500)]


def test_the_last_error_of_the_server_reaches_the_client(far: Connect, near: psycopg.Connection) -> None:
    conn = far()
    near.execute("SELECT pg_terminate_backend(%s, 10000)", [conn.info.backend_pid])
    with pytest.raises(psycopg.errors.AdminShutdown):
        conn.execute("SELECT 1")


def test_a_client_that_goes_away_ends_its_session(far: Connect, near: psycopg.Connection) -> None:
    conn = far(application_name="gone")
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'gone' AND datname = current_database()"
    assert near.execute(sessions).fetchone() == (1,)
    conn.close()
    wait_until(lambda: near.execute(sessions).fetchone() == (0,))


def test_a_cut_ends_chosen_connections_on_both_sides(proxy: Proxy, far: Connect, near: psycopg.Connection) -> None:
    claim, other = far(application_name="pgsched claim host"), far(application_name="pgsched settle host")
    assert proxy.cut(with_application_name("claim")) == 1
    with pytest.raises(psycopg.OperationalError):
        claim.execute("SELECT 1")
    sessions = (
        "SELECT application_name FROM pg_stat_activity"
        " WHERE application_name LIKE 'pgsched%' AND datname = current_database()"
    )
    wait_until(lambda: near.execute(sessions).fetchall() == [("pgsched settle host",)])
    other.execute("SELECT 1")
    far().execute("SELECT 1")


def test_a_refusing_proxy_takes_no_new_connections_and_keeps_open_ones(proxy: Proxy, far: Connect) -> None:
    inside = far()
    proxy.refuse()
    with pytest.raises(psycopg.OperationalError, match="refused"):
        far()
    inside.execute("SELECT 1")
    proxy.heal()
    far().execute("SELECT 1")


@pytest.mark.long
def test_a_black_hole_takes_connections_and_answers_nothing(proxy: Proxy, far: Connect) -> None:
    proxy.black_hole()
    with pytest.raises(psycopg.errors.ConnectionTimeout):
        far()
    proxy.heal()
    far().execute("SELECT 1")


def in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def test_requests_to_the_server_can_be_held(proxy: Proxy, far: Connect, near: psycopg.Connection) -> None:
    conn, other = far(application_name="held"), far()
    proxy.silence("up", which=with_application_name("held"))
    asking = in_thread(lambda: conn.execute("INSERT INTO t VALUES (1)"))
    other.execute("SELECT 1")
    asking.join(0.2)
    assert asking.is_alive() and count(near) == 0, "the server has not heard of it"
    proxy.heal()
    asking.join(10)
    assert not asking.is_alive() and count(near) == 1


def test_answers_to_the_client_can_be_held(proxy: Proxy, far: Connect, near: psycopg.Connection) -> None:
    conn = far()
    proxy.silence("down")
    asking = in_thread(lambda: conn.execute("INSERT INTO t VALUES (1)"))
    wait_until(lambda: count(near) == 1)
    asking.join(0.1)
    assert asking.is_alive(), "the client has not heard of it"
    proxy.heal()
    asking.join(10)
    assert not asking.is_alive()


def test_a_close_in_a_held_direction_is_held_too(proxy: Proxy, far: Connect, near: psycopg.Connection) -> None:
    conn = far(application_name="mute")
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'mute' AND datname = current_database()"
    proxy.silence("up")
    conn.close()
    time.sleep(0.2)  # long enough for the session to end if the proxy passed the close on
    assert near.execute(sessions).fetchone() == (1,)
    proxy.heal()
    wait_until(lambda: near.execute(sessions).fetchone() == (0,))


def test_a_delay_applies_in_both_directions(proxy: Proxy, far: Connect) -> None:
    conn = far()
    proxy.delay(0.1)
    began = time.monotonic()
    conn.execute("SELECT 1")
    assert time.monotonic() - began >= 0.2
    began = time.monotonic()
    with conn.pipeline():
        for _ in range(50):
            conn.execute("SELECT 1")
    assert time.monotonic() - began < 5, "it delays, and does not slow down"


@pytest.mark.parametrize(("at", "rows"), [("before", 0), ("after", 1)])
def test_the_answer_to_a_statement_is_lost(
    proxy: Proxy, far: Connect, near: psycopg.Connection, at: str, rows: int
) -> None:
    conn = far()
    loss = proxy.lose_answer("INSERT INTO t", at)  # type: ignore[arg-type]
    conn.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        conn.execute("INSERT INTO t VALUES (%s)", [1])
    assert loss.wait(5)
    assert count(near) == rows, "autocommit: done, or never heard of, when the client learns that it is cut off"
    far().execute("INSERT INTO t VALUES (%s)", [2])
    assert count(near) == rows + 1, "once, and no more"


def test_an_answer_is_lost_only_when_the_server_has_done_the_statement(
    proxy: Proxy, far: Connect, near: psycopg.Connection
) -> None:
    conn = far()
    loss = proxy.lose_answer("INSERT INTO t")

    def insert() -> None:
        with pytest.raises(psycopg.OperationalError):
            conn.execute("INSERT INTO t VALUES (1)")

    with near.transaction():
        near.execute("LOCK TABLE t IN EXCLUSIVE MODE")
        asking = in_thread(insert)
        wait_until(lambda: near.execute(BLOCKED).fetchone() == (1,))
        assert not loss.wait(0)
    assert loss.wait(10)
    assert count(near) == 1
    asking.join(10)


def test_the_answer_to_a_prepared_statement_is_lost(proxy: Proxy, far: Connect, near: psycopg.Connection) -> None:
    conn = far()
    for n in range(3):
        conn.execute("INSERT INTO t VALUES (%s)", [n], prepare=True)
    proxy.lose_answer("INSERT INTO t")
    with pytest.raises(psycopg.OperationalError):
        conn.execute("INSERT INTO t VALUES (%s)", [3], prepare=True)
    assert count(near) == 4


@pytest.mark.parametrize(("at", "rows"), [("before", 0), ("after", 1)])
def test_the_answer_to_a_commit_is_lost(
    proxy: Proxy, far: Connect, near: psycopg.Connection, at: str, rows: int
) -> None:
    conn = far()
    proxy.lose_answer("INSERT INTO t", at, commit=True)  # type: ignore[arg-type]
    with conn.transaction():
        conn.execute("SELECT 1")
    with conn.transaction(), pytest.raises(ZeroDivisionError), conn.transaction():
        raise ZeroDivisionError
    with pytest.raises(psycopg.OperationalError), conn.transaction():
        conn.execute("INSERT INTO t VALUES (1)")
        conn.execute("SELECT 1")
    wait_until(lambda: count(near) == rows)


def test_the_answer_to_a_commit_in_a_pipeline_is_lost(proxy: Proxy, far: Connect, near: psycopg.Connection) -> None:
    conn = far()
    proxy.lose_answer("INSERT INTO t", commit=True)
    with pytest.raises(psycopg.OperationalError), conn.pipeline(), conn.transaction():
        conn.execute("INSERT INTO t VALUES (1)")
    assert count(near) == 1


def test_only_chosen_connections_lose_their_answers(proxy: Proxy, far: Connect) -> None:
    proxy.lose_answer("SELECT 7", which=with_application_name("claim"))
    far(application_name="settle").execute("SELECT 7")
    with pytest.raises(psycopg.OperationalError):
        far(application_name="claim").execute("SELECT 7")


def test_a_stopped_proxy_leaves_no_connection_or_thread(empty_dsn: str) -> None:
    before = threading.active_count()
    proxy = Proxy(empty_dsn).start()
    conn = psycopg.connect(proxy.dsn)
    proxy.black_hole()
    proxy.stop()
    with pytest.raises(psycopg.OperationalError):
        conn.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError, match="refused"):
        psycopg.connect(proxy.dsn)
    assert threading.active_count() == before
    proxy.stop()


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_messages_are_found_however_their_bytes_are_split(step: int) -> None:
    start = b"\x00\x03\x00\x00user\0me\0application_name\0pgsched claim\0\0"
    sent = (len(start) + 4).to_bytes(4, "big") + start

    def message(kind: bytes, body: bytes) -> bytes:
        return kind + (len(body) + 4).to_bytes(4, "big") + body

    sent += message(b"Q", b"BEGIN\0")
    sent += message(b"P", b"s1\0SELECT $1\0\0\0") + message(b"B", b"\0s1\0\0\0\0\0\0\0") + message(b"S", b"")
    sent += message(b"X", b"")
    frontend = Frontend()
    requests = [r for at in range(0, len(sent), step) for r in frontend.feed(sent[at : at + step])]
    assert b"".join(r.data for r in requests) == sent
    assert [r.statements for r in requests] == [(), ("BEGIN",), ("SELECT $1",), ()]
    assert [r.answered for r in requests] == [True, True, True, False]
    assert frontend.application == "pgsched claim"

    backend = Backend()
    answer = message(b"D", b"Z" * 100) + message(b"Z", b"I") + message(b"C", b"") + message(b"Z", b"T")
    for at in range(0, len(answer), step):
        backend.feed(answer[at : at + step])
    assert backend.ready == 2
