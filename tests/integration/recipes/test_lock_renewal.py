"""pgsched.lock_renew renews the session of a grant, and says when the grant is lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

DB = psycopg.Connection[Any]
TAKEN = "SELECT pgsched.lock_acquire('nightly', %s, ttl => '2 min', wait => '1 h')"


def renewed(db: DB, token: UUID) -> bool:
    row = db.execute("SELECT pgsched.lock_renew('nightly', %s) IS NOT NULL", [token]).fetchone()
    assert row is not None
    return bool(row[0])


@pytest.fixture
def token(db: DB) -> UUID:
    token = uuid4()
    db.execute(TAKEN, [token])
    return token


def test_a_grant_is_renewed_for_its_ttl(db: DB, token: UUID) -> None:
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() + interval '1 min'")
    assert renewed(db, token)
    left = "SELECT lease_until > clock_timestamp() + interval '90 s' FROM pgsched.sessions"
    assert db.execute(left).fetchall() == [(True,)]


@pytest.mark.parametrize(
    "loss",
    [
        "UPDATE pgsched.sessions SET lease_until = clock_timestamp()",
        "SELECT pgsched.lock_break('nightly')",
        "SELECT pgsched.session_end(token) FROM pgsched.sessions",
        "SELECT pgsched.lock_release('nightly', token) FROM pgsched.sessions",
    ],
)
def test_a_lost_grant_is_not_renewed_nor_taken_anew(db: DB, token: UUID, loss: str) -> None:
    db.execute(loss.encode())
    assert not renewed(db, token)
    assert db.execute("SELECT FROM pgsched.lock_line('nightly')").fetchall() == []


def test_a_grant_that_was_broken_while_it_is_asserted_is_lost(
    db: DB, token: UUID, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    holder = connect(autocommit=False)
    holder.execute("SELECT pgsched.assert_lock('nightly', fence) FROM pgsched.lock_line('nightly')")
    db.execute("SELECT pgsched.lock_break('nightly')")
    assert not renewed(db, token)


def test_whoever_waits_has_nothing_to_renew(db: DB, token: UUID) -> None:
    behind = uuid4()
    db.execute(TAKEN, [behind])
    assert not renewed(db, behind)
    assert renewed(db, token)


def test_a_renewal_does_not_wait_for_who_has_locked_the_line(
    db: DB, token: UUID, connect: Callable[..., psycopg.Connection[Any]]
) -> None:
    other = connect(autocommit=False)
    other.execute("SELECT FROM pgsched.locks FOR UPDATE")
    db.execute("SET lock_timeout = '300ms'")
    assert renewed(db, token)
