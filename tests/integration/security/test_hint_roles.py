"""Who may say that somebody sleeps, so that each enqueue notifies."""

from __future__ import annotations

from tests.support.logins import Logins, not_refused, one


def test_only_workers_say_that_they_sleep(logins: Logins) -> None:
    assert one(logins.connect("worker"), "SELECT pgsched.workers_asleep(1)") <= 1
    for who in ("alice", "leader", "ops", "eye", "desk"):
        assert not_refused(logins.connect(who), "SELECT pgsched.workers_asleep(1)") == {}, who
