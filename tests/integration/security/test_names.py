"""A producer does not learn the names of other roles' jobs, not even from the rows of workers."""

from __future__ import annotations

from pgsched.cli import run as cli
from pgsched.services.status import read_status
from tests.support.logins import Logins, not_refused, one


def test_a_producer_cannot_read_the_jobs_that_a_worker_declares(logins: Logins) -> None:
    logins.connect("worker").execute(
        "INSERT INTO workers (name, hostname, pid, version, concurrency, kinds, tasks, lease, declares)"
        " VALUES ('w', 'h', 1, '1', 1, '{task}', '{t}', '30 s', '{salaries}')"
    )
    alice = logins.connect("alice")
    assert not_refused(alice, "SELECT declares FROM workers", "SELECT * FROM workers") == {}
    assert one(alice, "SELECT count(*) FROM workers WHERE 't' = ANY (tasks)") == 1
    assert [worker.name for worker in read_status(alice).workers] == ["w"]
    alice.execute("SELECT enqueue('t')")
    assert cli(["run", "list", "--dsn", logins.dsn("alice")]) == 0
    for who in ("worker", "leader", "ops", "eye"):
        assert one(logins.connect(who), "SELECT declares FROM workers") == ["salaries"]
