"""The death of a worker is charged to the attempts that had begun, and to no others.

A run that may have caused the death is claimed alone.
"""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched.core.model import Claim, Result
from pgsched.db.queries.runs import claims
from tests.support.db.setting import CLAIMS, add_runs, cut, done, let_expire, reap, row_of, sql, take, text_without
from tests.support.db.settling import settle

pytestmark = pytest.mark.pg14

LIMIT = " LIMIT pgsched.claim_limit(\n    (SELECT array_agg(note) FROM picked HAVING max(note) > 0), %(places)s::int)"
SUSPECT = "UPDATE pgsched.runs SET suspect = true WHERE id = ANY (%s)"
CRASH_LIMIT = 5


def beat(db: psycopg.Connection, held: list[Claim], *begun: Claim) -> None:
    """Send the worker's heartbeat, which names the attempts that it is making."""
    claims.heartbeat(db, 1, 30.0, [one.key for one in held], claims.Vitals(frozenset(one.key for one in begun)))


def die(db: psycopg.Connection) -> dict[int, dict[str, Any]]:
    """End the worker's leases, reap its claims, and return the reaped runs by id."""
    let_expire(db)
    return {run["id"]: run for run in reap(db)}


def charged(db: psycopg.Connection) -> dict[int, tuple[int, int, bool]]:
    """Return attempt, crashes and suspicion of every run, by id."""
    rows = db.execute("SELECT id, attempt, crashes, suspect IS TRUE FROM pgsched.runs ORDER BY id").fetchall()
    return {run_id: (attempt, crashes, suspect) for run_id, attempt, crashes, suspect in rows}


def evidence(db: psycopg.Connection) -> list[tuple[int, int, str]]:
    return db.execute("SELECT run_id, attempt, outcome FROM pgsched.attempts ORDER BY run_id, finished_at").fetchall()


@pytest.mark.parametrize("guarded", [True, False])
def test_only_attempts_that_had_begun_are_charged(
    guarded: bool, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(monkeypatch, "heartbeat", ", begun = mine.begun")
    add_runs(db, 3)
    held = take(db, 3)
    beat(db, held, held[1])
    assert {run["state"] for run in die(db).values()} == {"queued"}
    assert (charged(db) == {1: (0, 0, True), 2: (1, 1, True), 3: (0, 0, True)}) is guarded
    if guarded:
        assert evidence(db) == [(1, 1, "interrupted"), (2, 1, "crashed"), (3, 1, "interrupted")]
        assert "whether the attempt had begun is not known" in row_of(db, 1)["error"]
        assert row_of(db, 2)["error"].endswith("without a heartbeat")


def test_a_new_claim_of_a_run_does_not_count_as_begun(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)
    (first,) = take(db)
    beat(db, [first], first)
    settle(dsn, done(first, Result.INTERRUPTED))
    take(db)
    die(db)
    assert charged(db) == {1: (0, 0, True)}


def test_an_attempt_that_has_ended_and_is_not_settled_is_not_charged(db: psycopg.Connection) -> None:
    add_runs(db, 1)
    held = take(db)
    beat(db, held, *held)
    beat(db, held)
    die(db)
    assert charged(db) == {1: (0, 0, True)}


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("guarded", [True, False])
def test_a_suspect_is_claimed_alone_and_in_its_turn(guarded: bool, name: str, db: psycopg.Connection) -> None:
    text = sql(name) if guarded else text_without(name, LIMIT)
    add_runs(db, 5)
    db.execute(SUSPECT, [[3, 4]])
    found = [[claim.id for claim in take(db, 9, text=text)] for _ in range(4)]
    assert found == ([[1, 2], [3], [4], [5]] if guarded else [[1, 2, 3, 4, 5], [], [], []])
    assert charged(db)[3] == (1, 0, True)


def test_a_claim_says_that_its_run_is_suspect(db: psycopg.Connection) -> None:
    add_runs(db, 2)
    db.execute(SUSPECT, [[1]])
    assert [[claim.suspect for claim in take(db, 9)] for _ in range(2)] == [[True], [None]]


@pytest.mark.parametrize("name", CLAIMS)
def test_a_run_that_needs_a_free_place_is_not_skipped(name: str, db: psycopg.Connection) -> None:
    add_runs(db, 4)
    db.execute(SUSPECT, [[1]])
    assert take(db, 9, text=sql(name), places=0) == []
    assert [claim.id for claim in take(db, 9, text=sql(name), places=1)] == [1]
    db.execute("UPDATE pgsched.runs SET max_attempts = 1 WHERE id = 3")
    assert [claim.id for claim in take(db, 9, text=sql(name), places=1)] == [2]
    assert take(db, 9, text=sql(name), places=0) == []
    assert [claim.id for claim in take(db, 9, text=sql(name), places=1)] == [3, 4]


@pytest.mark.parametrize("guarded", [True, False])
def test_runs_with_one_attempt_are_claimed_only_for_free_places(guarded: bool, db: psycopg.Connection) -> None:
    add_runs(db, 9)
    db.execute("UPDATE pgsched.runs SET max_attempts = 1")
    text = sql("claim_start") if guarded else text_without("claim_start", LIMIT)
    assert len(take(db, 9, text=text, places=2)) == (2 if guarded else 9)


@pytest.mark.parametrize(("guard", "run"), [(" OR suspect", 1), (" OR max_attempts = 1", 2)])
@pytest.mark.parametrize("guarded", [True, False])
def test_a_claim_for_a_free_place_counts_as_begun(
    guarded: bool, guard: str, run: int, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(monkeypatch, "reap", guard)
    add_runs(db, 2)
    db.execute(SUSPECT, [[1]])
    db.execute("UPDATE pgsched.runs SET max_attempts = 1 WHERE id = 2")
    take(db)
    take(db)
    died = die(db)
    assert (died[run]["attempt"], died[run]["crashes"]) == ((1, 1) if guarded else (0, 0))
    assert (died[2]["state"] == "dead") is (guarded or run == 1)


def test_a_run_that_kills_its_worker_at_once_is_found_at_the_second_death(db: psycopg.Connection) -> None:
    add_runs(db, 3)
    db.execute("UPDATE pgsched.runs SET max_attempts = 100")
    take(db, 3)
    die(db)
    assert set(charged(db).values()) == {(0, 0, True)}
    told = []
    for _ in range(CRASH_LIMIT):
        (alone,) = take(db, 3)
        assert alone.id == 1
        told.append(die(db)[1])
    assert [(run["crashes"], run["state"]) for run in told] == [(n, "queued") for n in range(1, 5)] + [(5, "dead")]
    assert row_of(db, 1)["reason"] == "quarantined: 5 attempts took their worker down"
    assert [charged(db)[run_id] for run_id in (2, 3)] == [(0, 0, True)] * 2


@pytest.mark.parametrize(
    ("result", "cleared"),
    [
        (Result.FAILED, True),
        (Result.TIMED_OUT, True),
        (Result.SNOOZED, True),
        (Result.INTERRUPTED, False),
        (Result.RELEASED, False),
    ],
)
def test_an_attempt_that_ends_by_itself_resets_the_crash_count(
    result: Result, cleared: bool, dsn: str, db: psycopg.Connection
) -> None:
    """An attempt that is handed back leaves the count as it is."""
    add_runs(db, 1)
    db.execute("UPDATE pgsched.runs SET max_attempts = 100, crashes = 4, suspect = true")
    (claim,) = take(db)
    settle(dsn, done(claim, result)._replace(retry_in_s=0))
    assert charged(db)[1][1:] == ((0, False) if cleared else (4, True))


def test_a_run_that_snoozes_between_worker_deaths_is_not_quarantined(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)
    db.execute("UPDATE pgsched.runs SET max_attempts = 1000")
    for _ in range(2 * CRASH_LIMIT):
        (claim,) = take(db)
        settle(dsn, done(claim, Result.SNOOZED)._replace(retry_in_s=0))
        db.execute("UPDATE pgsched.runs SET state = 'queued'")
        held = take(db)
        beat(db, held, *held)
        assert die(db)[1]["state"] == "queued"


def test_a_success_clears_a_suspect(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)
    db.execute(SUSPECT, [[1]])
    (claim,) = take(db)
    assert settle(dsn, done(claim)) == ["succeeded"]
    assert row_of(db, 1)["suspect"] is None


@pytest.mark.parametrize("before", [False, True])
def test_the_start_deadline_applies_again_if_no_attempt_is_known_to_have_begun(
    before: bool, db: psycopg.Connection
) -> None:
    """The deadline does not apply if an earlier attempt had begun."""
    add_runs(db, 1)
    held = take(db)
    if before:
        beat(db, held, *held)
        die(db)
        db.execute("UPDATE pgsched.runs SET suspect = NULL")
        take(db)
    die(db)
    db.execute("UPDATE pgsched.runs SET expires_at = clock_timestamp() - interval '1 second'")
    assert bool(take(db)) is before


@pytest.mark.few(1)
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_holds_no_more_than_16_mib_of_arguments(packed: bool, name: str, db: psycopg.Connection) -> None:
    text = "repeat('x', 900000)" if packed else "string_agg(md5(random()::text), '')"
    db.execute(
        "INSERT INTO pgsched.runs (task, args) SELECT 't', jsonb_build_object('data', d)"
        f" FROM (SELECT {text} AS d FROM generate_series(1, 28000)) one, generate_series(1, 40)"
        if not packed
        else f"INSERT INTO pgsched.runs (task, args) SELECT 't', jsonb_build_object('data', {text})"
        " FROM generate_series(1, 40)"
    )
    taken = take(db, 40, text=sql(name))
    assert 16 <= len(taken) <= 18
    assert [claim.id for claim in taken] == [*range(1, len(taken) + 1)]


def test_arguments_of_ordinary_size_bound_no_claim(db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO pgsched.runs (task, args) SELECT 't', jsonb_build_object('data', repeat(md5(n::text), 30))"
        " FROM generate_series(1, 4000) n"
    )
    assert len(take(db, 4000)) == 4000


NONE, ONE_ATTEMPT, SUSPICIOUS, MIB = 0, 1, 2, 4 << 20


@pytest.mark.parametrize(
    ("notes", "places", "taken"),
    [
        ([NONE, NONE], 0, None),
        ([ONE_ATTEMPT], 0, 0),
        ([ONE_ATTEMPT, NONE, ONE_ATTEMPT], 2, 2),
        ([ONE_ATTEMPT, NONE, ONE_ATTEMPT], 3, None),
        ([SUSPICIOUS, NONE], 0, 0),
        ([SUSPICIOUS, NONE], 5, 1),
        ([SUSPICIOUS, SUSPICIOUS], 5, 1),
        ([NONE, NONE, SUSPICIOUS], 5, 2),
        ([SUSPICIOUS | ONE_ATTEMPT], 1, None),
        ([100 * MIB], 0, None),
        ([100 * MIB, NONE], 0, 1),
        ([8 * MIB, 8 * MIB, NONE], 0, None),
        ([8 * MIB, 8 * MIB, 1 << 12], 0, 2),
        (None, 3, None),
    ],
)
def test_claim_limit_says_how_many_of_the_found_runs_are_claimed(
    notes: list[int] | None, places: int, taken: int | None, db: psycopg.Connection
) -> None:
    found = db.execute("SELECT pgsched.claim_limit(%s::int[], %s)", [notes, places]).fetchone()
    assert found == (taken,)
