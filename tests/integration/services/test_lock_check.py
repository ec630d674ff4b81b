"""The doctor names a lock that is held for long while others wait, with its session and what to do."""

from __future__ import annotations

from typing import Any

import psycopg

from pgsched.db.connection.connect import connect
from pgsched.services.check import Finding
from pgsched.services.doctor import run_checks
from pgsched.services.lock_check import check_locks
from tests.support.logins import Logins
from tests.support.recipes.holding import asked, back, opened

Conn = psycopg.Connection[Any]


def said(conn: Conn) -> list[Finding]:
    return list(run_checks(conn, [("lock", check_locks)]))


def test_a_lock_held_for_long_while_others_wait_is_named_with_its_session(db: Conn) -> None:
    fence = asked(db, "pay roll", opened(db, name="root@web-1:4711"))
    for _ in range(2):
        asked(db, "pay roll", opened(db))
    assert [one.level for one in said(db)] == ["ok"]
    back(db, "1 hour 1 minute", "pay roll")
    (found,) = said(db)
    assert found.level == "warn"
    assert found.text == (
        f"pay roll has been held for 1 hour 1 minute by root@web-1:4711 (fence {fence}), and 2 wait for it,"
        " the first for 1 hour 1 minute;"
        f" see what that process does; to take it away: pgsched lock break 'pay roll' --fence {fence}"
    )


def test_a_lock_is_not_named_that_nobody_has_waited_for_long(db: Conn) -> None:
    asked(db, "a", opened(db))
    back(db, "1 day", "a")
    asked(db, "a", opened(db))
    assert [one.text for one in said(db)] == ["2 sessions: 1 grant of locks, 1 waiting"]


def test_a_leader_may_lead_as_long_as_it_likes(db: Conn) -> None:
    for _ in range(2):
        asked(db, "a", opened(db), kind="election")
    back(db, "1 day", "a")
    assert [one.level for one in said(db)] == ["ok"]


def test_a_producer_sees_its_own_locks(logins: Logins, db: Conn) -> None:
    for who in ("alice", "bob"):
        conn = logins.connect(who)
        for _ in range(2):
            asked(conn, f"lock of {who}", opened(conn))
        assert said(conn) == [], "it may not count the sessions"
        back(db, "1 day", f"lock of {who}")
    with connect(logins.dsn("alice")) as conn:
        assert [one.text.partition(" has ")[0] for one in said(conn)] == ["lock of alice"]
    with connect(logins.dsn("eye")) as conn:
        assert [one.text.partition(" has ")[0] for one in said(conn)] == ["lock of alice", "lock of bob"]
