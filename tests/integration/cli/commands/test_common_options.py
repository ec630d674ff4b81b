"""What all commands have in common: --tz and PGSCHED_TZ, errors as JSON, hints, and commands that are gone."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.support.cli.said import Said

Program = Callable[..., Said]


def test_times_are_shown_in_the_zone_of_the_option_or_the_variable(
    pgsched: Program, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("INSERT INTO pgsched.runs (task, available_at) VALUES ('t', '2100-01-05 12:00Z')")
    assert "2100-01-05 12:00:00 UTC" in pgsched("run", "show", "1").out
    assert "2100-01-05 21:00:00 JST" in pgsched("run", "show", "1", "--tz", "Asia/Tokyo").out
    monkeypatch.setenv("PGSCHED_TZ", "Asia/Tokyo")
    assert "2100-01-05 21:00:00 JST" in pgsched("run", "show", "1").out
    assert "2100-01-05 07:00:00 EST" in pgsched("run", "show", "1", "--tz", "America/New_York").out
    assert pgsched("run", "show", "1", "--json").json["available_at"] == "2100-01-05T12:00:00+00:00"
    monkeypatch.delenv("PGSCHED_TZ")
    assert "2100-01-05 12:00:00 UTC" in pgsched("run", "show", "1").out, "the zone of one command ends with it"


def test_times_are_read_in_the_zone(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.runs (task, created_at) VALUES ('t', '2026-05-01 10:30Z')")
    options = ("--json", "--since", "2026-05-01T12:00", "--until", "2026-05-01T13:00")
    assert pgsched("run", "list", *options).json == []
    assert len(pgsched("run", "list", *options, "--tz", "Europe/Berlin").json) == 1


def test_explain_reads_times_in_the_zone_of_the_job_unless_another_is_given(pgsched: Program) -> None:
    assert (
        pgsched("job", "add", "tokyo", "--task", "t", "--schedule", "0 9 * * *", "--timezone", "Asia/Tokyo").code == 0
    )
    assert "Slot 2100-01-05 00:00:00 UTC" in pgsched("explain", "tokyo", "2100-01-05 09:00").out
    said = pgsched("explain", "tokyo", "2100-01-05 01:00", "--tz", "Europe/Berlin").out
    assert "Slot 2100-01-05 01:00:00 CET" in said


def test_an_unknown_zone_is_refused_with_a_hint(pgsched: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    said = pgsched("status", "--tz", "Europe/Berln")
    assert (said.code, said.out) == (2, "")
    assert said.err.startswith('error: tz: "Europe/Berln" is not a known IANA zone; did you mean Europe/Berlin')
    monkeypatch.setenv("PGSCHED_TZ", "berlin")
    assert "tz: " in pgsched("job", "list").err


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("run show 7", {"code": "not_found", "field": None, "exit_code": 8}),
        ("run list --state failed", {"code": "input_error", "field": "state", "exit_code": 2}),
        ("run list --quene x", {"code": "usage", "field": "quene", "exit_code": 2}),
        ("run show x", {"code": "usage", "field": "run_id", "exit_code": 2}),
        ("queue pause x", {"code": "usage", "field": None, "exit_code": 2}),
        ("status --dsn postgresql://127.0.0.1:1/x", {"code": "database_unreachable", "field": None, "exit_code": 3}),
        ("job preview --schedule 61", {"code": "schedule_error", "field": "schedule", "exit_code": 2}),
    ],
)
def test_with_json_an_error_is_json(line: str, error: dict[str, Any], pgsched: Program) -> None:
    plain, said = pgsched(*line.split()), pgsched(*line.split(), "--json")
    assert (said.code, said.out) == (plain.code, plain.out) == (error["exit_code"], "")
    found = json.loads(said.err)["error"]
    assert found == error | {"message": plain.err.removeprefix("error: ").rstrip("\n")}


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("queue pause emails", "`pgsched pause --queue NAME`"),
        ("queue resume emails", "`pgsched resume --queue NAME`"),
        ("schedule preview @daily", "`pgsched job preview --schedule EXPR`"),
        ("status --watch", "`pgsched top`"),
        ("backfill nightly --from 2026-05-01 --to 2026-05-02", "pgsched backfill start nightly"),
    ],
)
def test_a_command_that_is_gone_names_the_one_to_use(line: str, instead: str, pgsched: Program) -> None:
    said = pgsched(*line.split())
    assert (said.code, said.out) == (2, "") and instead in said.err and said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("run list --quene x", "did you mean --queue?"),
        ("enqeue t", "Did you mean 'enqueue'"),
        ("run updat 1", "Did you mean 'update'"),
        ("backfill lst", "Did you mean 'list'"),
        ("limit remove custmer", "did you mean customer?"),
        ("resume --queue mial", "did you mean mail?"),
        ("job list --state actve", "did you mean active?"),
        ("job calendar nightly ad", "did you mean add?"),
        ("audit qeue", "did you mean queue?"),
        ("top --once --page quues", "did you mean queues?"),
        ("worker --app tests.integration.cli.commands.test_worker_and_task_commands:ap", "did you mean app?"),
        ("worker --app tests.integration.cli.commands.test_worker_and_task_commands:shop", "its app is app"),
    ],
)
def test_a_misspelled_name_gets_a_hint(line: str, hint: str, pgsched: Program) -> None:
    assert pgsched("limit", "set", "customer", "--concurrency", "1").code == 0
    assert pgsched("queue", "set", "mail", "--concurrency", "1").code == 0
    said = pgsched(*line.split())
    assert said.code in (2, 8) and hint in said.err, said.err
