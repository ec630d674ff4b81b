"""Changes made by people are in the audit, from the same transaction; changes made by the leader are not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import psycopg
import pytest

from pgsched.db.connection.connect import connect
from pgsched.db.queries.jobs import calendars, jobs, queues
from pgsched.db.queries.leader import retention
from pgsched.db.queries.runs import runs, workers
from pgsched.errors import InputError
from pgsched.services.audit import changes
from tests.support.db.leading import lead
from tests.support.logins import Logins


@pytest.fixture
def conn(dsn: str) -> Any:
    with connect(dsn) as opened:
        yield opened


def noted(conn: psycopg.Connection[Any]) -> list[tuple[str, str, str]]:
    return [(row["action"], row["what"], row["name"]) for row in reversed(changes(conn))]


def test_the_life_of_a_job_is_noted(conn: psycopg.Connection[Any]) -> None:
    jobs.add(conn, {"name": "nightly", "schedule": "0 2 * * *", "task": "t", "args": {"a": 1}})
    jobs.update(conn, "nightly", {"schedule": "0 3 * * *", "args": {"a": 2}})
    jobs.update(conn, "nightly", {"schedule": "0 3 * * *"})
    jobs.pause(conn, "nightly", "why not")
    jobs.resume(conn, "nightly")
    run = jobs.trigger(conn, "nightly")
    runs.cancel(conn, run, "no more")
    runs.retry(conn, run)
    jobs.delete(conn, "nightly")
    assert noted(conn) == [
        ("created", "job", "nightly"),
        ("changed", "job", "nightly"),
        ("paused", "job", "nightly"),
        ("resumed", "job", "nightly"),
        ("triggered", "job", "nightly"),
        ("cancelled", "run", str(run)),
        ("retried", "run", str(run)),
        ("deleted", "job", "nightly"),
    ]
    edit = changes(conn, "job", "nightly")[-2]
    assert edit["change"] == {"schedule": ["0 2 * * *", "0 3 * * *"], "args": [{"a": 1}, {"a": 2}]}
    assert edit["who"] == conn.info.user
    assert edit["application"].startswith("pgsched cli")
    assert changes(conn, "run")[-1]["change"] == {"state": "queued", "task": "t", "why": "no more"}


def test_settings_and_pauses_are_noted(conn: psycopg.Connection[Any]) -> None:
    queues.set_queue(conn, "q", {"concurrency_limit": 2})
    queues.set_queue(conn, "q", {"concurrency_limit": 3})
    queues.set_limit(conn, "l", {"concurrency": 1})
    queues.remove_limit(conn, "l")
    queues.pause(conn, "queue", "q", "why not", None, None)
    queues.resume(conn, "queue", "q")
    assert noted(conn) == [
        ("created", "queue", "q"),
        ("changed", "queue", "q"),
        ("created", "limit", "l"),
        ("deleted", "limit", "l"),
        ("paused", "pause", "queue q"),
        ("resumed", "pause", "queue q"),
    ]
    assert changes(conn, "queue")[0]["change"] == {"concurrency_limit": [2, 3]}


def test_a_change_that_is_rolled_back_is_not_noted(conn: psycopg.Connection[Any]) -> None:
    with conn.transaction():
        jobs.add(conn, {"name": "never", "task": "t"})
        raise psycopg.Rollback
    assert noted(conn) == []


@pytest.mark.long
def test_changes_made_by_the_leader_are_not_noted(conn: psycopg.Connection[Any], db: psycopg.Connection[Any]) -> None:
    jobs.add(conn, {"name": "tick", "schedule": "@every 1s", "task": "t"})
    jobs.add(conn, {"name": "once", "task": "t", "delete_after_run": True})
    queues.set_queue(conn, "q", {"concurrency_limit": 2})
    before = noted(conn)
    db.execute("INSERT INTO pgsched.pauses (what, resume_at) VALUES ('all', now() - interval '1 second')")
    loop = lead(db, prune_every_s=0.1)
    for _ in range(3):
        loop.run_once()
    db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE task = 't'")
    for _ in range(20):
        loop.run_once()
        db.execute("SELECT pg_sleep(0.02)")
    db.execute("DELETE FROM pgsched.pauses")
    assert db.execute("SELECT count(*) FROM pgsched.jobs").fetchone() == (1,), "the one-off is gone"
    assert noted(conn) == [*before, ("paused", "pause", "all")]


def test_a_long_value_is_noted_by_its_beginning(conn: psycopg.Connection[Any]) -> None:
    jobs.add(conn, {"name": "big", "task": "t", "args": {"text": "x" * 100_000}})
    kept = changes(conn)[0]["change"]["args"]
    assert kept.startswith('{"text": "xxx')
    assert "100012 bytes" in kept
    assert len(kept) < 600


def test_the_login_and_the_role_it_acted_as_are_noted(
    logins: Logins, db: psycopg.Connection[Any], conn: psycopg.Connection[Any]
) -> None:
    alice, group = logins.connect("alice"), logins.name("group")
    db.execute(f'CREATE ROLE "{group}"; GRANT pgsched_producer TO "{group}"'.encode())
    try:
        db.execute(f'GRANT "{group}" TO "{logins.name("alice")}"'.encode())
        alice.execute(f'SET ROLE "{group}"'.encode())
        alice.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('ours', 't')")
        found = changes(conn)[0]
        assert (found["who"], found["acting_as"]) == (logins.name("alice"), group)
        assert changes(conn, who=group) == changes(conn, who=logins.name("alice")) == [found]
    finally:
        alice.close()
        db.execute(f'DROP ROLE "{group}"'.encode())


def test_an_unknown_kind_of_object_is_refused(conn: psycopg.Connection[Any]) -> None:
    with pytest.raises(InputError, match="not one of job"):
        changes(conn, "jobs")


def test_the_audit_command_lists_changes(conn: psycopg.Connection[Any], dsn: str, capsys: Any) -> None:
    from pgsched.cli import run

    jobs.add(conn, {"name": "a", "task": "t"})
    jobs.update(conn, "a", {"description": "\x1b[31mred"})
    said: Callable[..., int] = lambda *words: run(["audit", *words, "--dsn", dsn])  # noqa: E731
    assert said("job", "a", "--since", "1h") == 0
    text = capsys.readouterr().out
    assert "description: null -> \\x1b[31mred" in text
    assert "\x1b" not in text
    assert said("--json", "--limit", "1") == 0
    assert '"action": "changed"' in capsys.readouterr().out
    assert said("nonsense") == 2


def test_old_entries_are_pruned_and_only_the_owner_sets_their_age(logins: Logins, db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.audit (at, action, what, name) SELECT now() - make_interval(days => d), 'created',"
               " 'job', 'j' || d FROM generate_series(0, 800, 100) d")  # fmt: skip
    kept = "SELECT count(*) FROM pgsched.audit WHERE name LIKE 'j%'"
    leader, operator = logins.connect("leader"), logins.connect("ops")
    assert leader.execute("SELECT pgsched.prune_audit(2)").fetchone() == (2,)
    assert leader.execute("SELECT pgsched.prune_audit(1000)").fetchone() == (3,)
    assert db.execute(kept.encode()).fetchone() == (4,)
    for who, statement in (
        (operator, "UPDATE pgsched.retention SET keep_audit = '1 day'"),
        (operator, "SELECT pgsched.prune_audit(1000)"),
        (leader, "DELETE FROM pgsched.audit"),
        (logins.connect("worker"), "SELECT pgsched.prune_audit(1000)"),
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            who.execute(statement.encode())
    operator.execute("UPDATE pgsched.retention SET archive = false")
    db.execute("UPDATE pgsched.retention SET keep_audit = '50 days'")
    with leader.transaction():
        retention.delete_other_rows(leader, 86_400, 1000)
    assert db.execute(kept.encode()).fetchone() == (1,)
    assert changes(db, "retention")[0]["change"]["keep_audit"] == ["400 days", "50 days"]


def test_only_a_console_can_name_the_person_for_whom_it_acts(logins: Logins, db: psycopg.Connection[Any]) -> None:
    for who in ("alice", "ops", "desk"):
        with connect(logins.dsn(who)) as opened:
            opened.acting_for = "carol@example.com"
            jobs.add(opened, {"name": who, "schedule": "0 2 * * *", "task": "t"})
            assert opened.execute("SELECT current_setting('pgsched.user', true)").fetchone() in ((None,), ("",))
    found = dict(db.execute("SELECT name, (who, for_user)::text FROM pgsched.audit").fetchall())
    login = logins.name
    assert found == {
        "alice": f"({login('alice')},)", "ops": f"({login('ops')},)", "desk": f"({login('desk')},carol@example.com)",
    }  # fmt: skip


def test_without_the_check_of_the_role_any_login_could_name_any_person(
    logins: Logins, db: psycopg.Connection[Any]
) -> None:
    row = db.execute("SELECT pg_get_functiondef('pgsched.acting_for()'::regprocedure)").fetchone()
    assert row is not None
    guard = "pg_has_role(session_user, r.oid, 'MEMBER')"
    assert guard in row[0]
    db.execute(row[0].replace(guard, "true").encode())
    with connect(logins.dsn("alice")) as opened:
        opened.acting_for = "carol@example.com"
        jobs.add(opened, {"name": "mine", "schedule": "0 2 * * *", "task": "t"})
    assert db.execute("SELECT for_user FROM pgsched.audit").fetchone() == ("carol@example.com",)


def test_the_audit_is_filtered_by_the_person(conn: Any) -> None:
    conn.acting_for = "carol"
    jobs.add(conn, {"name": "hers", "schedule": "0 2 * * *", "task": "t"})
    conn.acting_for = None
    jobs.add(conn, {"name": "mine", "schedule": "0 2 * * *", "task": "t"})
    assert [row["name"] for row in changes(conn, who="carol")] == ["hers"]


def test_excluded_dates_and_drains_are_noted(logins: Logins, db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)"
               " VALUES ('w:1', 'w', 1, '0', 1, '{task}', '{t}', '1 min')")  # fmt: skip
    with connect(logins.dsn("alice")) as hers:
        jobs.add(hers, {"name": "nightly", "schedule": "0 2 * * *", "task": "t"})
    with connect(logins.dsn("ops")) as opened:
        calendars.add_dates(opened, "nightly", date(2026, 12, 24), date(2030, 1, 1), "never")
        calendars.remove(opened, "nightly", date(2026, 12, 24), date(2030, 1, 1))
        workers.drain(opened, 1, None)
        jobs.delete(opened, "nightly")
        found = [(row["who"], row["action"], row["what"], row["name"], row["change"]) for row in changes(opened)]
    ops, span = logins.name("ops"), ["2026-12-24", "2030-01-01", "never"]
    assert found[3:1:-1] == [
        (ops, "changed", "job", "nightly", {"excluded": [None, span]}),
        (ops, "changed", "job", "nightly", {"excluded": [span, None]}),
    ]
    assert found[1][:4] == (ops, "drained", "worker", "w:1")
    assert found[0][:4] == (ops, "deleted", "job", "nightly") and len(found) == 5
