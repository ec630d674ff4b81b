"""The leader ends sessions that were not renewed, gives on what they had, and deletes names that nobody uses."""

from __future__ import annotations

from uuid import UUID

import psycopg
import pytest

from pgsched.leader.duties import sessions as duties
from pgsched.leader.duties.sessions import NamesDuty, SessionsDuty
from pgsched.leader.loop import LeaderLoop
from pgsched.leader.timing.periodic import LONGEST_PAUSE_S
from tests.support.db.leading import duty_of, lead
from tests.support.db.poisoning import aside, heal, poison, until
from tests.support.db.setting import Aside, Open, wait_until_blocked
from tests.support.recipes.holding import asked, opened


def let_end(db: psycopg.Connection, *tokens: UUID) -> None:
    """Let the leases of these sessions end now."""
    db.execute("UPDATE pgsched.sessions SET lease_until = clock_timestamp() WHERE token = ANY (%s)", [list(tokens)])


def holders(db: psycopg.Connection, name: str) -> list[UUID]:
    found = db.execute("SELECT s.token FROM pgsched.lock_places p JOIN pgsched.sessions s ON s.id = p.session"
                       " WHERE p.lock = %s AND p.fence IS NOT NULL ORDER BY p.place", [name])  # fmt: skip
    return [row[0] for row in found]


def rounds(loop: LeaderLoop, kind: type[SessionsDuty] | type[NamesDuty] = SessionsDuty, n: int = 1) -> None:
    """Do rounds in each of which this duty is due."""
    for _ in range(n):
        duty_of(loop, kind).period.set_due_at(0.0)
        loop.run_once()


def test_a_session_that_is_not_renewed_goes_and_its_lock_is_given_on_while_nobody_asks(
    db: psycopg.Connection, connect: Open
) -> None:
    frozen, next_one = opened(db), opened(db)
    assert asked(db, "payroll", frozen) is not None
    assert asked(db, "payroll", next_one) is None
    loop = lead(connect())
    rounds(loop)
    assert holders(db, "payroll") == [frozen], "a session that lives is left alone"
    let_end(db, frozen)
    rounds(loop)
    assert holders(db, "payroll") == [next_one]
    assert db.execute("SELECT token FROM pgsched.sessions").fetchall() == [(next_one,)]


def test_an_ended_session_s_keys_go(db: psycopg.Connection, connect: Open) -> None:
    token = opened(db)
    db.execute("SELECT pgsched.kv_put('app/' || n, '1', session => %s) FROM generate_series(1, 3) n", [token])
    let_end(db, token)
    rounds(lead(connect()))
    assert db.execute("SELECT count(*) FROM pgsched.store").fetchone() == (0,)
    assert db.execute("SELECT count(*) FROM pgsched.sessions").fetchone() == (0,)


def test_very_many_keys_of_one_session_go_in_several_rounds(db: psycopg.Connection, connect: Open) -> None:
    """One transaction of the leader must not take as long as a user likes."""
    token = opened(db)
    db.execute("SELECT pgsched.kv_put('app/' || n, '1', session => %s) FROM generate_series(1, 1500) n", [token])
    let_end(db, token)
    loop = lead(connect())
    rounds(loop)
    assert db.execute("SELECT count(*) FROM pgsched.store").fetchone() == (500,)
    rounds(loop)
    assert db.execute("SELECT count(*) FROM pgsched.store").fetchone() == (0,)
    assert db.execute("SELECT count(*) FROM pgsched.sessions").fetchone() == (0,)


def test_sessions_that_cannot_be_ended_keep_no_other_from_being_ended(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A grant that its holder's transaction asserts stays. There may be more of such sessions than a batch has."""
    monkeypatch.setattr(duties, "SWEEP_BATCH", 2)
    stuck, free = [opened(db) for _ in range(3)], opened(db)
    holder = connect(autocommit=False)
    for n, token in enumerate(stuck):
        holder.execute("SELECT pgsched.assert_lock(%s, %s)", [f"l{n}", asked(db, f"l{n}", token)])
    let_end(db, *stuck, free)
    loop = lead(connect(options="-c lock_timeout=500ms"))
    rounds(loop, n=2)
    assert db.execute("SELECT token FROM pgsched.sessions ORDER BY id").fetchall() == [(token,) for token in stuck]
    assert holders(db, "l0") == [stuck[0]], "nobody gets it while its holder's transaction goes on"
    holder.rollback()
    rounds(loop, n=4)
    assert db.execute("SELECT count(*) FROM pgsched.sessions").fetchone() == (0,)


def test_a_session_that_fails_is_set_aside_and_the_others_are_ended(db: psycopg.Connection, connect: Open) -> None:
    bad, *others = [opened(db) for _ in range(4)]
    asked(db, "bad", bad)
    row = db.execute("SELECT id FROM pgsched.sessions WHERE token = %s", [bad]).fetchone()
    assert row is not None
    poison(db, "DELETE", f"OLD.id = {row[0]}", "sessions")
    let_end(db, bad, *others)
    loop = lead(connect())
    rounds(loop)
    assert db.execute("SELECT token FROM pgsched.sessions").fetchall() == [(bad,)]
    assert aside(db) == [("expired sessions", str(row[0]), "poisoned")]
    heal(db)
    db.execute("UPDATE pgsched.set_aside SET next_at = clock_timestamp()")
    until(lead(connect()), db, "SELECT count(*) FROM pgsched.sessions", 0)


def test_without_sessions_no_round_takes_place_for_them(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "LOOK_SHARE", 1e9)  # a slow machine does not matter here
    loop = lead(connect())
    rounds(loop)
    duty = duty_of(loop, SessionsDuty)
    assert duty.period.pause_s(0.0) > LONGEST_PAUSE_S
    opened(db)
    rounds(loop)
    assert duty.period.pause_s(0.0) <= 1.0


def names(db: psycopg.Connection) -> list[str]:
    return [row[0] for row in db.execute("SELECT name FROM pgsched.locks ORDER BY name")]


def test_names_of_locks_go_that_nobody_has_used_for_30_days(
    db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duties, "BATCH", 3)
    token = opened(db)
    for name in ("held", "old 1", "old 2", "recent", "waited for"):
        asked(db, name, token)
    asked(db, "waited for", opened(db))
    db.execute("DELETE FROM pgsched.lock_places WHERE lock IN ('old 1', 'old 2', 'recent')")
    db.execute("DELETE FROM pgsched.lock_places WHERE lock = 'waited for' AND fence IS NOT NULL")
    old = "UPDATE pgsched.locks SET used_at = clock_timestamp() - interval '31 days' WHERE name <> 'recent'"
    db.execute(old)
    loop = lead(connect(options="-c lock_timeout=500ms"))
    someone = connect(autocommit=False)
    someone.execute("SELECT FROM pgsched.locks WHERE name = 'old 2' FOR UPDATE")
    rounds(loop, NamesDuty, 3)
    assert names(db) == ["held", "old 2", "recent", "waited for"], "what somebody has locked is left"
    someone.rollback()
    rounds(loop, NamesDuty, 3)
    assert names(db) == ["held", "recent", "waited for"]


def test_a_name_that_is_asked_for_while_it_is_deleted_is_there_again(db: psycopg.Connection, connect: Open) -> None:
    token = opened(db)
    first = asked(db, "old", token)
    db.execute("DELETE FROM pgsched.lock_places")
    db.execute("UPDATE pgsched.locks SET used_at = clock_timestamp() - interval '31 days'")
    leader = connect(autocommit=False)
    leader.execute("SELECT pgsched.prune_locks('', 10)")
    caller = connect(autocommit=False)
    caller.execute("SET lock_timeout = '200ms'")
    with pytest.raises(psycopg.errors.LockNotAvailable):
        asked(caller, "old", token)
    caller.rollback()
    leader.commit()
    again = asked(caller, "old", token)
    caller.commit()
    assert first is not None
    assert again is not None
    assert again > first, "fences go on"


def test_an_empty_root_of_the_store_goes_and_its_versions_do_not_come_again(
    db: psycopg.Connection, connect: Open
) -> None:
    for key in ("empty/a", "full/a", "recent/a"):
        db.execute("SELECT pgsched.kv_put(%s, '1')", [key])
    db.execute("SELECT pgsched.kv_delete('empty/a'), pgsched.kv_delete('recent/a')")
    old = "UPDATE pgsched.store_roots SET changed_at = clock_timestamp() - interval '31 days' WHERE root <> 'recent'"
    db.execute(old)
    rounds(lead(connect()), NamesDuty)
    assert db.execute("SELECT root FROM pgsched.store_roots ORDER BY root").fetchall() == [("full",), ("recent",)]
    # who has watched the root up to version 2 hears of the new key
    assert db.execute("SELECT pgsched.kv_put('empty/b', '2')").fetchone() == (3,)
    found = db.execute("SELECT key, version, skipped FROM pgsched.kv_changes('empty/', 2)").fetchall()
    assert found == [("empty/b", 3, False)]


def test_a_root_made_while_the_old_one_is_deleted_has_higher_versions(db: psycopg.Connection, connect: Open) -> None:
    for _ in range(3):
        db.execute("SELECT pgsched.kv_put('r/a', '1')")
    db.execute("SELECT pgsched.kv_delete('r/a')")
    db.execute("UPDATE pgsched.store_roots SET changed_at = clock_timestamp() - interval '31 days'")
    leader, other = connect(autocommit=False), connect()
    leader.execute("SELECT pgsched.prune_roots('', 10)")
    put = Aside(lambda: other.execute("SELECT pgsched.kv_put('r/a', '1')").fetchone())
    wait_until_blocked(db, other)
    leader.commit()
    assert put.result() == (5,)
