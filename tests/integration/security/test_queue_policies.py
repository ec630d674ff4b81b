"""Queues belong to nobody: what docs/how-to/security.md says of keeping producers to queues of their own."""

from __future__ import annotations

import re
from typing import Any

import psycopg

from tests.support.logins import Logins, alone, not_refused, one
from tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "how-to" / "security.md").read_text()


def test_a_producer_may_enqueue_into_every_queue_until_a_policy_says_otherwise(
    logins: Logins, db: psycopg.Connection[Any]
) -> None:
    """The page's own statements, for alice instead of app: neither runs nor jobs of hers get into another queue."""
    alice, bob = logins.connect("alice"), logins.connect("bob")
    elsewhere = (
        "INSERT INTO runs (task, queue) VALUES ('t', 'bob')",
        "SELECT pgsched.enqueue('t', queue => 'bob')",
        "INSERT INTO jobs (name, task, schedule, queue) VALUES ('a', 't', '@daily', 'bob')",
        "UPDATE jobs SET queue = 'bob' WHERE name = 'mine'",
        "UPDATE jobs SET queue = NULL WHERE name = 'mine'",
    )
    alice.execute("INSERT INTO jobs (name, task, schedule, queue) VALUES ('mine', 't', '@daily', 'app')")
    assert set(not_refused(alice, *elsewhere)) == set(elsewhere), "as the page says"
    statements = re.findall(r"CREATE POLICY app_[^;]*;", TEXT)
    assert len(statements) == 2
    for statement in statements:
        mine = statement.replace(" TO app ", f' TO "{logins.name("alice")}" ')
        alone(lambda mine=mine: db.execute(mine.encode()))  # type: ignore[misc]
    assert not_refused(alice, *elsewhere) == {}
    assert one(alice, "SELECT pgsched.enqueue('t', queue => 'app')") > 0
    assert one(alice, "SELECT pgsched.trigger('mine')") > 0
    alice.execute("UPDATE jobs SET priority = 3 WHERE name = 'mine'")
    assert one(bob, "SELECT pgsched.enqueue('t', queue => 'bob')") > 0
    for statement in statements:  # before the logins go
        db.execute(re.sub(r"CREATE (POLICY \w+ ON [\w.]+).*", r"DROP \1", statement, flags=re.DOTALL).encode())
