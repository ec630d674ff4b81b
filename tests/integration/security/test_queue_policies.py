"""Queues have no owner; the policies in docs/how-to/security.md keep a producer to queues of its own."""

from __future__ import annotations

import re
from typing import Any

import psycopg
import pytest

from tests.support.logins import Logins, alone, not_refused, one
from tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "how-to" / "security.md").read_text()


def test_a_producer_may_enqueue_into_every_queue_until_a_policy_says_otherwise(
    logins: Logins, db: psycopg.Connection[Any]
) -> None:
    """The statements of the page, with alice in place of app, keep her runs and jobs out of other queues."""
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
    moved = [one(alice, "SELECT pgsched.enqueue('t', queue => 'app')") for _ in range(3)]
    again = "SELECT pgsched.backfill('mine', now() - interval '3 days', now() - interval '1 day'{})"
    move = "SELECT pgsched.update_run({}, queue => 'bob', priority => 0)"
    assert not_refused(alice, move.format(moved[0])), "the queue of a run changes as freely"
    assert not_refused(alice, again.format(", priority => 0")), "and so does the priority of a backfill"
    for statement in statements:
        mine = statement.replace(" TO app ", f' TO "{logins.name("alice")}" ')
        alone(lambda mine=mine: db.execute(mine.encode()))  # type: ignore[misc]
    assert not_refused(alice, *elsewhere) == {}
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match='the policy "app_runs" bounds'):
        alice.execute(move.format(moved[1]).encode())
    assert not_refused(alice, f"SELECT pgsched.update_run({moved[1]}, priority => 0)") == {}
    later = "SELECT pgsched.update_run(%s, queue => 'app', at => '2040-01-01')"
    assert one(alice, later, moved[1]) == "scheduled", "neither leaves its queue"
    assert one(logins.connect("ops"), move.format(moved[2])) == "queued"
    assert one(alice, "SELECT pgsched.enqueue('t', queue => 'app')") > 0
    assert one(alice, "SELECT pgsched.trigger('mine')") > 0
    alice.execute("UPDATE jobs SET priority = 3 WHERE name = 'mine'")
    assert one(bob, "SELECT pgsched.enqueue('t', queue => 'bob')") > 0
    with pytest.raises(psycopg.errors.InsufficientPrivilege, match='the policy "app_runs" bounds'):
        alice.execute(again.format(", priority => 0").encode())
    assert one(alice, again.format("")) > 0, "with the priority that every backfill has"
    assert one(logins.connect("ops"), again.format(", priority => 0")) > 0
    for statement in statements:  # before the logins are dropped
        db.execute(re.sub(r"CREATE (POLICY \w+ ON [\w.]+).*", r"DROP \1", statement, flags=re.DOTALL).encode())
