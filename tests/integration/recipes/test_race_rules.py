"""The rules by which the ledger of a race is judged: each finds what it is for, and none complains of a clean ledger.

The races themselves are in tests/e2e/recipes.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg
import pytest

from tests.support.recipes.race.findings import OF_BARRIERS, OF_ITEMS, OF_LOCKS, find, find_early_ends, find_missed
from tests.support.recipes.race.ledger import TABLES

Db = psycopg.Connection[Any]
Row = tuple[Any, ...]
WRITE = "INSERT INTO race.writes (seq, lock, fence, mode, hold, expired) VALUES (%s, %s, %s, %s, %s, %s)"
GRANT = "INSERT INTO race.grants (seq, lock, fence, mode, what) VALUES (%s, %s, %s, %s, %s)"
ITEM = """INSERT INTO race.changes_of_items (seq, item, key, what, session, token, error, has_ended, holder)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, 'user@host:11')"""
ONE, TWO = UUID(int=1), UUID(int=2)
LATE, NO_GRANT = "an older holder wrote after a newer one", "somebody wrote who had no grant, or had it no more"
TOGETHER, GRANTED = "more wrote at the same time than may be", "more were granted at once than may be"
TAKEN = "an item was taken from a session that had not ended"
ORDER = "an item did not go from one holder back into the line, and only then to the next"


@pytest.fixture(autouse=True)
def ledger(db: Db) -> None:
    db.execute(TABLES.encode())


def held(name: str, fence: int, first: int, last: int, mode: str = "exclusive") -> list[tuple[str, Row]]:
    """Return the rows of a hold that begins and ends with these numbers."""
    return [
        (GRANT, (first, name, fence, mode, "granted")),
        (WRITE, (first + 1, name, fence, mode, UUID(int=fence), False)),
        (WRITE, (last - 1, name, fence, mode, UUID(int=fence), False)),
        (GRANT, (last, name, fence, mode, "gone")),
    ]


def fill(db: Db, rows: list[tuple[str, Row]]) -> None:
    for statement, values in rows:
        db.execute(statement.encode(), values)


def rules(found: list[str]) -> list[str]:
    return [one.partition(":")[0] for one in found]


CLEAN = [
    *held("lock-0", 1, 10, 20), *held("lock-0", 2, 30, 40), *held("lock-1", 3, 12, 34), *held("election-0", 4, 14, 36),
    *held("semaphore-0", 5, 50, 70, "counted"), *held("semaphore-0", 6, 52, 72, "counted"),
    *held("semaphore-0", 7, 54, 74, "counted"), *held("rw-0", 8, 60, 80, "shared"), *held("rw-0", 9, 62, 82, "shared"),
    *held("rw-0", 10, 84, 90),
]  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [
        ([], []),
        ([(WRITE, (100, "lock-0", 1, "exclusive", ONE, False))], [LATE, NO_GRANT, TOGETHER]),
        ([(WRITE, (100, "election-0", 4, "exclusive", UUID(int=4), False))], [NO_GRANT]),
        ([(WRITE, (100, "lock-0", 11, "exclusive", ONE, False))], [NO_GRANT]),
        ([(WRITE, (16, "lock-0", 1, "exclusive", ONE, True))], ["somebody wrote whose lease was over"]),
        (held("lock-1", 2, 100, 110), [LATE, "a fence is not higher than the one before"]),
        ([(WRITE, (12, "lock-0", 1, "exclusive", TWO, False))], ["two holds have one fence"]),
        (held("lock-0", 11, 33, 39), [LATE, GRANTED, TOGETHER]),
        ([(GRANT, (33, "lock-0", 11, "exclusive", "granted"))], [GRANTED]),
        (held("semaphore-0", 11, 56, 76, "counted"), [GRANTED, TOGETHER]),
        (held("rw-0", 11, 86, 92, "shared"), [GRANTED, TOGETHER]),
    ],
)
def test_what_is_wrong_with_locks_is_found(db: Db, wrong: list[tuple[str, Row]], expected: list[str]) -> None:
    fill(db, CLEAN + wrong)
    assert rules(find(db, OF_LOCKS)) == expected


def test_a_grant_before_one_who_came_earlier_is_found(db: Db) -> None:
    fill(db, CLEAN)
    db.execute("UPDATE race.grants SET passed = 7 WHERE seq = 30")
    assert rules(find(db, OF_LOCKS)) == ["somebody was granted it before one who came earlier"]


ROUND = "INSERT INTO race.rounds (seq, what, member, size, members) VALUES (%s, %s, %s, %s, %s)"
NOTICED = "INSERT INTO race.passed (seq, member, what) VALUES (%s, %s, %s)"
GONE_EARLY = "somebody went away before all others of the round"
MEETING: list[tuple[str, Row]] = [
    (ROUND, (1, "in", "a", None, None)), (ROUND, (2, "in", "b", None, None)),
    (ROUND, (3, "opened", None, 2, ["a", "b"])), (NOTICED, (4, "a", "entered")), (NOTICED, (5, "b", "entered")),
    (ROUND, (6, "out", "a", None, None)), (ROUND, (8, "out", "b", None, None)),
    (ROUND, (9, "over", None, None, None)), (NOTICED, (11, "a", "left")), (NOTICED, (12, "b", "left")),
]  # fmt: skip


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, []),
        ({2: (ROUND, (3, "opened", None, 3, ["a", "b"]))}, ["a round opened for more or fewer than its size"]),
        ({5: (ROUND, (6, "opened", None, 2, ["a", "b"]))}, ["a member was in two rounds", GONE_EARLY]),
        ({3: (ROUND, (4, "in", "c", None, None))}, ["somebody came into a round that was open"]),
        ({3: (NOTICED, (4, "c", "entered"))}, ["somebody went on before the round had opened"]),
        ({8: (NOTICED, (7, "a", "left"))}, [GONE_EARLY]),
    ],
)
def test_what_is_wrong_with_barriers_is_found(db: Db, changed: dict[int, tuple[str, Row]], expected: list[str]) -> None:
    fill(db, [changed.get(n, row) for n, row in enumerate(MEETING)])
    assert rules(find(db, OF_BARRIERS)) == expected


PUT, HELD = (1, 1, "a", "put", None, None, None, None), (2, 1, "a", "held", 1, ONE, None, None)
FREED = (3, 1, "a", "freed", 1, ONE, "the session of its holder ended before it was consumed", True)
AGAIN, DONE = (4, 1, "a", "held", 2, TWO, None, None), (6, 1, "a", "deleted", 2, TWO, None, None)
STORY = [PUT, HELD, FREED, AGAIN, DONE]
CONSUMED = "INSERT INTO race.consumed (seq, item, pid, key) VALUES (%s, %s, %s, 'a')"


@pytest.mark.parametrize(
    ("story", "consumed", "expected"),
    [
        (STORY, [(5, 1, 11)], []),
        (STORY[:4], [], ["an item was lost"]),
        ([], [], ["an item was lost"]),
        (STORY, [(5, 1, 11), (7, 1, 11)], ["an item was consumed twice", "an item was consumed, and is there"]),
        (STORY[:4], [(5, 1, 11)], ["an item was lost", "an item was consumed, and is there"]),
        ([PUT, HELD, AGAIN, DONE], [(5, 1, 11)], [ORDER]),
        ([PUT, HELD, FREED, DONE], [(5, 1, 11)], [ORDER]),
        ([PUT, HELD, FREED, AGAIN, (*DONE[:5], ONE, *DONE[6:])], [(5, 1, 11)], [ORDER]),
        ([PUT, HELD, (*FREED[:7], False), AGAIN, DONE], [(5, 1, 11)], [TAKEN]),
        ([*STORY, (7, 2, *PUT[2:])], [(5, 1, 11)], ["an item was put twice"]),
        (STORY, [(5, 1, 12)], ["an item was consumed by another than its holder"]),
    ],
)
def test_what_is_wrong_with_items_is_found(db: Db, story: list[Row], consumed: list[Row], expected: list[str]) -> None:
    db.execute("INSERT INTO race.puts VALUES ('a', true), ('maybe', false)")
    fill(db, [(ITEM, row) for row in story] + [(CONSUMED, row) for row in consumed])
    assert rules(find(db, OF_ITEMS)) == expected


def test_a_lease_that_ended_early_is_found(db: Db) -> None:
    db.execute(
        "INSERT INTO race.ends (name, ended_at, lease_until) VALUES ('u@h:11', '2030-01-01 00:00', '2030-01-01 00:01'),"
        " ('u@h:12', '2030-01-01 00:01', '2030-01-01 00:01'), ('u@h:13', '2030-01-01 00:00', '2030-01-01 00:01')"
    )
    assert find_early_ends(db, [12]) == [] and len(find_early_ends(db, [11, 12])) == 1


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        ([(1, "r/a", "put"), (2, "r/a", "deleted"), (4, "r/b", "put")], []),
        ([(2, "r/", "skipped"), (4, "r/b", "put")], []),
        ([(1, "r/a", "put"), (4, "r/b", "put")], ["w missed (2, 'r/a', 'deleted', None)"]),
        ([(1, "r/a", "put"), (2, "r/a", "deleted")], ["w missed (4, 'r/b', 'put', 4)"]),
        ([(1, "r/a", "put"), (4, "r/b", "put"), (2, "r/a", "deleted")], ["w: 4 and then 2"]),
        ([(1, "r/a", "put"), (2, "r/a", "deleted"), (3, "x/a", "put"), (4, "r/b", "put")],
         ["w saw (3, 'x/a', 'put', 3)"]),
    ],
)  # fmt: skip
def test_a_change_that_a_watcher_missed_is_found(db: Db, seen: list[Row], expected: list[str]) -> None:
    db.execute("INSERT INTO race.changes VALUES (1, 'r/a', '1'), (2, 'r/a', NULL), (3, 'x/a', '3'), (4, 'r/b', '4')")
    for version, key, kind in seen:
        value = version if kind == "put" else None
        db.execute(
            "INSERT INTO race.seen (watcher, version, key, kind, value) VALUES ('w', %s, %s, %s, to_jsonb(%s::int))",
            [version, key, kind, value],
        )
    assert find_missed(db, "w", "r/") == expected
