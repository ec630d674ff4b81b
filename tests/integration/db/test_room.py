"""Each page of `runs` has room for all versions of its runs, so that a claim changes no index."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.db.schema.migrate import upgrade
from tests.support.db.setting import done, take
from tests.support.db.settling import settle
from tests.support.server import PrivateCluster
from tests.support.waiting import wait_until

N, BATCH = 1_000, 250


@pytest.fixture
def dsn(private_cluster: PrivateCluster) -> str:
    """Return the DSN of a private server.

    On a shared server, a session that writes in another database would keep old row versions alive here.
    """
    upgrade(private_cluster.dsn)
    return private_cluster.dsn


def pages(db: psycopg.Connection) -> dict[int, int]:
    return dict(db.execute("SELECT id, (ctid::text::point)[0]::int FROM pgsched.runs").fetchall())


def moved(before: dict[int, int], after: dict[int, int]) -> int:
    return sum(after[run] != page for run, page in before.items())


def work(dsn: str, db: psycopg.Connection) -> tuple[int, int]:
    """Make, claim and settle runs; return how many changed their page at the claim, and at the settlement."""
    db.execute(
        "INSERT INTO pgsched.runs (task, args) SELECT 't', jsonb_build_object('i', n) FROM generate_series(1, %s) n",
        [N],
    )
    by_claim = by_settlement = 0
    for _ in range(0, N, BATCH):
        made = pages(db)
        claims = take(db, BATCH)
        claimed = pages(db)
        settle(dsn, *map(done, claims))
        by_claim += moved(made, claimed)
        by_settlement += moved(claimed, pages(db))
    return by_claim, by_settlement


def test_claimed_and_settled_runs_stay_on_their_page(dsn: str, db: psycopg.Connection) -> None:
    def stay() -> bool:
        by_claim, by_settlement = work(dsn, db)
        assert by_claim < N / 100
        return by_settlement < N / 10

    wait_until(stay, timeout=60, what="a moment when nobody analyzes the table")


@pytest.mark.long
def test_without_the_room_runs_move_to_another_page(dsn: str, db: psycopg.Connection) -> None:
    db.execute("ALTER TABLE pgsched.runs SET (fillfactor = 60)")
    for _ in range(5):
        by_claim, by_settlement = work(dsn, db)
        assert by_claim > N / 10
        assert by_settlement > N / 10
