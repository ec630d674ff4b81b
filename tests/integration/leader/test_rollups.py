"""Each ended run is counted once, also after a late commit, a change of leaders or a lost session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from pgsched.core.model import Claim
from pgsched.db.queries.leader import leadership, rollups
from pgsched.db.queries.leader.leadership import NotLeading
from pgsched.leader import rollups as rollup_duty
from pgsched.leader.rollups import RunCounter
from tests.support.db.rolling import begin
from tests.support.db.setting import Aside, Open, add_runs, cut, take, wait_until_blocked

TOTALS = (
    "SELECT coalesce(sum(runs) FILTER (WHERE width = 'minute'), 0)::int,"
    " coalesce(sum(runs) FILTER (WHERE width = 'hour'), 0)::int FROM pgsched.rollups"
)


def totals(db: psycopg.Connection) -> tuple[int, int]:
    row = db.execute(TOTALS).fetchone()
    assert row is not None
    return int(row[0]), int(row[1])


def passes(db: psycopg.Connection, count: RunCounter, n: int = 3) -> None:
    """Run `n` rounds of a leader's counting."""
    for _ in range(n):
        count.count_batch(db, begin(db))


def settle(conn: psycopg.Connection[Any], claims: list[Claim]) -> None:
    """Settle these claims as succeeded, in the caller's transaction."""
    conn.execute(
        "UPDATE pgsched.runs SET state = 'succeeded', finished_at = clock_timestamp() WHERE id = ANY (%s)",
        [[claim.id for claim in claims]],
    )


def end_some(db: psycopg.Connection, n: int) -> None:
    """Add runs, claim them, and settle them as succeeded."""
    add_runs(db, n)
    settle(db, take(db, n))


@pytest.mark.parametrize("guarded", [True, False])
def test_an_ending_that_commits_late_is_counted_once(
    guarded: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler's own transaction settles its run, and commits after runs that ended later."""
    if not guarded:
        cut(monkeypatch, "rollup_look", "clock.now IS NOT NULL", "false")
    count = RunCounter()
    add_runs(db, 1)
    claims = take(db)
    handler = connect(autocommit=False)
    settle(handler, claims)
    end_some(db, 3)
    passes(db, count)
    assert totals(db)[0] == (0 if guarded else 3), "while it is open nothing behind it can be counted"
    handler.commit()
    passes(db, count)
    assert totals(db) == ((4, 4) if guarded else (3, 3))


def test_transactions_that_overlap_without_end_do_not_stop_the_counting(db: psycopg.Connection, connect: Open) -> None:
    """At every look a transaction is open, but none stays open for two looks."""
    count = RunCounter()
    one, other = connect(autocommit=False), connect(autocommit=False)
    for turn in range(6):
        mine, yours = (one, other) if turn % 2 else (other, one)
        add_runs(mine, 1)
        yours.commit()
        passes(db, count, 1)
        end_some(db, 1)
    one.commit()
    other.commit()
    assert totals(db)[0] >= 3


@pytest.mark.parametrize("guarded", [True, False])
def test_two_leaders_count_nothing_twice(
    guarded: bool, db: psycopg.Connection, connect: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mark is locked before it is read. Without the lock both leaders count from the same mark on."""
    if not guarded:
        cut(monkeypatch, "rollup_lock", " FOR UPDATE")
    end_some(db, 5)
    mine, yours = connect(autocommit=False), connect(autocommit=False)
    safe = rollups.find_uncounted(db).now
    rollups.count(mine, safe, 1000)
    second = Aside(lambda: rollups.count(yours, safe, 1000))
    wait_until_blocked(db, yours)
    mine.commit()
    second.result()
    yours.commit()
    assert totals(db) == ((5, 5) if guarded else (10, 10))


def test_a_count_that_was_not_committed_is_made_by_the_next_leader(db: psycopg.Connection, connect: Open) -> None:
    end_some(db, 5)
    gone = connect(autocommit=False)
    assert rollups.count(gone, rollups.find_uncounted(db).now, 1000) == 5
    gone.close()
    assert totals(db) == (0, 0)
    passes(db, RunCounter())
    passes(db, RunCounter())
    assert totals(db) == (5, 5)


def test_a_process_that_does_not_lead_counts_nothing(db: psycopg.Connection) -> None:
    end_some(db, 5)

    @contextmanager
    def fenced() -> Iterator[psycopg.Connection[Any]]:
        with db.transaction():
            leadership.fence(db, 17)
            yield db

    with pytest.raises(NotLeading):
        RunCounter().count_batch(db, fenced)
    assert totals(db) == (0, 0)


def test_batches_do_not_split_runs_that_ended_at_one_instant(
    db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollup_duty, "BATCH", 2)
    end_some(db, 7)
    db.execute(
        "UPDATE pgsched.runs SET finished_at = (SELECT max(finished_at) FROM pgsched.runs) WHERE id %% 2 = 0", []
    )
    count = RunCounter()
    passes(db, count, 8)
    assert totals(db) == (7, 7)


def test_a_run_that_ends_again_after_a_retry_is_counted_again(db: psycopg.Connection) -> None:
    end_some(db, 1)
    passes(db, RunCounter())
    db.execute("UPDATE pgsched.runs SET state = 'dead'")
    db.execute("SELECT pgsched.retry(id) FROM pgsched.runs")
    settle(db, take(db))
    passes(db, RunCounter())
    assert totals(db) == (2, 2)
