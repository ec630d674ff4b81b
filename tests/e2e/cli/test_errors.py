"""Bad input and unusable databases give one clear line and an exit code of their own, never a traceback."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgsched.db.connection.bounded import PatientConnection
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

pytestmark = pytest.mark.packages

READS = [["status"], ["job", "list"], ["run", "list"], ["job", "show", "x"], ["run", "retry", "1"]]


def one_line(said: object, code: int, *words: str) -> None:
    assert said.code == code, said
    assert said.err.count("\n") == 1, said.err
    assert said.err.startswith("error: ")
    for word in words:
        assert word in said.err
    assert "Traceback" not in said.err


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--schedule", "61 * * * *"], "minute: 61 is out of range 0-59"),
        (["--schedule", "nonsense"], "schedule: "),
        (["--timezone", "Mars/Olympus"], "timezone: "),
        (["--priority", "10"], "priority: 10 is out of range 0-9"),
        (["--priority", "99999"], 'priority: value "99999" is out of range for type smallint'),
        (["--priority", "high"], 'priority: invalid input syntax for type smallint: "high"'),
        (["--timeout", "soon"], 'timeout: invalid input syntax for type interval: "soon"'),
        (["--timeout", "-1s"], "timeout: "),
        (["--run-at", "2026-99-01"], "run_at: "),
        (["--kind", "magic"], 'kind: "magic" is not one of'),
        (["--overlap", "maybe"], 'overlap: "maybe" is not one of'),
        (["--catch-up", "maybe"], 'catch_up: "maybe" is not one of'),
        (["--max-attempts", "0"], "max_attempts: 0 is out of range 1-1000"),
        (["--jitter", "1000 years"], "jitter: "),
        (["--queue", ""], "queue: must not be empty"),
        (["--args", "{not json"], "args: is not JSON"),
        (["--args", "null"], "args: must not be null"),
        (["--args", "NaN"], "args: "),
        (["--args", '"text"'], "args: must be a JSON object or array, not a string"),
        (["--args", '["\\u0000"]'], "args: holds a NUL character"),
        (["--args", "@/nowhere/at/all"], "args: cannot read @/nowhere/at/all"),
        (["--set", "colour=red"], "colour: is not a column to set"),
        (["--set", "owner=postgres"], "owner: is not a column to set"),
        (["--set", "max_runs"], 'set: "max_runs" is not column=value'),
        (["--set", "priority=1", "--set", "priority=2"], "priority: given twice"),
        (["--set", "success_codes={x}"], "success_codes: "),
        (["--set", "backoff_jitter=2"], "backoff_jitter: 2 is out of range 0-1"),
        (["--schedule", "@daily", "--run-at", "2030-01-01"], "run_at: a job has either"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_bad_job_is_refused_with_the_field_and_the_reason(
    pgsched: Callable[..., object], options: list[str], words: str
) -> None:
    one_line(pgsched("job", "add", "bad", "--task", "t", *options), 2, words)
    assert pgsched("job", "list", "--json").json == []


def test_the_error_text_is_that_of_the_database(pgsched: Callable[..., object], db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation) as refusal:
        db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('a', 't', '0 25 * * *')")
    said = pgsched("job", "add", "a", "--task", "t", "--schedule", "0 25 * * *")
    one_line(said, 2, refusal.value.diag.message_primary or "?")


def test_a_job_name_that_is_taken_is_refused(pgsched: Callable[..., object]) -> None:
    assert pgsched("job", "add", "a", "--task", "t").code == 0
    one_line(pgsched("job", "add", "a", "--task", "t"), 2, 'name: there is a job named "a" already')


def test_an_update_without_changes_is_bad_input(pgsched: Callable[..., object]) -> None:
    one_line(pgsched("job", "update", "a"), 2, "nothing to change")


@pytest.mark.parametrize("args", [["frobnicate"], ["job", "add"], ["job", "add", "x"], ["run", "show", "abc"], ["--x"]])
def test_a_wrong_command_line_ends_with_two(pgsched: Callable[..., object], args: list[str]) -> None:
    one_line(pgsched(*args), 2, "; see: pgsched")


def test_errors_of_a_command_line_contain_no_control_characters(pgsched: Callable[..., object]) -> None:
    one_line(pgsched("job", "show", "x", "\x1b[31m\u2028"), 2, r"(\x1b[31m )")


@pytest.mark.parametrize("verb", ["show", "pause", "resume", "run", "delete"])
def test_an_unknown_job_ends_with_eight(pgsched: Callable[..., object], verb: str) -> None:
    one_line(pgsched("job", verb, "nobody"), 8, 'no job named "nobody"')


def test_updating_or_listing_runs_of_an_unknown_job_ends_with_eight(pgsched: Callable[..., object]) -> None:
    one_line(pgsched("job", "update", "nobody", "--priority", "1"), 8, 'no job named "nobody"')
    one_line(pgsched("run", "list", "--job", "nobody"), 8, 'no job named "nobody"')


@pytest.mark.parametrize("verb", ["show", "retry", "cancel"])
@pytest.mark.parametrize("number", ["4711", "0", "99999999999999999999"])
def test_an_unknown_run_ends_with_eight(pgsched: Callable[..., object], verb: str, number: str) -> None:
    one_line(pgsched("run", verb, number), 8, f"no run {number}")


def test_bad_filters_are_bad_input(pgsched: Callable[..., object]) -> None:
    one_line(pgsched("run", "list", "--state", "odd"), 2, 'state: "odd" is not one of')
    one_line(pgsched("run", "list", "--since", "yesternight"), 2, 'since: "yesternight" is not a time')
    one_line(pgsched("run", "list", "--since", "999999999w"), 2, "since: ")


def test_args_of_ten_megabytes_are_refused_before_they_are_sent(
    pgsched: Callable[..., object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = tmp_path / "large.json"
    large.write_text(json.dumps({"x": "y" * 10_000_000}))
    monkeypatch.setenv("PGSCHED_DSN", "host=/nowhere")
    one_line(pgsched("job", "add", "a", "--task", "t", "--args", f"@{large}"), 2, "args: ", "1048576")
    large.write_text(json.dumps({"x": "y" * 2_000_000}))
    monkeypatch.undo()


def test_args_of_two_megabytes_are_refused_not_counting_white_space(
    pgsched: Callable[..., object], tmp_path: Path
) -> None:
    large = tmp_path / "large.json"
    large.write_text(json.dumps({"x": "y" * 2_000_000}))
    one_line(pgsched("job", "add", "a", "--task", "t", "--args", f"@{large}"), 2, "args: takes 2,000,")
    large.write_text("{" + " " * 2_000_000 + "}")
    assert pgsched("job", "add", "a", "--task", "t", "--args", f"@{large}").code == 0


@pytest.mark.parametrize("args", READS, ids=" ".join)
def test_an_unreachable_database_ends_with_three(pgsched: Callable[..., object], args: list[str]) -> None:
    one_line(pgsched(*args, "--dsn", "host=127.0.0.1 port=1 password=secret"), 3, "cannot reach the database")
    assert "secret" not in pgsched(*args, "--dsn", "postgresql://u:secret@127.0.0.1:1/x").err


def test_a_malformed_dsn_is_bad_input(pgsched: Callable[..., object]) -> None:
    one_line(pgsched("status", "--dsn", "postgresql://u:secret@h/d?nonsense=1"), 2, "dsn: ")
    assert "secret" not in pgsched("status", "--dsn", "postgresql://u:secret@h/d?nonsense=1").err


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--to", "0003"], "to: there is no version '0003': there are 1000_initial"),
        (["--sql", "--to", "1000_initial"], "sql: the script leads to this program's version"),
        (["--sql", "--set-search-path"], "sql: the script leads to this program's version"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, list) else "",
)
def test_options_of_migrate_that_do_not_go_together_are_refused(
    pgsched: Callable[..., object], empty_dsn: str, args: list[str], said: str
) -> None:
    one_line(pgsched("migrate", *args, "--dsn", empty_dsn), 2, said)
    with psycopg.connect(empty_dsn) as db:
        assert db.execute("SELECT to_regnamespace('pgsched') IS NULL").fetchone() == (True,)


@pytest.mark.parametrize("args", [*READS, ["migrate"], ["check"]], ids=" ".join)
def test_a_standby_ends_with_four(
    pgsched: Callable[..., object], monkeypatch: pytest.MonkeyPatch, args: list[str]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise psycopg.OperationalError("connection failed: server is in hot standby mode")

    monkeypatch.setattr(PatientConnection, "connect", refused)
    said = pgsched(*args)
    assert said.code == 4, said
    assert "takes no writes" in said.err + said.out
    assert "Traceback" not in said.err


@pytest.mark.parametrize("args", [*READS, ["migrate"], ["check"]], ids=" ".join)
def test_a_primary_that_is_read_only_by_default_takes_our_writes(
    pgsched: Callable[..., object], db: psycopg.Connection, args: list[str]
) -> None:
    db.execute(f'ALTER DATABASE "{db.info.dbname}" SET default_transaction_read_only = on')
    said = pgsched(*args)
    assert said.code in (0, 8), said
    assert "takes no writes" not in said.err + said.out


@pytest.mark.parametrize("args", READS, ids=" ".join)
def test_a_missing_schema_ends_with_five_and_is_not_made(
    pgsched: Callable[..., object], empty_dsn: str, args: list[str]
) -> None:
    one_line(pgsched(*args, "--dsn", empty_dsn), 5, "run `pgsched migrate`")
    with psycopg.connect(empty_dsn) as db:
        assert db.execute("SELECT to_regnamespace('pgsched') IS NULL").fetchone() == (True,)


@pytest.mark.parametrize("args", [*READS, ["migrate"]], ids=" ".join)
def test_a_newer_schema_ends_with_six(pgsched: Callable[..., object], db: psycopg.Connection, args: list[str]) -> None:
    db.execute("UPDATE pgsched.alembic_version SET version_num = '9999'")
    one_line(pgsched(*args), 6, "upgrade this pgsched")


@pytest.mark.parametrize("version", ["0001", "0011"])
@pytest.mark.parametrize("args", [*READS, ["migrate"], ["worker"], ["check"]], ids=" ".join)
def test_a_schema_from_before_0_1_0_ends_with_five_and_is_left_alone(
    pgsched: Callable[..., object], db: psycopg.Connection, args: list[str], version: str
) -> None:
    db.execute("UPDATE pgsched.alembic_version SET version_num = %s", [version])
    reason = (
        f"version {version}, made before 0.1.0: dump what you need, drop schema pgsched, then run `pgsched migrate`"
    )
    if args == ["check"]:
        found = pgsched(*args)
        assert (found.code, reason in found.out) == (5, True)
    else:
        one_line(pgsched(*args), 5, reason)
    assert db.execute("SELECT version_num FROM pgsched.alembic_version").fetchall() == [(version,)]
    assert db.execute("SELECT to_regclass('pgsched.runs') IS NOT NULL").fetchone() == (True,)


def test_a_missing_grant_ends_with_seven(pgsched: Callable[..., object], db: psycopg.Connection, dsn: str) -> None:
    role = f"pgsched_{db.info.dbname[-8:]}_poor"
    db.execute(f'CREATE ROLE "{role}"')
    try:
        poor = make_conninfo(dsn, options=f"-c role={role}")
        one_line(pgsched("job", "list", "--dsn", poor), 7, "lacks a grant")
        said = pgsched("check", "--dsn", poor)
        assert said.code == 7, said.out
    finally:
        db.execute(f'DROP ROLE "{role}"')


NASTY = [
    "'; DROP TABLE pgsched.jobs; --",
    '"quoted"',
    "%s %(name)s",
    "{} {0}",
    "ünïcode ✓",
    "a\\b",
    "--x",
    "$1",
    "[b]x[/b]",
]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", NASTY)
def test_a_name_with_special_characters_is_stored_and_shown_unchanged(
    pgsched: Callable[..., object], name: str
) -> None:
    assert pgsched("job", "add", "--task", name, "--", name).code == 0
    assert pgsched("job", "update", "--set", f"description={name}", "--", name).code == 0
    shown = pgsched("job", "show", "--json", "--", name).json
    assert (shown["name"], shown["task"], shown["description"]) == (name, name, name)
    assert name in pgsched("job", "list").out
    assert pgsched("run", "list", "--job", name).code == 0
    assert pgsched("job", "delete", "--", name).code == 0
    assert pgsched("job", "list", "--json").json == []


def test_control_characters_never_reach_the_terminal(pgsched: Callable[..., object], db: psycopg.Connection) -> None:
    one_line(pgsched("job", "add", "a\x1b[2Jb", "--task", "t"), 2, "name: must not contain control characters")
    db.execute("INSERT INTO pgsched.jobs (name, kind, task) VALUES ('a', 'shell', E'echo \\x1b[31mred\\nforged')")
    db.execute("UPDATE pgsched.jobs SET error = E'bad\\u202e\\u0007'")
    for args in (["job", "list"], ["job", "show", "a"], ["status"]):
        out = pgsched(*args).out
        assert not set(out) & {"\x1b", "\x07", "\u202e"}, out
    assert "\n    echo \\x1b[31mred\n    forged\n" in pgsched("job", "show", "a").out
    assert pgsched("job", "show", "a", "--json").json["task"] == "echo \x1b[31mred\nforged"


def test_an_argument_that_is_not_utf_8_is_bad_input(process: Callable[..., object]) -> None:
    one_line(process("job", "show", os.fsdecode(b"\xff\xfe"), PGSCHED_DSN="host=/nowhere"), 2, "not valid UTF-8")


def test_an_unexpected_exception_is_one_line_that_says_bug(
    pgsched: Callable[..., object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("oh\nno")

    monkeypatch.setattr("pgsched.db.queries.jobs.jobs.list_jobs", broken)
    one_line(pgsched("job", "list"), 70, "ZeroDivisionError: oh no", "this is a bug")
    monkeypatch.setenv("PGSCHED_LOG", "debug")
    assert "Traceback" in pgsched("job", "list").err


def test_ctrl_c_ends_with_130(dsn: str, db: psycopg.Connection, connect: Callable[..., psycopg.Connection]) -> None:
    connect().execute("BEGIN; LOCK TABLE pgsched.jobs IN ACCESS EXCLUSIVE MODE")
    process = subprocess.Popen(
        [sys.executable, "-m", "pgsched", "job", "list", "--dsn", dsn],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        # a shell that starts the tests in the background makes them ignore SIGINT, and a child inherits that
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )  # fmt: skip
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    wait_until(lambda: db.execute(waiting).fetchone() == (1,), what="the command to wait for the lock")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in err


@pytest.mark.long
def test_a_closed_pipe_is_quiet(dsn: str, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task) SELECT repeat('x', 100) FROM generate_series(1, 9000)")
    program = f"{sys.executable} -m pgsched run list --limit 9000 | head -1"
    done = subprocess.run(
        ["/bin/sh", "-c", program], cwd=ROOT, env=os.environ | {"PGSCHED_DSN": dsn}, capture_output=True, text=True
    )
    assert done.stdout.startswith("ID")
    assert done.stderr == ""


@pytest.mark.few(2)
@pytest.mark.parametrize("field", ["timezone", "overlap", "kind"])
def test_a_value_that_sounds_like_a_standby_is_bad_input(field: str, dsn: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pgsched", "job", "add", "ro", "--task", "x", "--dsn", dsn, "--set",
         f"{field}=session is read-only"],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"error: {field}: ")
