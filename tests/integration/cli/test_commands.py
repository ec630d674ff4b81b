"""The commands for jobs, runs and migrations: what they do and what they print."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.core.policies import PRESETS
from pgsched.db.schema.version import SCHEMA_VERSION

pytestmark = [pytest.mark.packages, pytest.mark.scram]

Pgsched = Callable[..., object]
DEFAULTS = {
    "retry_within": None, "catch_up_window": 86_400, "start_deadline": None,
}  # fmt: skip


def test_a_job_is_added_shown_changed_paused_run_and_deleted(pgsched: Pgsched) -> None:
    args = ["--schedule", "0 2 * * *", "--timezone", "Europe/Berlin", "--args", '{"region": "eu"}', "--timeout", "2h",
            "--overlap", "buffer_one", "--catch-up", "skip", "--set", "tags={a,b}", "--set", "max_runs=3"]  # fmt: skip
    said = pgsched("job", "add", "nightly", "--task", "reports.build", *args)
    assert (said.code, said.err) == (0, "")
    assert said.out == "created job nightly: task reports.build, schedule 0 2 * * * (Europe/Berlin)\n"
    job = pgsched("job", "show", "nightly", "--json").json
    assert (job["args"], job["timeout"], job["tags"], job["max_runs"]) == ({"region": "eu"}, 7200, ["a", "b"], 3)
    assert (job["overlap"], job["catch_up"], job["recent"]) == ("buffer_one", "skip", [])
    changed = pgsched("job", "update", "nightly", "--schedule", "@hourly", "--set", "max_runs=", "--json").json
    assert (changed["schedule"], changed["max_runs"], changed["timezone"]) == ("@hourly", None, "Europe/Berlin")
    assert pgsched("job", "pause", "nightly", "--reason", "why not").out.startswith("job nightly is paused by ")
    assert pgsched("job", "list", "--state", "paused", "--json").json[0]["name"] == "nightly"
    assert pgsched("job", "show", "nightly", "--json").json["paused_reason"] == "why not"
    assert pgsched("job", "resume", "nightly").out == "job nightly is active\n"
    run = pgsched("job", "run", "nightly", "--args", "[7]", "--json").json["id"]
    shown = pgsched("run", "show", str(run), "--json").json
    assert (shown["job"], shown["args"], shown["state"], shown["origin"]) == ("nightly", [7], "queued", "manual")
    assert "queued" in pgsched("job", "show", "nightly").out
    assert pgsched("job", "delete", "nightly").out == "deleted job nightly\n"
    assert pgsched("run", "show", str(run), "--json").json["reason"] == "job nightly was deleted"
    assert pgsched("job", "list").out == "no jobs\n"


def test_an_unknown_state_of_jobs_is_refused(pgsched: Pgsched) -> None:
    pgsched("job", "add", "a", "--task", "t", "--schedule", "@daily")
    said = pgsched("job", "list", "--state", "eror")
    assert (said.code, said.err) == (
        2,
        'error: state: "eror" is not one of active, paused, error, done, shadow; did you mean error?\n',
    )


def test_a_paused_job_has_no_next_slot(pgsched: Pgsched) -> None:
    pgsched("job", "add", "a", "--task", "t", "--schedule", "@every 90s", "--paused")
    assert pgsched("job", "list").out.splitlines()[1].split() == ["a", "paused", "@every", "90s", "UTC", "-", "-", "t"]


def test_a_schedule_that_never_fires_makes_no_job_and_changes_none(pgsched: Pgsched) -> None:
    never = ["--schedule", "0 0 30 2 *"]
    said = pgsched("job", "add", "a", "--task", "t", *never)
    assert (said.code, said.err) == (2, "error: schedule: never fires: no month has such a day\n")
    assert pgsched("job", "list").out == "no jobs\n"
    pgsched("job", "add", "a", "--task", "t", "--schedule", "@daily")
    assert pgsched("job", "update", "a", *never).code == 2
    assert pgsched("job", "show", "a", "--json").json["schedule"] == "@daily"


def test_a_job_can_be_renamed(pgsched: Pgsched) -> None:
    pgsched("job", "add", "a", "--task", "t")
    assert pgsched("job", "update", "a", "--set", "name=b", "--json").json["name"] == "b"


def test_a_job_can_be_added_paused_or_for_one_time(pgsched: Pgsched) -> None:
    assert pgsched("job", "add", "a", "--task", "t", "--schedule", "@daily", "--paused", "--json").json["paused"]
    said = pgsched("job", "add", "b", "--task", "t", "--run-at", "2040-01-01 10:00")
    assert said.out == "created job b: task t, once, at 2040-01-01 10:00:00 UTC\n"


def test_a_long_task_is_shortened_with_an_ellipsis(pgsched: Pgsched) -> None:
    said = pgsched("job", "add", "a", "--kind", "shell", "--task", "echo " + "x" * 90)
    assert f"created job a: shell echo {'x' * 54}…, once" in said.out


def test_arguments_come_from_a_file_or_from_standard_input(
    pgsched: Pgsched, process: Pgsched, dsn: str, tmp_path: Path
) -> None:
    file = tmp_path / "args.json"
    file.write_text('{"ünï": 1}')
    assert pgsched("job", "add", "a", "--task", "t", "--args", f"@{file}", "--json").json["args"] == {"ünï": 1}
    said = process("job", "add", "b", "--task", "t", "--args", "-", "--json", stdin="[1, 2]", PGSCHED_DSN=dsn)
    assert said.json["args"] == [1, 2]


def test_changing_a_job_that_code_declares_is_noted(pgsched: Pgsched, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, declared_by) VALUES ('a', 't', 'shop')")
    said = pgsched("job", "update", "a", "--priority", "1")
    assert said.code == 0
    assert "the code of shop declares this job" in said.err


def test_lists_are_paged(pgsched: Pgsched, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task) SELECT 'job ' || n, 't' FROM generate_series(1, 5) n")
    first = pgsched("job", "list", "--limit", "3")
    assert first.err == "the next page: --after 'job 3'\n"
    assert [line.split()[1] for line in first.out.splitlines()[1:]] == ["1", "2", "3"]
    assert [job["name"] for job in pgsched("job", "list", "--after", "job 3", "--json").json] == ["job 4", "job 5"]
    db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 5)")
    newest = pgsched("run", "list", "--limit", "2", "--json").json
    older = pgsched("run", "list", "--limit", "9", "--before", str(newest[-1]["id"]), "--json").json
    assert [run["id"] for run in newest + older] == sorted((run["id"] for run in newest + older), reverse=True)
    assert len(newest + older) == 5


@pytest.fixture
def runs(db: psycopg.Connection) -> psycopg.Connection:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 'build', '@daily')")
    db.execute(
        "INSERT INTO pgsched.runs (task, queue, state, finished_at, created_at, job_id, scheduled_at, reason) VALUES "
        "('send', 'mail', 'queued', NULL, now(), NULL, NULL, NULL),"
        "('send', 'mail', 'dead', now(), now() - interval '3 hours', NULL, NULL, 'all 3 attempts used'),"
        "('build', 'default', 'succeeded', now(), now() - interval '2 days', (SELECT id FROM pgsched.jobs), now(), ''),"
        "('build', 'default', 'missed', now(), now(), (SELECT id FROM pgsched.jobs), now() - interval '1 day', 'down')"
    )
    return db


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], ["missed", "succeeded", "dead", "queued"]),
        (["--state", "dead"], ["dead"]),
        (["--state", "succeeded"], ["succeeded"]),
        (["--job", "nightly"], ["missed", "succeeded"]),
        (["--queue", "mail"], ["dead", "queued"]),
        (["--task", "build", "--state", "missed"], ["missed"]),
        (["--since", "1h"], ["missed", "queued"]),
        (["--until", "1d"], ["succeeded"]),
        (["--since", "2001-01-01", "--until", "2001-01-02T00:00+02:00"], []),
        (["--limit", "1"], ["missed"]),
    ],
)
def test_runs_are_filtered(pgsched: Pgsched, runs: psycopg.Connection, options: list[str], expected: list[str]) -> None:
    assert [run["state"] for run in pgsched("run", "list", *options, "--json").json] == expected
    table = pgsched("run", "list", *options).out.splitlines()
    assert len(table) == max(1, len(expected) + bool(expected))


def test_retry_queues_a_dead_run_and_cancel_ends_an_open_one(pgsched: Pgsched, runs: psycopg.Connection) -> None:
    dead = pgsched("run", "list", "--state", "dead", "--json").json[0]["id"]
    assert pgsched("run", "retry", str(dead)).out == f"run {dead} is queued again\n"
    assert pgsched("run", "cancel", str(dead), "--reason", "no").out == f"run {dead} is cancelled\n"
    assert pgsched("run", "cancel", str(dead), "--json").json == {"id": dead, "result": "cancelled"}
    done = pgsched("run", "list", "--state", "succeeded", "--json").json[0]["id"]
    said = pgsched("run", "retry", str(done))
    assert (said.code, said.err) == (
        2, f"error: run {done} is succeeded: only dead, cancelled, missed and skipped runs can be retried\n",
    )  # fmt: skip
    assert pgsched("run", "cancel", str(done)).out == f"run {done} had ended already: succeeded\n"


def test_a_run_is_shown_with_the_evidence_of_its_attempts(pgsched: Pgsched, runs: psycopg.Connection) -> None:
    dead = pgsched("run", "list", "--state", "dead", "--json").json[0]["id"]
    runs.execute(
        "INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, worker, error, traceback, log_tail) VALUES "
        "(%s, gen_random_uuid(), 1, 'failed', 'host:1', 'ValueError: bad', %s, E'out\\nput')",
        [dead, "Traceback\n  line\x1b[1m"],
    )
    out = pgsched("run", "show", str(dead)).out
    assert "attempt 1: failed, " in out
    assert "ValueError: bad" in out
    assert "      line\\x1b[1m" in out
    assert "    out\n    put" in out
    (attempt,) = pgsched("run", "show", str(dead), "--json").json["attempts"]
    assert attempt["traceback"].startswith("Traceback")
    assert datetime.fromisoformat(attempt["finished_at"])


def test_piped_tables_are_plain_aligned_and_whole(pgsched: Pgsched) -> None:
    long = "x" * 150
    pgsched("job", "add", long, "--task", "t" * 100)
    header, line = pgsched("job", "list").out.splitlines()
    assert line.index("active") == header.index("STATE")
    assert long in line
    assert "t" * 100 in line
    assert (header + line).isascii()


def test_a_table_on_a_terminal_fits_it(
    pgsched: Pgsched, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from pgsched.cli.output.printing import print_rich

    monkeypatch.setenv("COLUMNS", "80")
    headers = ["NAME", "STATE", "SCHEDULE", "ZONE", "NEXT", "LAST RUN", "TASK"]
    lines = [["nightly", "active", "0 2 * * *", "Europe/Berlin", "in 3h", "succeeded", "[b]" + "long " * 40]]
    print_rich(headers, lines)
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert "Europe/Berlin" in out
    assert "[b]long" in out


def test_migrating_says_what_it_did_and_prints_its_statements(pgsched: Pgsched, empty_dsn: str) -> None:
    text = pgsched("migrate", "--sql", "--dsn", empty_dsn).out
    assert "CREATE TABLE pgsched.jobs" in text
    assert pgsched("status", "--dsn", empty_dsn).code == 5, "--sql changes nothing"
    assert pgsched("migrate", "--dsn", empty_dsn).out == f"created schema pgsched, version {SCHEMA_VERSION}\n"
    assert pgsched("migrate", "--dsn", empty_dsn).out == f"the schema is version {SCHEMA_VERSION} already\n"
    assert pgsched("migrate", "--set-search-path", "--json", "--dsn", empty_dsn).json["before"] == SCHEMA_VERSION
    with psycopg.connect(empty_dsn) as db:
        db.execute("INSERT INTO jobs (name, task) VALUES ('plain', 't')")


def test_the_dsn_comes_from_the_flag_then_pgsched_dsn_then_database_url(
    pgsched: Pgsched, empty_dsn: str, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DATABASE_URL", empty_dsn)
    assert pgsched("job", "list").code == 0, "PGSCHED_DSN comes before DATABASE_URL"
    assert pgsched("job", "list", "--dsn", empty_dsn).code == 5, "the flag comes first"
    monkeypatch.delenv("PGSCHED_DSN")
    assert pgsched("job", "list").code == 5, "DATABASE_URL counts where nothing else is given"


def test_the_version_is_printed(pgsched: Pgsched) -> None:
    from pgsched import __version__

    assert pgsched("--version").out == f"pgsched {__version__}\n"


@pytest.mark.parametrize("command", ["job list", "run list", "status", "check", "migrate"])
def test_json_is_one_document_in_a_pipe(pgsched: Pgsched, db: psycopg.Connection, command: str) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES (E'\\u202ea', 't', '@daily')")
    out = pgsched(*command.split(), "--json").out
    assert out.isascii()
    assert out.count("\n") == 1
    json.loads(out)


def values_of(like: str) -> dict[str, Any]:
    """Return the columns of a job with a preset, as JSON shows them."""
    given = {column: value for column, value in PRESETS[like].items() if value is not None}
    seconds = {c: value.total_seconds() for c, value in given.items() if hasattr(value, "total_seconds")}
    return {column: DEFAULTS.get(column) for column in PRESETS[like]} | given | seconds


def columns(job: dict[str, Any]) -> dict[str, Any]:
    return {column: job[column] for column in PRESETS["cron"]}


@pytest.mark.parametrize("like", PRESETS)
def test_a_job_is_made_with_the_values_of_a_preset(pgsched: Pgsched, like: str) -> None:
    said = pgsched("job", "add", "a", "--task", "t", "--schedule", "@daily", "--like", like)
    assert (said.code, said.err[: len(like) + 21]) == (0, f"note: like {like}: overlap ")
    assert columns(pgsched("job", "show", "a", "--json").json) == values_of(like)


def test_options_and_columns_beside_a_preset_win(pgsched: Pgsched) -> None:
    given = ["--overlap", "skip", "--set", "backoff_jitter=", "--set", "start_deadline=200 seconds"]
    said = pgsched("job", "add", "a", "--task", "t", "--schedule", "@daily", "--like", "kubernetes", *given)
    job = pgsched("job", "show", "a", "--json").json
    assert (job["overlap"], job["backoff_jitter"], job["start_deadline"]) == ("skip", None, 200)
    assert (job["max_attempts"], job["backoff_max"]) == (7, 360)
    assert not {"overlap", "backoff_jitter", "start_deadline"} & set(said.err.replace(",", "").split())


def test_another_preset_leaves_nothing_of_the_first(pgsched: Pgsched) -> None:
    pgsched("job", "add", "a", "--task", "t", "--schedule", "@daily", "--like", "temporal", "--set", "retry_within=1 h")
    assert pgsched("job", "update", "a", "--like", "cron").code == 0
    assert columns(pgsched("job", "show", "a", "--json").json) == values_of("cron")


def test_an_unknown_preset_is_refused(pgsched: Pgsched) -> None:
    said = pgsched("job", "add", "a", "--task", "t", "--like", "corn")
    assert (said.code, said.err) == (
        2, 'error: like: "corn" is not one of cron, kubernetes, temporal, celery; did you mean cron?\n'
    )  # fmt: skip
    assert pgsched("job", "list").out == "no jobs\n"


def test_a_dry_run_shows_columns_and_slots_and_makes_no_job(pgsched: Pgsched) -> None:
    given = ["job", "add", "a", "--task", "t", "--schedule", "0 2 * * *", "--like", "temporal", "--dry-run"]
    said = pgsched(*given)
    assert said.code == 0 and said.out.startswith("would create job a: task t, schedule 0 2 * * * (UTC)\n")
    assert "catch_up         earliest\n" in said.out and "max_attempts     1000\n" in said.out
    assert said.out.count(" 02:00:00 UTC  ") == 5
    assert "like temporal: overlap skip" in said.err
    assert "id" not in pgsched(*given, "--json").json
    assert pgsched("job", "list").out == "no jobs\n"


def test_a_dry_run_refuses_what_would_be_refused(pgsched: Pgsched) -> None:
    given = ["--like", "cron", "--set", "retry_within=1 h", "--dry-run"]
    said = pgsched("job", "add", "a", "--task", "t", "--schedule", "@daily", *given)
    assert (said.code, said.err) == (2, 'error: retry_within: is for overlap "skip" alone, not "allow"\n')
