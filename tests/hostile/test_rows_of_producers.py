"""No row that a producer may make stops a duty, ends a process or delays the work of others.

Each statement is sent by the least privileged login that can send it, in some tests beside the work of bob.
"""

from __future__ import annotations

import psycopg
import pytest

from tests.support.hostile.victim import TASK, Victim
from tests.support.logins import Logins, not_refused, one
from tests.support.waiting import wait_until

pytestmark = pytest.mark.pg14

INSERT = "INSERT INTO runs (task, state, available_at, options) VALUES ('x', 'waiting', {}, {})"
# values that only the leader may write into a run, and the refusal that a producer gets
MARKED = [
    ("'8998-01-01 00:00Z'", "'{\"after_jobs\": [null]}'", "available_at: "),
    ("'8998-01-01 00:00Z'", "NULL", "available_at: "),
    ("'9000-01-01 00:00Z'", "NULL", "available_at: "),
    ("'8999-06-01 00:00Z'", "NULL", "available_at: "),
    ("'8999-01-01 00:00Z'", "'\"abc\"'", "options: must be a JSON object"),
    ("'8999-01-01 00:00Z'", "'[]'", "options: must be a JSON object"),
    ("'8999-01-01 00:00Z'", "'null'", "options: must be a JSON object"),
    ("'8999-01-01 00:00Z'", '\'{"not_before": "31/12/2026 00:00"}\'', "options: not_before"),
    ("'8999-01-01 00:00Z'", '\'{"not_before": "2026-13-45T00:00:00Z"}\'', "options: not_before"),
    ("'8999-01-01 00:00Z'", '\'{"not_before": "infinity"}\'', "options: not_before"),
    ("'8999-01-01 00:00Z'", '\'{"not_before": "9998-01-01T00:00:00Z"}\'', "options: not_before"),
    ("'8999-01-01 00:00Z'", "'{\"not_before\": null}'", "options: not_before"),
    ("'8999-01-01 00:00Z'", "'{\"overlap\": true}'", "options: after_jobs and overlap"),
    ("now()", "'{\"after_jobs\": []}'", "options: after_jobs and overlap"),
    ("now()", '\'{"after_match": "latest"}\'', "options: after_match and ping_url"),
    ("now()", '\'{"ping_url": "https://example.com"}\'', "options: after_match and ping_url"),
    ("now()", '\'{"not_before": "2026-01-01T00:00:00Z"}\'', "options: not_before"),
    ("now()", "(repeat('[', 300) || repeat(']', 300))::jsonb", "options: must be a JSON object"),
    ("now()", "('{\"a\":' || repeat('[', 300) || repeat(']', 300) || '}')::jsonb", "options: nested"),
]


@pytest.mark.few(5)
@pytest.mark.parametrize(("available_at", "options", "refusal"), MARKED)
def test_a_producer_cannot_write_markers_of_the_leader(
    available_at: str, options: str, refusal: str, logins: Logins
) -> None:
    alice = logins.connect("alice")
    alice.execute("SET DateStyle = 'ISO, DMY'")
    with pytest.raises(psycopg.errors.CheckViolation, match=f"^{refusal}"):
        alice.execute(INSERT.format(available_at, options).encode())


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", ["command", "shell"])
@pytest.mark.parametrize("codes", ["5", "[]", "{}", '["0"]', "[256]", "[-1]", "[1.5]", "[null]", '"0"'])
def test_exit_codes_of_the_wrong_shape_are_refused(kind: str, codes: str, logins: Logins) -> None:
    alice = logins.connect("alice")
    for name in ("success_codes", "retry_codes", "dead_codes"):
        with pytest.raises(psycopg.errors.CheckViolation, match=rf"^options\.{name}"):
            alice.execute("INSERT INTO runs (kind, task, options) VALUES (%s, 'true', %s)",
                          [kind, f'{{"{name}": {codes}}}'])  # fmt: skip
    right = '{"success_codes": [0, 255], "retry_codes": null}'
    alice.execute("INSERT INTO runs (kind, task, options) VALUES (%s, 'true', %s)", [kind, right])


def test_a_waiting_run_may_be_inserted_in_any_date_style(logins: Logins) -> None:
    alice = logins.connect("alice")
    alice.execute("SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Asia/Kathmandu'")
    options = "jsonb_build_object('not_before', now() + interval '1 hour', 'trace', '{}'::jsonb)"
    alice.execute(INSERT.format("'8999-01-01 00:00Z'", options).encode())


def test_meet_run_writes_no_marker_of_the_leader(logins: Logins) -> None:
    alice = logins.connect("alice")
    parent = one(alice, "SELECT enqueue('t')")
    run = one(alice, "SELECT enqueue('t', unique_key => 'k', after => ARRAY[%s::bigint])", parent)
    for at in ("'infinity'", "'-infinity'", "'8998-01-01Z'", "'9000-01-01Z'"):
        for conflict in ("replace", "keep_time"):
            with pytest.raises(psycopg.errors.CheckViolation, match=r"^at: "):
                alice.execute(f"SELECT meet_run({run}, '{conflict}', 't', '{{}}', {at})".encode())
        with pytest.raises(psycopg.errors.CheckViolation, match=r"^at: |^available_at: "):
            alice.execute(f"INSERT INTO runs (task, state, available_at) VALUES ('x', 'waiting', {at})".encode())


def test_a_run_outside_a_job_gets_no_key_of_a_job_s_limit(logins: Logins) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    job = one(bob, "INSERT INTO jobs (name, task, concurrency_limit) VALUES ('bobs', 't', 1) RETURNING id")
    for key in (f"job:{job}", f"job:{job}:x", "job", "job:"):
        with pytest.raises(psycopg.errors.CheckViolation, match=r"^concurrency_key: job:"):
            alice.execute("INSERT INTO runs (task, concurrency_key) VALUES ('t', %s)", [key])
        with pytest.raises(psycopg.errors.CheckViolation, match=r"^concurrency_key: job:"):
            alice.execute("SELECT enqueue('t', concurrency_key => %s)", [key])
    made = "INSERT INTO runs (task, concurrency_key, args) VALUES ('t', '{a}', %s) RETURNING concurrency_key"
    assert one(alice, made, f'{{"a": "job:{job}"}}') == f"-job:{job}"
    alice.execute("INSERT INTO jobs (name, task, concurrency_key) VALUES ('hers', 't', %s)", [f"job:{job}"])
    run = one(alice, "SELECT pgsched.trigger('hers')")
    assert one(alice, "SELECT concurrency_key FROM runs WHERE id = %s", run) == f"-job:{job}"


def test_a_key_template_is_expanded_only_once(logins: Logins) -> None:
    alice = logins.connect("alice")
    key = "SELECT run_key(NULL, %s, NULL, %s)"
    assert one(alice, key, "{a}-{b}", '{"a": "{b}", "b": 1}') == "{b}-1"
    assert one(alice, key, "x{a{b}}{}", '{"b": 1}') == "x{a1}{}"
    assert one(alice, key, "{0}:{1}{2}", '["a", null]') == "a:"
    long = one(alice, key, "{a}", '{"a": "' + "x" * 5000 + '"}')
    other = one(alice, key, "{a}", '{"a": "' + "x" * 4999 + 'y"}')
    assert len(long) <= 200
    assert long != other, "a long value is cut, but stays apart from another"
    assert len(one(alice, key, "{a}" * 60, '{"a": "' + "y" * 900_000 + '"}')) <= 200


def test_braces_in_a_value_take_no_run_out_of_its_job_s_limit(logins: Logins, db: psycopg.Connection) -> None:
    alice = logins.connect("alice")
    job = one(alice, "INSERT INTO jobs (name, task, schedule, concurrency_key, concurrency_limit, args)"
              " VALUES ('hers', 't', '@every 1s', '{doc}', 1, '{\"doc\": \"{a}\"}') RETURNING id")  # fmt: skip
    run = one(alice, "SELECT pgsched.trigger('hers')")
    assert one(alice, "SELECT concurrency_key FROM runs WHERE id = %s", run) == f"job:{job}:{{a}}"
    known = '[{"task": "t", "release": "1", "options": {"concurrency_key": "doc:{doc}"}}]'
    logins.connect("worker").execute("SELECT register_tasks('app', %s)", [known])
    alice.execute("UPDATE jobs SET concurrency_key = NULL, concurrency_limit = NULL")
    run = one(alice, "SELECT pgsched.trigger('hers')")
    assert one(alice, "SELECT concurrency_key FROM runs WHERE id = %s", run) == "doc:{a}", "the task's is a template"


def test_deep_arguments_are_refused_however_they_come(logins: Logins) -> None:
    alice = logins.connect("alice")
    for depth in (202, 3000):
        deep = "[" * depth + "]" * depth
        for statement in (
            "INSERT INTO runs (task, args) VALUES ('t', %s)",
            "SELECT enqueue('t', %s)",
            "INSERT INTO jobs (name, task, args) VALUES ('j', 't', %s)",
        ):
            with pytest.raises(psycopg.errors.CheckViolation, match=r"^args: nested"):
                alice.execute(statement.encode(), [deep])
        alice.execute("CREATE TEMP TABLE IF NOT EXISTS mine (args jsonb)")
        alice.execute("INSERT INTO mine VALUES (%s)", [deep])
    with pytest.raises(psycopg.errors.CheckViolation, match=r"^args: nested"):
        alice.execute("INSERT INTO runs (task, args) SELECT 't', args FROM mine")  # compressed, so that it looks small
    alice.execute("DROP TABLE mine")
    alice.execute("INSERT INTO runs (task, args) VALUES ('t', %s)", ["[" * 200 + "]" * 200])


def test_large_arguments_are_refused_however_they_come(logins: Logins) -> None:
    alice = logins.connect("alice")
    half = "x" * 600_000  # compressed it takes a hundredth
    alice.execute("CREATE TEMP TABLE mine (args jsonb)")
    alice.execute("INSERT INTO mine SELECT jsonb_build_object('a', %s::text, 'b', %s::text)", [half, half])
    alice.execute("SELECT enqueue('t', unique_key => 'k')")
    for statement in (
        "INSERT INTO runs (task, args) SELECT 't', args FROM mine",
        "INSERT INTO runs (kind, task, args) SELECT 'command', 'true', args FROM mine",
        "INSERT INTO jobs (name, task, args) SELECT 'j', 't', args FROM mine",
        "SELECT enqueue('t', args) FROM mine",
        "SELECT enqueue('t', args, unique_key => 'k', on_conflict => 'replace') FROM mine",
    ):
        with pytest.raises(psycopg.errors.CheckViolation, match=r"^args: \d+ bytes"):
            alice.execute(statement.encode())
    alice.execute("DROP TABLE mine")


def test_backfills_are_made_only_by_the_function_and_span_at_most_100_years(logins: Logins) -> None:
    alice = logins.connect("alice")
    alice.execute("INSERT INTO jobs (name, task, schedule) VALUES ('bf', 't', '0 0 29 2 *')")
    for who in ("alice", "ops", "worker"):
        wrong = not_refused(
            logins.connect(who),
            "INSERT INTO backfills (job_id, job, schedule, timezone, anchor_at, from_at, to_at, slots, reverse)"
            " SELECT id, name, schedule, timezone, anchor_at, '1970-01-01', '9000-01-01', 1, true FROM jobs",
            "UPDATE backfills SET slots = 1",
        )
        assert wrong == {}, who
    with pytest.raises(psycopg.errors.CheckViolation, match="longer than 100 years"):
        alice.execute("SELECT backfill('bf', '1970-01-01', '2071-01-01')")


@pytest.mark.long
def test_a_job_whose_key_has_braces_in_its_values_delays_nobody(victim: Victim) -> None:
    victim.logins.connect("alice").execute(
        "INSERT INTO jobs (name, task, schedule, concurrency_key, args) VALUES ('hers', %s, '@every 1s', '{a}{b}',"
        " jsonb_build_object('a', repeat('{b}', 900), 'b', repeat('x', 1000000)))",
        [TASK],
    )
    victim.unharmed()


OF_BEFORE = [
    ("8998-01-01Z", '{"after_jobs": [null]}'),
    ("8998-01-01Z", '{"after_jobs": 5}'),
    ("8998-01-01Z", "[1]"),
    ("8998-01-01Z", None),
    ("8999-01-01Z", '"abc"'),
    ("8999-01-01Z", "[1]"),
    ("8999-01-01Z", '{"not_before": "31/12/2026 00:00"}'),
    ("8999-01-01Z", '{"not_before": {"a": 1}}'),
]


@pytest.mark.long
def test_invalid_rows_from_before_the_checks_stop_no_duty(victim: Victim) -> None:
    with victim.db.transaction():
        victim.db.execute("SET LOCAL session_replication_role = replica")
        for available_at, options in OF_BEFORE:
            victim.db.execute("INSERT INTO pgsched.runs (task, state, phase, available_at, options, owner)"
                              " VALUES (%s, 'waiting', 0, %s, %s, %s)",
                              [TASK, available_at, options, victim.logins.name("alice")])  # fmt: skip
    victim.db.execute("NOTIFY pgsched_leader, 'runs'")
    left = "SELECT count(*) FROM pgsched.runs WHERE owner = %s AND finished_at IS NULL"
    wait_until(lambda: one(victim.db, left, victim.logins.name("alice")) == 0, 15, "each of them to end")
    victim.unharmed()
    assert one(victim.db, "SELECT count(*) FROM pgsched.set_aside") == 0


@pytest.mark.long
def test_the_longest_backfills_delay_nobody(victim: Victim) -> None:
    alice = victim.logins.connect("alice")
    alice.execute("INSERT INTO jobs (name, task, schedule, timezone) VALUES ('often', %s, '* * * * * *', 'UTC'),"
                  " ('seldom', %s, '0 0 29 2 *', 'Pacific/Kiritimati')", [TASK, TASK])  # fmt: skip
    decided = "SELECT bool_and(decided_until > '2000-01-01') FROM jobs"
    wait_until(lambda: one(alice, decided), 15, "the jobs to be planned")
    alice.execute("UPDATE jobs SET paused = true")
    for _ in range(10):
        for job in ("often", "seldom"):
            for reverse in (True, False):
                alice.execute("SELECT backfill(%s, '1970-01-01', now(), reverse => %s)", [job, reverse])
    victim.unharmed()
    ended = "SELECT count(*) FROM backfills WHERE finished_at IS NULL"
    wait_until(lambda: one(alice, ended) == 0, 60, "the backfills to end")
    victim.unharmed()


def test_a_row_with_which_a_duty_fails_is_set_aside_and_stops_nobody(victim: Victim) -> None:
    run = one(victim.logins.connect("alice"), "SELECT enqueue(%s, delay => '0.2 s', queue => 'poison')", TASK)
    victim.db.execute(
        "CREATE FUNCTION public.poison() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION USING ERRCODE = 'XX000', MESSAGE = 'poisoned'; END $$;"
        " CREATE TRIGGER poison BEFORE UPDATE ON pgsched.runs FOR EACH ROW WHEN (OLD.queue = 'poison')"
        " EXECUTE FUNCTION public.poison()"
    )
    found = "SELECT count(*) FROM pgsched.set_aside WHERE (duty, row_id) = ('scheduled runs', %s)"
    wait_until(lambda: one(victim.db, found, str(run)) == 1, 15, "the row to be set aside")
    victim.unharmed()
