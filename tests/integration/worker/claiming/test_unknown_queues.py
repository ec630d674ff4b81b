"""A notification about a queue that the worker does not know: the queue is found among the newest runs."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.worker.claiming import discovery
from pgsched.worker.claiming.known_queues import mark
from tests.support.db.claiming import Scene, finds_no_queue, play

pytestmark = pytest.mark.pg14


@pytest.mark.parametrize("guarded", [True, False])
def test_a_new_run_in_an_unknown_queue_is_claimed_without_a_look_at_all_queues(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With thousands of queues a look at all of them takes seconds."""
    db.execute("INSERT INTO pgsched.runs (queue, task) SELECT 'foreign' || n, 'unknown' FROM generate_series(1, 300) n")
    monkeypatch.setattr(discovery, "claimable_queues", finds_no_queue)
    if not guarded:
        monkeypatch.setattr(discovery, "NEWEST", 0)

    async def scene(it: Scene) -> None:
        await it.round()
        db.execute("INSERT INTO pgsched.runs (queue, task) VALUES ('new', 't')")
        assert "begun" not in await it.round(), "nothing says that there is one"
        it.claimer.heard(mark("new"))
        await it.round()
        assert (it.free == 4) is guarded
        assert (it.claimer.claims.known.of(mark("new")) == "new") is guarded, (
            "the next notification names a known queue"
        )

    play(Scene(dsn, monkeypatch, 5), scene)


def test_a_false_notification_costs_one_statement_and_no_claim(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("INSERT INTO pgsched.runs (queue, task) SELECT 'foreign' || n, 'unknown' FROM generate_series(1, 300) n")
    asked, really = [], discovery.newest_queues

    async def scene(it: Scene) -> None:
        async def noted(*args: object) -> list[str]:
            asked.append(await really(*args))  # type: ignore[arg-type]
            return asked[-1]

        monkeypatch.setattr(discovery, "newest_queues", noted)
        await it.round()
        for _ in range(3):
            it.claimer.heard(mark("nobody's"))
        assert "claim" not in await it.round()
        await it.round()
        assert asked == [[]], "runs of other workers' tasks are no reason to claim"

    play(Scene(dsn, monkeypatch, 5), scene)
