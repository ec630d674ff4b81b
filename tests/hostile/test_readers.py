"""The functions that read slots, jobs and runs show each role what row security lets it see, and change nothing."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.db.passing import keep_next_slots, lead
from tests.support.logins import Logins, not_refused, one

# Each function about a job, with what it must not show of alice's to bob.
ABOUT_A_JOB = ("preview('hers')", "explain('hers')", "explain('hers', now())", "recent_runs('hers')",
               "job_status('hers')", "slots('hers', '-infinity')")  # fmt: skip
READERS = {"preview", "explain", "recent_runs", "job_status", "slots"}
PARTS_OF_READERS = {
    "known_slots", "next_slot", "row_of_slot", "explain_run", "explain_row", "explain_rowless",
    "run_figures", "job_named", "job_stands", "holds", "waited_for", "excluded_date", "first_start",
    "excluded_at", "excluded_mark", "describe_times", "last_error", "offered_tasks",
    "leader_absences", "no_leader",
}  # fmt: skip


@pytest.fixture
def two(logins: Logins, db: psycopg.Connection[Any]) -> Logins:
    """Give alice and bob a job each, with next slots, excluded dates, a run that ended and one that did not."""
    for who, job in (("alice", "hers"), ("bob", "his")):
        conn = logins.connect(who)
        conn.execute("INSERT INTO jobs (name, task, schedule) VALUES (%s, 't', '@hourly')", [job])
        conn.execute("INSERT INTO job_calendars (job_id, from_date, reason) SELECT id, current_date + n, %s"
                     " FROM jobs, generate_series(0, 9) n", [f"{who}'s holidays"])  # fmt: skip
        conn.execute("SELECT trigger(%s)", [job])
        run = one(conn, "SELECT enqueue(%s)", f"task of {who}")
        conn.execute("SELECT cancel(%s, %s)", [run, f"said by {who}"])
    lead(db)
    keep_next_slots(db)
    return logins


def test_no_reader_runs_with_other_rights_than_the_caller_s(db: psycopg.Connection[Any], two: Logins) -> None:
    found = {name: (definer, volatile) for name, definer, volatile in db.execute(
        "SELECT proname::text, prosecdef, provolatile::text FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace"
        " AND proname = ANY (%s)", [list(READERS | PARTS_OF_READERS)])}  # fmt: skip
    assert found == dict.fromkeys(READERS | PARTS_OF_READERS, (False, "s"))


def test_another_owner_s_job_is_unknown(two: Logins) -> None:
    bob = two.connect("bob")
    for call in ABOUT_A_JOB:
        with pytest.raises(psycopg.errors.NoDataFound) as refused:
            bob.execute(f"SELECT * FROM {call}".encode())
        assert refused.value.diag.message_primary in (
            'job: there is no job named "hers"', 'job: there is no job named "hers"; did you mean his?'
        )  # fmt: skip


@pytest.mark.parametrize(
    ("who", "jobs"), [("alice", {"hers"}), ("bob", {"his"}), ("ops", {"hers", "his"}), ("eye", {"hers", "his"})]
)
def test_a_role_reads_its_own_jobs_and_runs(two: Logins, who: str, jobs: set[str]) -> None:
    conn = two.connect(who)
    owners = {"hers": "alice", "his": "bob"}
    assert {name for (name,) in conn.execute("SELECT name FROM job_status()")} == jobs
    seen = {task for (task,) in conn.execute("SELECT task FROM recent_runs()")}
    assert seen == {"t"} | {f"task of {owners[job]}" for job in jobs}
    assert {job for (job,) in conn.execute("SELECT of_job FROM recent_runs() WHERE of_job IS NOT NULL")} == jobs
    for job in jobs:
        notes = conn.execute("SELECT slot IS NOT NULL, note FROM preview(%s)", [job]).fetchall()
        assert len(notes) == 5 and all(slot and f"{owners[job]}'s holidays" in note for slot, note in notes)
        assert " of job " + job in one(conn, "SELECT explain(%s)", job)
        assert len(conn.execute("SELECT FROM slots(%s, '-infinity')", [job]).fetchall()) == 1
        assert len(conn.execute("SELECT FROM recent_runs(%s)", [job]).fetchall()) == 1


def test_parts_of_the_readers_show_no_more(two: Logins, db: psycopg.Connection[Any]) -> None:
    """A producer may call them with what it likes, and with rows that it makes up."""
    bob, hers = two.connect("bob"), one(db, "SELECT id FROM pgsched.jobs WHERE name = 'hers'")
    run = one(db, "SELECT id FROM pgsched.runs WHERE task = 'task of alice'")
    made_up = f"jsonb_populate_record(NULL::pgsched.jobs, to_jsonb(j) || '{{\"id\": {hers}}}')"
    nothing = (
        f"run_figures({run})", f"row_of_slot({hers}, (SELECT max(scheduled_at) FROM runs))",
        f"(SELECT known_slots({made_up}) FROM jobs j)",
    )  # fmt: skip
    for call in nothing:
        rows = bob.execute(f"SELECT x.* FROM {call} x".encode()).fetchall()
        assert all(value is None for row in rows for value in row), call
    assert one(bob, f"SELECT excluded_date({hers}, current_date)") is None
    assert one(bob, f"SELECT first_start({run}, NULL)") is None
    assert bob.execute("SELECT count(*) FROM next_slots").fetchone() == (1,)


def test_without_a_role_nothing_is_read(two: Logins) -> None:
    assert not_refused(two.connect("nobody"), *(f"SELECT * FROM pgsched.{call}" for call in ABOUT_A_JOB)) == {}


@pytest.mark.parametrize("who", ["alice", "worker", "ops", "eye"])
def test_next_slots_are_written_by_the_leader_alone(two: Logins, who: str) -> None:
    conn = two.connect(who)
    statements = ("UPDATE next_slots SET rules = 'x'", "DELETE FROM next_slots", "LOCK next_slots IN EXCLUSIVE MODE",
                  "INSERT INTO next_slots (job_id) VALUES (1)", "SELECT FROM next_slots FOR UPDATE")  # fmt: skip
    assert not_refused(conn, *statements) == {}
    assert not_refused(conn, "SELECT nextval('runs_id_seq')", "SELECT setval('runs_id_seq', 1)") == {}


def test_the_leader_s_role_keeps_next_slots(two: Logins, db: psycopg.Connection[Any]) -> None:
    db.execute("DELETE FROM pgsched.next_slots")
    keep_next_slots(two.connect("leader"))
    assert one(db, "SELECT count(*) FROM pgsched.next_slots") == 2
    two.connect("alice").execute("SELECT delete_job('hers')")
    assert one(db, "SELECT count(*) FROM pgsched.next_slots") == 1, "a producer's delete takes the slots with it"


def test_a_producer_s_newest_runs_are_looked_for_among_a_bounded_number(
    two: Logins, db: psycopg.Connection[Any]
) -> None:
    """Row security is a filter: a producer with few runs would read the runs of all others."""
    bob = two.connect("bob")
    assert len(bob.execute("SELECT FROM recent_runs()").fetchall()) == 2
    db.execute("SELECT setval('pgsched.runs_id_seq', 100001)")
    assert len(bob.execute("SELECT FROM recent_runs()").fetchall()) == 2
    db.execute("SELECT setval('pgsched.runs_id_seq', 100100)")
    assert bob.execute("SELECT FROM recent_runs()").fetchall() == []
    assert len(bob.execute("SELECT FROM recent_runs('his')").fetchall()) == 1, "of a job they are found by its index"
    assert len(db.execute("SELECT FROM pgsched.recent_runs()").fetchall()) == 4, (
        "without row security there is no bound"
    )
