"""The table `jobs` itself checks and completes its rows, whatever program writes them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import psycopg
import pytest
from psycopg import sql

from tests.support.db.inserting import add, job

# (column, value, the beginning of the message)
BAD = [
    ("name", "", "name: must not be empty"),
    ("name", "x" * 201, "name: 201 characters, at most 200 are allowed"),
    ("name", "a\nb", "name: must not contain control characters"),
    ("name", " a", "name: must not begin or end with a space"),
    ("kind", "magic", 'kind: "magic" is not one of task, command, shell, sql, http'),
    ("kind", None, "kind: must not be null"),
    ("task", "", "task: must not be empty"),
    ("task", " ", "task: must not be empty"),
    ("task", "x" * 65_537, "task: 65537 characters, at most 65536 are allowed"),
    ("task", "x" * 201, "task: 201 characters, at most 200 are allowed"),
    ("args", '"text"', "args: must be a JSON object or array, not a string"),
    ("args", "null", "args: must be a JSON object or array, not a null"),
    ("args", None, "args: must not be null"),
    ("queue", "", "queue: must not be empty"),
    ("queue", "x" * 101, "queue: 101 characters, at most 100 are allowed"),
    ("priority", 10, "priority: 10 is out of range 0-9"),
    ("priority", -1, "priority: -1 is out of range 0-9"),
    ("schedule", "61 * * * *", "minute: 61 is out of range 0-59"),
    ("schedule", "* * *", "schedule: "),
    ("timezone", "Mars/Olympus", 'timezone: "Mars/Olympus" is not a known IANA zone'),
    ("run_at", "infinity", "run_at: infinity is not an instant between 1970 and 9000"),
    ("starts_at", "1901-01-01Z", "starts_at: "),
    ("ends_at", "9999-01-01Z", "ends_at: "),
    ("max_runs", 0, "max_runs: 0 is less than 1"),
    ("jitter", "-1s", "jitter: -00:00:01 is less than 00:00:00"),
    ("jitter", "11 years", "jitter: 11 years is more than 10 years"),
    ("jitter", None, "jitter: must not be null"),
    ("delete_after_run", None, "delete_after_run: must not be null"),
    ("overlap", "maybe", 'overlap: "maybe" is not one of allow, skip, buffer_one, buffer_all, replace, terminate'),
    ("max_buffer", 0, "max_buffer: 0 is out of range 1-100000"),
    ("retry_within", "-1s", "retry_within: -00:00:01 is less than 00:00:00"),
    ("misfire_after", "-1s", "misfire_after: "),
    ("catch_up", "maybe", 'catch_up: "maybe" is not one of latest, skip, earliest, all'),
    ("max_catch_up", 10_001, "max_catch_up: 10001 is out of range 1-10000"),
    ("catch_up_window", None, "catch_up_window: must not be null"),
    ("start_deadline", "0s", "start_deadline: 00:00:00 is less than 00:00:01"),
    ("max_attempts", 0, "max_attempts: 0 is out of range 1-1000"),
    ("max_attempts", 1001, "max_attempts: 1001 is out of range 1-1000"),
    ("timeout", "0s", "timeout: 00:00:00 is less than 00:00:00.001"),
    ("kill_after", "-1s", "kill_after: "),
    ("backoff", "maybe", 'backoff: "maybe" is not one of exponential, fixed, linear'),
    ("backoff_base", "-1s", "backoff_base: "),
    ("backoff_max", "-1s", "backoff_max: "),
    ("backoff_jitter", 1.5, "backoff_jitter: 1.5 is out of range 0-1"),
    ("backoff_jitter", float("nan"), "backoff_jitter: NaN is out of range 0-1"),
    ("success_codes", None, "success_codes: must not be null"),
    ("success_codes", "{}", "success_codes: must name at least one exit code"),
    ("success_codes", "{{0}}", "success_codes: must be a plain list"),
    ("retry_codes", "{1,256}", "retry_codes: 256 is out of range 0-255"),
    ("dead_codes", "{NULL}", "dead_codes: must not hold null"),
    ("concurrency_limit", -1, "concurrency_limit: -1 is out of range 0-1000000"),
    ("paused", None, "paused: must not be null"),
    ("paused_by", "x" * 201, "paused_by: 201 characters, at most 200 are allowed"),
    ("paused_reason", "x" * 10_001, "paused_reason: 10001 characters, at most 10000 are allowed"),
    ("description", "x" * 65_537, "description: 65537 characters, at most 65536 are allowed"),
    ("tags", "{a,NULL}", "tags: must not hold null"),
    ("tags", "{{a}}", "tags: must be a plain list"),
    ("tags", "{a,''}".replace("''", '""'), "tags: must not be empty"),
    ("tags", "{" + "x" * 201 + "}", "tags: 201 characters, at most 200 are allowed"),
    ("tags", "{" + ",".join(["x"] * 101) + "}", "tags: 101 tags, at most 100 are allowed"),
    ("owner", "nobody at all", 'owner: there is no role "nobody at all"'),
]


def now(db: psycopg.Connection) -> datetime:
    row = db.execute("SELECT clock_timestamp()").fetchone()
    assert row is not None
    return row[0]


def planned(db: psycopg.Connection, ago: str) -> None:
    """Make the job look as the leader left it `ago`: decided until then, and the next slot known."""
    db.execute(
        "UPDATE pgsched.jobs SET next_run_at = clock_timestamp() - %s::interval, "
        "decided_until = greatest(decided_until, clock_timestamp() - %s::interval - interval '1 minute')",
        [ago, ago],
    )


def backdate(db: psycopg.Connection) -> None:
    db.execute("ALTER TABLE pgsched.jobs DISABLE TRIGGER b_high_water_mark")
    db.execute("UPDATE pgsched.jobs SET decided_until = clock_timestamp() - interval '1 day'")
    db.execute("ALTER TABLE pgsched.jobs ENABLE TRIGGER b_high_water_mark")


@pytest.mark.parametrize(("column", "value", "message"), BAD)
def test_a_bad_value_is_refused_with_its_field_and_reason(
    db: psycopg.Connection, column: str, value: Any, message: str
) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        add(db, **{column: value})
    inserted = refusal.value.diag
    assert (inserted.message_primary or "").startswith(message)
    assert (inserted.schema_name, inserted.table_name) == ("pgsched", "jobs")
    assert inserted.column_name == message.split(":", maxsplit=1)[0]
    add(db)
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        db.execute(sql.SQL("UPDATE pgsched.jobs SET {} = %s").format(sql.Identifier(column)), [value])
    assert refusal.value.diag.message_primary == inserted.message_primary


@pytest.mark.parametrize("kind", ["shell", "sql", "command"])
def test_a_text_that_is_no_python_name_may_be_long_and_have_lines(db: psycopg.Connection, kind: str) -> None:
    add(db, kind=kind, task="x" * 300 + "\n" + "y")


def test_a_shell_job_takes_an_object(db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="args: a shell job takes a JSON object"):
        add(db, kind="shell", args="[1]")


def test_two_values_that_do_not_fit_each_other_are_refused(db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="run_at: a job has either a schedule or run_at, not both"):
        add(db, schedule="@daily", run_at="2030-01-01Z")
    with pytest.raises(psycopg.errors.CheckViolation, match="ends_at: must be later than starts_at"):
        add(db, schedule="@daily", starts_at="2030-01-02Z", ends_at="2030-01-01Z")
    with pytest.raises(psycopg.errors.CheckViolation, match='retry_within: is for overlap "skip" alone, not "allow"'):
        add(db, schedule="@daily", retry_within="1h", overlap="allow")
    with pytest.raises(psycopg.errors.CheckViolation, match="start_deadline: must be longer than jitter"):
        add(db, schedule="@daily", start_deadline="1h", jitter="1h")
    with pytest.raises(psycopg.errors.CheckViolation, match="delete_after_run: is for jobs that run once"):
        add(db, schedule="@daily", delete_after_run=True)
    for run_at in ("2030-01-03Z", "2029-12-31Z", None):
        with pytest.raises(psycopg.errors.CheckViolation, match="run_at: must lie between starts_at and ends_at"):
            add(db, run_at=run_at, starts_at="2030-01-01Z", ends_at="2030-01-02Z")


def test_ten_megabytes_of_arguments_are_refused(db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match=r"args: 1\d{7} bytes, at most 1048576 are allowed"):
        db.execute(
            "INSERT INTO pgsched.jobs (name, task, args) "
            "VALUES ('a', 't', jsonb_build_object('x', repeat('y', 10000000)))"
        )


def test_a_plain_insert_gets_the_defaults(db: psycopg.Connection) -> None:
    before = now(db)
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('a', '0 2 * * *', 'reports.build')")
    columns = ("kind", "args", "queue", "priority", "timezone", "overlap", "catch_up", "max_attempts", "paused")
    assert job(db, *columns) == ("task", {}, None, None, "UTC", "skip", "latest", None, False)
    created, anchor, decided, planned_at = job(db, "created_at", "anchor_at", "decided_until", "next_run_at")
    assert before <= created <= now(db)
    assert created == anchor == decided == planned_at
    assert job(db, "owner") == db.execute("SELECT current_user").fetchone()[0]


def test_bookkeeping_given_at_insert_is_ignored(db: psycopg.Connection) -> None:
    past = datetime(2001, 1, 1, tzinfo=UTC)
    add(db, schedule="@daily", created_at=past, anchor_at=past, decided_until=past, next_run_at=past, run_count=7,
        error="x")  # fmt: skip
    assert min(job(db, "created_at", "anchor_at", "decided_until", "next_run_at")) > past
    assert job(db, "run_count", "error") == (0, None)


def test_a_job_with_neither_schedule_nor_time_runs_once_now(db: psycopg.Connection) -> None:
    before = now(db)
    add(db)
    assert before <= job(db, "run_at") <= now(db)
    assert job(db, "next_run_at") == job(db, "run_at")


def test_a_schedule_that_starts_later_is_anchored_there(db: psycopg.Connection) -> None:
    start = datetime(2040, 1, 1, tzinfo=UTC)
    add(db, schedule="@every 1h", starts_at=start)
    assert job(db, "anchor_at") == start
    assert job(db, "decided_until") == job(db, "created_at"), "nothing is decided before its start"


def test_an_edit_of_the_schedule_moves_the_anchor_to_now(db: psycopg.Connection) -> None:
    add(db, schedule="@every 1h")
    first = job(db, "anchor_at")
    db.execute("UPDATE pgsched.jobs SET priority = 1, tags = '{a}'")
    assert job(db, "anchor_at") == first, "other columns do not move it"
    db.execute("UPDATE pgsched.jobs SET schedule = '@every 2h'")
    anchor, decided, planned_at = job(db, "anchor_at", "decided_until", "next_run_at")
    assert anchor > first
    assert anchor == decided == planned_at
    db.execute("UPDATE pgsched.jobs SET schedule = '@every 2h'")
    assert job(db, "anchor_at") == anchor, "the same schedule again is no edit"


def test_an_edit_clears_the_error(db: psycopg.Connection) -> None:
    add(db, schedule="@daily")
    db.execute("UPDATE pgsched.jobs SET error = 'x', error_at = now(), next_run_at = NULL")
    db.execute("UPDATE pgsched.jobs SET schedule = '@hourly'")
    assert job(db, "error", "error_at") == (None, None)
    assert job(db, "next_run_at") is not None


def test_a_slot_that_was_due_when_the_schedule_was_edited_is_noted_as_missed(db: psycopg.Connection) -> None:
    add(db, schedule="@daily")
    backdate(db)
    planned(db, "1 hour")
    mark = job(db, "decided_until")
    db.execute("UPDATE pgsched.jobs SET schedule = '@hourly'")
    rows = db.execute("SELECT state, schedule, after_at, reason FROM pgsched.passed_over").fetchall()
    assert rows == [("missed", "@daily", mark, "the schedule was edited before this slot was decided")]


def test_the_high_water_mark_cannot_be_lowered(db: psycopg.Connection) -> None:
    add(db, schedule="@hourly")
    mark = job(db, "decided_until")
    db.execute("UPDATE pgsched.jobs SET decided_until = '-infinity'")
    assert job(db, "decided_until") == mark
    db.execute("UPDATE pgsched.jobs SET decided_until = '-infinity', schedule = '@daily'")
    assert job(db, "decided_until") > mark
    later = datetime(2100, 1, 1, tzinfo=UTC)
    db.execute("UPDATE pgsched.jobs SET decided_until = %s", [later])
    assert job(db, "decided_until") == later


def test_a_one_off_cannot_be_moved_before_its_decided_time(db: psycopg.Connection) -> None:
    add(db, run_at="2030-01-01Z")
    db.execute("UPDATE pgsched.jobs SET decided_until = '2030-01-01Z', next_run_at = NULL")
    with pytest.raises(psycopg.errors.CheckViolation, match=r"run_at: .* is not later than .* already decided"):
        db.execute("UPDATE pgsched.jobs SET run_at = '2029-01-01Z'")
    db.execute("UPDATE pgsched.jobs SET run_at = '2031-01-01Z'")
    assert job(db, "next_run_at") == datetime(2031, 1, 1, tzinfo=UTC)


def test_deleting_a_job_cancels_what_has_not_started_and_keeps_the_rest(db: psycopg.Connection) -> None:
    number = add(db, schedule="@hourly")
    for hour, state in enumerate(["waiting", "scheduled", "queued", "running", "succeeded"]):
        db.execute(
            "INSERT INTO pgsched.runs (job_id, scheduled_at, state, task, token, lease_until, finished_at) "
            "VALUES (%s, '2026-01-01Z'::timestamptz + %s * interval '1 hour', %s, 't', gen_random_uuid(), now(), %s)",
            [number, hour, state, now(db) if state == "succeeded" else None],
        )
    db.execute("DELETE FROM pgsched.jobs")
    states = [row[0] for row in db.execute("SELECT state FROM pgsched.runs ORDER BY scheduled_at").fetchall()]
    assert states == ["cancelled", "cancelled", "cancelled", "running", "succeeded"]
    reason = db.execute("SELECT DISTINCT reason FROM pgsched.runs WHERE state = 'cancelled'").fetchall()
    assert reason == [("job a was deleted",)]


def test_identity_and_creation_cannot_be_changed(db: psycopg.Connection) -> None:
    number = add(db)
    created = job(db, "created_at")
    db.execute("UPDATE pgsched.jobs SET id = 99, created_at = '2001-01-01Z', description = 'x'")
    assert job(db, "id", "created_at") == (number, created)


def test_no_role_makes_a_job_that_runs_with_another_roles_rights(
    db: psycopg.Connection, connect: Callable[..., psycopg.Connection]
) -> None:
    role = f"pgsched_{db.info.dbname[-8:]}_writer"
    me = db.execute("SELECT current_user").fetchone()[0]
    db.execute(f'CREATE ROLE "{role}"')
    try:
        db.execute(f'GRANT USAGE ON SCHEMA pgsched TO "{role}"')
        db.execute(f'GRANT ALL ON ALL TABLES IN SCHEMA pgsched TO "{role}"')
        db.execute(f'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgsched TO "{role}"')
        add(db, name="mine")
        writer = connect()
        writer.execute(f'SET ROLE "{role}"')
        with pytest.raises(psycopg.errors.CheckViolation, match=f'owner: role "{role}" may not act for role "{me}"'):
            add(writer, owner=me)
        add(writer)
        with pytest.raises(psycopg.errors.CheckViolation, match="owner: role"):
            writer.execute("UPDATE pgsched.jobs SET owner = %s WHERE name = 'a'", [me])
        writer.execute("UPDATE pgsched.jobs SET paused = true WHERE name = 'mine'")
        assert owners(db) == {"a": role, "mine": me}
        writer.execute("UPDATE pgsched.jobs SET task = 'something.else' WHERE name = 'mine'")
        assert owners(db) == {"a": role, "mine": role}, "who says what runs becomes the owner"
        writer.close()
    finally:
        db.execute(f'DROP OWNED BY "{role}"')
        db.execute(f'DROP ROLE "{role}"')


def owners(db: psycopg.Connection) -> dict[str, str]:
    return dict(db.execute("SELECT name, owner::text FROM pgsched.jobs").fetchall())


def test_a_new_or_changed_job_notifies_the_leader(
    db: psycopg.Connection, connect: Callable[..., psycopg.Connection]
) -> None:
    listener = connect()
    listener.execute("LISTEN pgsched_leader")
    insert = "INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('a', 't', '@daily')"
    for statement in (
        insert,
        *(f"UPDATE pgsched.jobs SET {what}" for what in ("schedule = '@hourly'", "paused = true")),
    ):
        db.execute(statement)
        assert [n.payload for n in listener.notifies(timeout=5, stop_after=1)] == ["jobs"]


def test_a_job_that_was_to_run_once_can_be_given_a_schedule(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task) VALUES ('once', 't')")
    db.execute("UPDATE pgsched.jobs SET schedule = '@every 5s' WHERE name = 'once'")
    assert db.execute("SELECT schedule, run_at FROM pgsched.jobs").fetchone() == ("@every 5s", None)
    with pytest.raises(psycopg.errors.CheckViolation, match="either a schedule or run_at"):
        db.execute("UPDATE pgsched.jobs SET run_at = '2999-01-01'")
