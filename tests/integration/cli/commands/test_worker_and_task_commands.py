"""`pgsched worker list` and `drain`, `pgsched task list` and `show`, and `pgsched run update`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
import typer

from pgsched import App
from pgsched.app.release import releases
from pgsched.db.queries.runs import tasks
from tests.support.cli.said import Said

Program = Callable[..., Said]
app = App("shop")


@app.task(name="shop.pay", queue="money", timeout=30)
def pay(amount: int, to: str = "me") -> None: ...


@pytest.fixture
def workers(db: psycopg.Connection[Any]) -> None:
    """Add two live workers, of which one offers a registered task, and a worker that has gone."""
    db.execute(
        "INSERT INTO pgsched.workers"
        " (name, hostname, pid, version, app, concurrency, kinds, tasks, queues, lease, running)"
        " VALUES ('web-1:7', 'web-1', 7, '0', 'shop', 4, '{task}', '{shop.pay,shop.new}', NULL, '1 minute', 2),"
        " ('web-2:9', 'web-2', 9, '0', NULL, 1, '{task,shell}', '{}', '{slow}', '1 minute', 0)"
    )
    db.execute(
        "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease, stopped_at)"
        " VALUES ('gone:1', 'gone', 1, '0', 1, '{task}', '{}', '1 minute', clock_timestamp())"
    )
    tasks.register(db, "shop", releases(app.tasks.values()))


@pytest.mark.usefixtures("workers")
def test_live_workers_are_listed(pgsched: Program) -> None:
    said = pgsched("worker", "list")
    lines = [line.split() for line in said.out.splitlines()]
    assert [[line[n] for n in (0, 1, 2, 3)] for line in lines] == [
        ["ID", "WORKER", "STATE", "BUSY"], ["1", "web-1:7", "alive", "2/4"], ["2", "web-2:9", "alive", "0/1"]
    ]  # fmt: skip
    assert "gone:1" in pgsched("worker", "list", "--all").out
    assert [one["state"] for one in pgsched("worker", "list", "--json", "--all").json] == ["alive", "alive", "gone"]


def test_without_workers_the_list_says_what_to_start(pgsched: Program) -> None:
    assert pgsched("worker", "list").out == "no live workers: start a `pgsched worker`\n"
    assert pgsched("worker", "list", "--json").json == []


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize("name", ["web-1:7", "1"])
def test_a_worker_drains_by_its_name_or_id(name: str, pgsched: Program, db: psycopg.Connection[Any]) -> None:
    said = pgsched("worker", "drain", name, "--by", "ann")
    assert (said.code, said.out) == (0, "worker web-1:7 was asked to drain; it ends with its 2 runs\n")
    asked = db.execute("SELECT name, drain_asked_by FROM pgsched.workers WHERE drain_asked_at IS NOT NULL").fetchall()
    assert asked == [("web-1:7", "ann")]
    assert "asked to drain" in pgsched("worker", "list").out


@pytest.mark.usefixtures("workers")
def test_the_workers_of_one_process_drain_together(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    db.execute(
        "INSERT INTO pgsched.workers (name, hostname, pid, version, app, concurrency, kinds, tasks, lease)"
        " VALUES ('web-1:7/2', 'web-1', 7, '0', 'mail', 1, '{task}', '{}', '1 minute')"
    )
    said = pgsched("worker", "drain", "web-1:7/2")
    assert said.out == "worker web-1:7/2 was asked to drain; it ends with the other workers of its process\n"
    said = pgsched("worker", "drain", "web-1:7")
    assert said.out.endswith("; it ends with its 2 runs and the other workers of its process\n")
    assert pgsched("worker", "drain", "web-2:9").out == "worker web-2:9 was asked to drain; it ends\n"


@pytest.mark.usefixtures("workers")
def test_an_unknown_worker_changes_nothing_and_gets_a_hint(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    said = pgsched("worker", "drain", "web-1:7", "web-3:9")
    assert (said.code, said.out) == (8, "")
    assert said.err == 'error: there is no live worker "web-3:9"; did you mean web-2:9 or web-1:7?\n'
    assert pgsched("worker", "drain", "gone:1").code == pgsched("worker", "drain", "3").code == 8
    assert db.execute("SELECT FROM pgsched.workers WHERE drain_asked_at IS NOT NULL").fetchall() == []


@pytest.mark.usefixtures("workers")
def test_all_workers_drain_once_that_is_confirmed(
    pgsched: Program, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = "SELECT name, drain_asked_by FROM pgsched.workers WHERE drain_asked_at IS NOT NULL ORDER BY name"
    said = pgsched("worker", "drain", "--all")
    assert (said.code, said.out) == (2, "")
    assert said.err == "error: drain 2 workers? Add --yes; `pgsched worker list` shows them\n"
    assert pgsched("worker", "drain", "--all", "--json").code == 2
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    monkeypatch.setattr(typer, "confirm", lambda question, err: question != "drain 2 workers?")
    said = pgsched("worker", "drain", "--all")
    assert said.code == 1 and "web-1:7" in said.out and db.execute(asked).fetchall() == []
    monkeypatch.setattr(typer, "confirm", lambda question, err: question == "drain 2 workers?")
    assert pgsched("worker", "drain", "web-1:7").code == 0
    monkeypatch.setattr(typer, "confirm", lambda question, err: question == "drain 1 worker?")
    said = pgsched("worker", "drain", "--all", "--by", "ann")
    assert said.code == 0 and "worker web-2:9 was asked to drain; it ends\n" in said.out
    assert [by for _, by in db.execute(asked)][1] == "ann", "the one that drains already is left alone"
    assert pgsched("worker", "drain", "--all", "--yes", "--json").json == []


@pytest.mark.usefixtures("workers")
def test_all_workers_drain_without_a_question(pgsched: Program) -> None:
    drained = pgsched("worker", "drain", "--all", "--yes", "--json").json
    assert [one["name"] for one in drained] == ["web-1:7", "web-2:9"]


@pytest.mark.parametrize("given", [(), ("web-1:7", "--all")])
def test_a_drain_is_of_named_workers_or_of_all(given: tuple[str, ...], pgsched: Program) -> None:
    said = pgsched("worker", "drain", *given)
    assert (said.code, said.err) == (2, "error: worker drain: name workers, or give --all for all of them\n")


def test_an_option_before_a_subcommand_is_refused(pgsched: Program) -> None:
    said = pgsched("worker", "--concurrency", "3", "list")
    assert (said.code, said.out) == (2, "")
    assert "--concurrency goes after the subcommand: pgsched worker list --concurrency" in said.err
    assert pgsched("alerts", "--tz", "UTC", "test").code == 2


@pytest.mark.usefixtures("workers")
def test_tasks_are_listed_with_their_arguments_and_runs(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('shop.pay'), ('shop.pay'), ('other')")
    db.execute(
        "INSERT INTO pgsched.rollups SELECT 'hour', date_trunc('hour', now()), 0, 'money', 'shop.pay', s, 3, 3, 0, 1,"
        " 1, 0, 0, NULL, array_fill(0, ARRAY[26]), array_fill(0, ARRAY[26]), array_fill(0, ARRAY[26]), now()"
        " FROM unnest('{succeeded,dead}'::text[]) s"
    )
    said = pgsched("task", "list")
    assert [line.split(maxsplit=7) for line in said.out.splitlines()] == [
        ["TASK", "APP", "QUEUE", "WORKERS", "OPEN", "OK", "DEAD", "ARGUMENTS"],
        ["shop.new", "shop", "default", "1", "0", "0", "0"],
        ["shop.pay", "shop", "money", "1", "2", "3", "3", "amount integer, [to text]"],
    ]
    (found,) = pgsched("task", "show", "shop.pay", "--json").json
    assert found["open"] == {"queued": 2} and found["ended"] == {"succeeded": 3, "dead": 3}
    assert found["workers"] == ["web-1:7"] and found["options"] == {"queue": "money", "timeout": 30.0}
    assert found["schema"]["required"] == ["amount"]
    shown = pgsched("task", "show", "shop.pay").out
    for words in ("queue       money", "open runs   2 queued", "amount    integer  required", "to        text     me"):
        assert words in shown
    assert "release     not registered" in pgsched("task", "show", "shop.new").out


@pytest.mark.usefixtures("workers")
def test_an_unknown_task_gets_a_hint(pgsched: Program) -> None:
    said = pgsched("task", "show", "pay")
    assert (said.code, said.err) == (8, 'error: no app has registered task "pay"; did you mean shop.pay?\n')


def test_a_run_is_updated_and_its_values_before_are_shown(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t'), ('t')")
    said = pgsched("run", "update", "1", "--priority", "0", "--queue", "slow")
    assert said.out == "run 1: priority 5 -> 0, queue default -> slow; it is queued\n"
    assert "no live worker, job or run has queue slow" in said.err
    later = pgsched("run", "update", "1", "2", "--at", "tomorrow 6:00", "--tz", "Europe/Berlin", "--json").json
    assert [(one["before"]["state"], one["after"]["state"]) for one in later] == [("queued", "scheduled")] * 2
    rows = db.execute(
        "SELECT to_char(available_at AT TIME ZONE 'Europe/Berlin', 'HH24:MI') FROM pgsched.runs"
    ).fetchall()
    assert rows == [("06:00",), ("06:00",)]
    assert pgsched("run", "update", "2", "--at", "now").code == 0
    assert db.execute("SELECT available_at <= clock_timestamp() FROM pgsched.runs WHERE id = 2").fetchone() == (True,)


def test_runs_that_cannot_be_updated_are_left_alone(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t'), ('t')")
    assert pgsched("run", "cancel", "1").code == 0
    said = pgsched("run", "update", "1", "2", "7", "--priority", "1")
    assert (said.code, said.out) == (1, "run 2: priority 5 -> 1; it is queued\n")
    assert "left alone: state: run 1 has ended (cancelled)" in said.err and "7" in said.err
    alone = pgsched("run", "update", "1", "--priority", "1", "--json")
    assert (alone.code, json.loads(alone.err)["error"]["field"]) == (2, "state")
    assert pgsched("run", "update", "9", "--priority", "1").code == 8
    assert pgsched("run", "update", "2").err == "error: nothing to change: give --priority, --at or --queue\n"
