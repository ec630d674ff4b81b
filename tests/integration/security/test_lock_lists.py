"""A role sees in lists the locks that it may use, and readers see all."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.logins import Logins, one
from tests.support.recipes.holding import asked, opened

LISTED = "SELECT array_agg(name) FROM pgsched.lock_list(%s, %s)"


def listed(conn: psycopg.Connection[Any], prefix: str = "", after: str = "") -> list[str]:
    found: list[str] | None = one(conn, LISTED, prefix, after)
    return found or []


@pytest.mark.pg14
def test_each_role_sees_the_locks_that_it_may_use(logins: Logins, db: psycopg.Connection[Any]) -> None:
    alice, bob, ops = logins.connect("alice"), logins.connect("bob"), logins.connect("ops")
    asked(alice, "a", opened(alice))
    asked(bob, "b", opened(bob))
    ops.execute(
        "SELECT grant_names('shared/', %s), grant_names('shared/', %s)", [logins.name("bob"), logins.name("alice")]
    )
    ops.execute("SELECT grant_names('shared/b', %s)", [logins.name("bob")])
    for name in ("shared/a", "shared/b"):
        asked(bob, name, opened(bob))
    seen = {who: listed(logins.connect(who)) for who in ("alice", "bob", "eye", "ops", "worker")}
    every = ["a", "b", "shared/a", "shared/b"]
    assert seen == {
        "alice": ["a", "shared/a", "shared/b"], "bob": ["b", "shared/a", "shared/b"], "eye": every, "ops": every,
        "worker": [],
    }  # fmt: skip


def test_a_prefix_is_taken_literally_and_pages_follow_one_another(db: psycopg.Connection[Any]) -> None:
    session = opened(db)
    for name in ("a", "A", "a%", "a/b", "ä", "a\uffff", "b"):
        asked(db, name, session)
    assert listed(db, "a") == ["a", "a%", "a/b", "a\uffff"], "in the order of their bytes"
    assert listed(db, "a%") == ["a%"]
    assert listed(db, "a", "a%") == ["a/b", "a\uffff"]
    assert listed(db, "", "b") == ["ä"]


def test_sessions_that_were_not_renewed_are_not_listed(db: psycopg.Connection[Any]) -> None:
    session, other = opened(db), opened(db)
    asked(db, "a", session)
    asked(db, "b", other)
    asked(db, "b", session)
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE token = %s", [session])
    found = db.execute("SELECT name, holders, waiting FROM pgsched.lock_list()").fetchall()
    assert found == [("b", 1, 0)]
