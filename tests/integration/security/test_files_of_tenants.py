"""A tenant's file changes its own jobs only, and no tenant takes over what another one's file declares."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from pgsched.core.jobs_file.difference import Difference
from pgsched.errors import InputError, NotOwned, NotPermitted, PgschedError
from pgsched.services.jobs_file import applying, exporting
from pgsched.services.jobs_file.planning import Options, plan
from tests.support.files.jobs_files import file_of
from tests.support.logins import Logins, not_refused, one

pytestmark = [pytest.mark.pg14]
MINE = "jobs: {n: {task: t, schedule: '@daily', excluded_dates: [2026-12-24]}, m: {task: t, after: [n]}}"


def apply(conn: psycopg.Connection[Any], text: str, owner: str, **options: bool) -> Difference:
    return applying.apply(conn, file_of(text), Options(owner, **options))


def actions(found: Difference) -> list[str]:
    return [f"{change.action} {change.key[1]}" for change in found.changes]


def test_a_producer_applies_changes_prunes_and_exports_its_own(logins: Logins) -> None:
    alice = logins.connect("alice")
    assert actions(apply(alice, MINE, "shop")) == ["add n", "add m"]
    assert apply(alice, MINE, "shop").changes == ()
    assert actions(apply(alice, "jobs: {n: {task: u}}", "shop", prune=True)) == ["change n", "remove m"]
    assert exporting.export(alice, owner="shop")[0].startswith("owner: shop\njobs:\n  'n':\n    task: u\n")
    assert one(alice, "SELECT count(*) FROM file_entries") == 1
    with pytest.raises(NotPermitted):
        apply(alice, "queues: {q: {fair: true}}", "shop")


def test_a_producer_declares_calendars_of_its_own(logins: Logins, db: psycopg.Connection[Any]) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    text = ("jobs: {n: {task: t, schedule: '@daily', calendar: hers}}\n"
            "calendars: {hers: {times: [{weekdays: [%s]}, {from: 2027-05-01}]}}")  # fmt: skip
    assert actions(apply(alice, text % "sun", "shop")) == ["add n", "add hers"]
    assert actions(apply(alice, text % "sat", "shop")) == ["change hers"]
    assert one(db, "SELECT weekdays FROM pgsched.calendar_times WHERE weekdays IS NOT NULL") == [6]
    assert actions(apply(bob, "jobs: {m: {task: t, schedule: '@daily', calendar: hers}}", "b")) == ["add m"]
    for adopt in (False, True):
        with pytest.raises((NotOwned, NotPermitted)):
            apply(bob, "calendars: {hers: {times: []}}", "b", adopt=adopt)
    with pytest.raises(InputError, match="calendar hers: jobs use it"):
        apply(alice, "jobs: {}", "shop", prune=True)
    apply(bob, "jobs: {}", "b", prune=True)
    assert actions(apply(alice, "jobs: {}", "shop", prune=True)) == ["remove n", "remove hers"]
    assert one(db, "SELECT count(*) FROM pgsched.file_entries") == 0
    assert one(db, "SELECT count(*) FROM pgsched.calendars") == 0


def test_the_defaults_of_alerts_are_for_operators(logins: Logins, db: psycopg.Connection[Any]) -> None:
    with pytest.raises(NotPermitted):
        apply(logins.connect("alice"), "alerts: {dead_runs: 5}", "shop")
    assert one(db, "SELECT dead_runs FROM pgsched.alert_defaults") is None
    assert len(apply(logins.connect("ops"), "alerts: {dead_runs: 5}", "ops").changes) == 1
    assert one(db, "SELECT dead_runs FROM pgsched.alert_defaults") == 5
    assert "dead_runs: 5" in exporting.export(logins.connect("eye"))[0]


def test_another_tenant_sees_and_takes_nothing(logins: Logins) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    apply(alice, MINE, "shop")
    assert one(bob, "SELECT count(*) FROM file_owners") == one(bob, "SELECT count(*) FROM file_entries") == 0
    for adopt in (False, True):
        with pytest.raises(NotPermitted, match='owner: "shop" belongs to another role'):
            apply(bob, "jobs: {x: {task: t}}", "shop", adopt=adopt)
        with pytest.raises(PgschedError, match="job n: name: it is taken"):
            apply(bob, MINE, "bob's", adopt=adopt)
    assert not_refused(
        bob,
        "INSERT INTO file_entries (owner, what, name) VALUES ('shop', 'job', 'n')",
        "INSERT INTO file_entries (owner, what, name) VALUES ('shop', 'job', 'x')",
        "UPDATE file_owners SET role = current_user",
        "DELETE FROM file_entries",
        "DELETE FROM file_owners",
        "INSERT INTO file_owners (name, role) VALUES ('y', 'pgsched_operator')",
        "LOCK TABLE file_entries",
    ) == {}  # fmt: skip
    assert actions(apply(alice, MINE, "shop")) == []


def test_a_producer_declares_no_object_that_is_not_its_own(logins: Logins, db: psycopg.Connection[Any]) -> None:
    """An entry would keep the owner of the object from declaring it."""
    alice, bob = logins.connect("alice"), logins.connect("bob")
    db.execute("INSERT INTO pgsched.queues (name) VALUES ('q')")
    alice.execute("INSERT INTO jobs (name, task) VALUES ('hers', 't')")
    apply(bob, "jobs: {his: {task: t}}", "b")
    assert not_refused(
        bob,
        "INSERT INTO file_entries (owner, what, name) VALUES ('b', 'job', 'hers')",
        "INSERT INTO file_entries (owner, what, name) VALUES ('b', 'job', 'nobody''s')",
        "INSERT INTO file_entries (owner, what, name) VALUES ('b', 'queue', 'q')",
        "UPDATE file_entries SET name = 'hers'",
    ) == {}  # fmt: skip


def test_without_the_policy_a_tenant_would_keep_a_name_from_its_owner(
    logins: Logins, db: psycopg.Connection[Any]
) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    alice.execute("INSERT INTO jobs (name, task) VALUES ('hers', 't')")
    apply(bob, "jobs: {his: {task: t}}", "b")
    db.execute("ALTER POLICY pgsched_own ON pgsched.file_entries WITH CHECK (true)")
    bob.execute("INSERT INTO file_entries (owner, what, name) VALUES ('b', 'job', 'hers')")
    with pytest.raises(NotPermitted, match="a file of another role declares"):
        apply(alice, "jobs: {hers: {task: u}}", "a", adopt=True)


def test_the_name_of_an_owner_is_no_way_to_an_operator_s_file(logins: Logins) -> None:
    """A tenant that uses the name first, with a job of the name that the operator's file has, would share its file."""
    alice, ops = logins.connect("alice"), logins.connect("ops")
    apply(alice, "jobs: {payroll: {kind: sql, task: SELECT 1}}", "ops")
    with pytest.raises(NotPermitted, match=r'owner: "ops" belongs to role .*alice, which this role may not act for'):
        apply(ops, "jobs: {payroll: {kind: sql, task: SELECT 2}}", "ops", adopt=True)
    (remark,) = plan(ops, file_of("jobs: {}"), Options("ops")).difference.remarks
    assert remark.endswith("this role may not apply the file")
    with pytest.raises(NotOwned, match='the file of owner "ops" declares it'):
        apply(ops, "jobs: {payroll: {kind: sql, task: SELECT 2}}", "company")
    assert actions(apply(ops, "jobs: {payroll: {kind: sql, task: SELECT 2}}", "company", adopt=True)) == [
        "change payroll"
    ]
    assert one(ops, "SELECT owner FROM jobs") == logins.name("ops")  # who says what runs becomes its owner


def test_operators_share_the_names_of_owners(logins: Logins, db: psycopg.Connection[Any]) -> None:
    ops, desk = logins.connect("ops"), logins.connect("desk")
    text = "queues: {q: {fair: true}}\nlimits: {l: {concurrency: 1}}\npauses: [{what: all}]\nretention: {archive: true}"
    assert len(apply(ops, text, "ops").changes) == 4
    assert apply(desk, text, "ops").changes == ()
    assert len(apply(desk, "jobs: {}", "ops", prune=True).changes) == 4
    assert one(db, "SELECT count(*) FROM pgsched.file_entries") == 0


def test_a_viewer_plans_and_exports_and_applies_nothing(logins: Logins) -> None:
    apply(logins.connect("ops"), "jobs: {n: {task: t}}", "ops")
    eye = logins.connect("eye")
    assert actions(plan(eye, file_of("jobs: {n: {task: u}}"), Options("ops", adopt=True)).difference)
    assert "'n':" in exporting.export(eye)[0]
    with pytest.raises(NotPermitted):
        apply(eye, "jobs: {x: {task: t}}", "eye")


def test_no_tenant_ends_or_takes_what_another_one_s_file_remembers(logins: Logins, db: psycopg.Connection[Any]) -> None:
    """A job that ran once and has deleted itself: its name is free, and a tenant takes it."""
    ops, alice, bob = (logins.connect(name) for name in ("ops", "alice", "bob"))
    text = "jobs: {m: {kind: sql, task: SELECT 1, delete_after_run: true}}"
    apply(ops, text, "ops")
    db.execute("SELECT set_config('pgsched.ticks', 'on', false)")
    db.execute("UPDATE pgsched.jobs SET next_run_at = NULL; DELETE FROM pgsched.jobs")
    alice.execute("INSERT INTO jobs (name, task, schedule) VALUES ('m', 't', '@daily')")
    with pytest.raises(NotOwned, match="job m: it exists, and no file declares it"):
        apply(ops, text, "ops")
    assert one(db, "SELECT owner FROM pgsched.jobs") == logins.name("alice")
    assert actions(apply(alice, "jobs: {m: {task: u, schedule: '@daily'}}", "hers", adopt=True)) == ["change m"]
    alice.execute("SELECT delete_job('m')")
    bob.execute("INSERT INTO jobs (name, task) VALUES ('x', 't')")
    bob.execute("UPDATE jobs SET name = 'm' WHERE name = 'x'")
    bob.execute("UPDATE jobs SET name = 'x' WHERE name = 'm'")
    assert apply(ops, text, "ops").changes == ()
    assert one(db, "SELECT string_agg(what || ' ' || name, ', ') FROM pgsched.file_entries") == "done m"


def test_a_worker_may_ask_whose_file_declares_a_job(logins: Logins) -> None:
    assert one(logins.connect("worker"), "SELECT count(*) FROM file_entries") == 0
