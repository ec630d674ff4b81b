"""Which roles may announce that a worker sleeps, and which may take a turn at declaring jobs.

While a worker sleeps, each enqueue notifies. A turn makes other processes wait before they declare jobs.
"""

from __future__ import annotations

from tests.support.logins import Logins, not_refused, one


def test_only_workers_can_announce_that_they_sleep(logins: Logins) -> None:
    assert one(logins.connect("worker"), "SELECT pgsched.workers_asleep(1)") <= 1
    for who in ("alice", "leader", "ops", "eye", "desk"):
        assert not_refused(logins.connect(who), "SELECT pgsched.workers_asleep(1)") == {}, who


def test_only_workers_and_leaders_take_turns_at_declaring_jobs(logins: Logins) -> None:
    turns = [f"SELECT pgsched.{how}_declare_turn()" for how in ("take", "share", "try")]
    for who in ("worker", "leader"):
        assert [one(logins.connect(who), turn) for turn in turns] == [True] * 3, who
    for who in ("alice", "ops", "eye", "desk"):
        assert not_refused(logins.connect(who), *turns) == {}, who
