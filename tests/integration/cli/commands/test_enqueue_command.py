"""`pgsched enqueue`: arguments, options, notes, and --wait with the result or the error."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
import typer

from pgsched import App, testing
from pgsched.app.release import releases
from pgsched.cli.commands.enqueue import print_end
from pgsched.db.queries.runs import tasks
from tests.support.cli.said import Said
from tests.support.waiting import wait_until

Program = Callable[..., Said]
app = App("shop")


@app.task(name="shop.pay")
def pay(amount: int, to: str = "me") -> dict[str, Any]:
    return {"paid": amount, "to": to}


@app.task(name="shop.fail", max_attempts=1)
def fail() -> None:
    raise OSError("no route to bank")


@pytest.fixture(autouse=True)
def registered(db: psycopg.Connection[Any], dsn: str) -> None:
    app.dsn = dsn
    tasks.register(db, "shop", releases(app.tasks.values()))


@contextmanager
def served(db: psycopg.Connection[Any]) -> Iterator[None]:
    """Run the first run that appears, by a worker in a thread."""

    def serve() -> None:
        wait_until(lambda: db.execute("SELECT FROM pgsched.runs").fetchall(), what="a run")
        testing.drain(app)

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    thread.join()


def documents(said: Said) -> list[Any]:
    """Return the JSON documents among the lines of the output; the worker in this process logs there, too."""
    return [json.loads(line) for line in said.out.splitlines() if line.startswith("{")]


def stored(db: psycopg.Connection[Any], columns: str) -> Any:
    return db.execute(f"SELECT {columns} FROM pgsched.runs ORDER BY id DESC LIMIT 1".encode()).fetchone()


def test_the_id_is_printed_alone(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    said = pgsched("enqueue", "shop.pay", "--args", '{"amount": 7}')
    assert (said.code, said.out, said.err) == (0, "1\n", "")
    assert stored(db, "task, args, state") == ("shop.pay", {"amount": 7}, "queued")
    assert pgsched("enqueue", "shop.pay", "--arg", "amount=7", "--json").json == {
        "id": 2, "how": "created", "task": "shop.pay"
    }  # fmt: skip


def test_options_are_those_of_an_enqueue(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    line = "--arg amount=1 --queue money --priority 2 --max-attempts 4 --timeout 2m --tag a --tag b --unique-key k"
    assert pgsched("enqueue", "shop.pay", *line.split(), "--at", "tomorrow 6:00", "--tz", "Europe/Berlin").code == 0
    columns = "queue, priority, max_attempts, timeout, tags, unique_key, state"
    assert [str(value) for value in stored(db, columns)] == [
        "money", "2", "4", "0:02:00", "['a', 'b']", "k", "scheduled"
    ]  # fmt: skip
    assert stored(db, "to_char(available_at AT TIME ZONE 'Europe/Berlin', 'HH24:MI')") == ("06:00",)
    again = pgsched("enqueue", "shop.pay", "--arg", "amount=2", "--unique-key", "k")
    assert (again.out, again.err) == ("1\n", "note: run 1 is not new: a run that has the unique key\n")
    refused = pgsched("enqueue", "shop.pay", "--arg", "amount=2", "--unique-key", "k", "--on-conflict", "reject")
    assert (refused.code, refused.out) == (11, "")
    slip = pgsched("enqueue", "shop.pay", "--arg", "amount=2", "--on-conflict", "rejct")
    assert (slip.code, "did you mean reject?" in slip.err) == (2, True)


@pytest.mark.parametrize(
    ("given", "args"),
    [
        (("--arg", "amount=7", "--arg", "to=8"), {"amount": 7, "to": "8"}),
        (("--arg", "amount=7", "--arg", "to=null"), {"amount": 7, "to": "null"}),
        (("--args", '{"amount": 7}', "--arg", "to=a=b"), {"amount": 7, "to": "a=b"}),
    ],
)
def test_a_named_argument_is_json_or_text_as_the_task_takes_it(
    given: tuple[str, ...], args: Any, pgsched: Program, db: psycopg.Connection[Any]
) -> None:
    assert pgsched("enqueue", "shop.pay", *given).code == 0
    assert stored(db, "args") == (args,)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (("--arg", "amount=x"), "args: amount: expected integer, got string"),
        (("--arg", "amount"), 'arg: "amount" is not NAME=VALUE'),
        (("--arg", "=7"), 'arg: "=7" is not NAME=VALUE'),
        (("--arg", "amount=7", "--arg", "amount=8"), "arg: amount is given twice"),
        (("--args", '{"amount": 7}', "--arg", "amount=8"), "arg: amount is in --args as well"),
        (("--args", "[7]", "--arg", "to=x"), "arg: the arguments in --args are an array"),
        (("--args", "7"), "args: expected an object or an array"),
        (("--args", '{"amont": 7}'), "args: amount is missing"),
        (("--arg", "amount=7", "--at", "soon"), 'at: "soon" is not a time'),
        (("--arg", "amount=7", "--delay", "soon"), 'delay: "soon" is not a time such as 90s'),
        (
            ("--arg", "amount=7", "--unique-key", "k", "--unique-scope", "sliding(1h"),
            'unique_scope: "sliding(1h" is no scope; known are while_active, while_queued, bucket(1h), sliding(1h)\n',
        ),
        (("--arg", "amount=7", "--unique-scope", "bucket(soon)"), 'unique_scope: "soon" is not a time'),
        (("--arg", "amount=7", "--wait-timeout", "soon"), "wait-timeout: "),
        (("--arg", "amount=7", "--delay", "1h", "--at", "22:00"), "delay: give either delay or at"),
    ],
)
def test_a_wrong_enqueue_makes_no_run(
    given: tuple[str, ...], why: str, pgsched: Program, db: psycopg.Connection[Any]
) -> None:
    said = pgsched("enqueue", "shop.pay", *given)
    assert (said.code, said.out) == (2, "") and why in said.err
    assert stored(db, "id") is None


def test_an_unknown_task_is_noted_with_registered_names(pgsched: Program) -> None:
    said = pgsched("enqueue", "pay", "--arg", "amount=7")
    assert (said.code, said.out) == (0, "1\n")
    assert "did you mean shop.pay?" in said.err
    noted = pgsched("enqueue", "pay", "--json")
    assert "did you mean shop.pay?" in json.loads(noted.err)["note"]


def test_wait_prints_the_result(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    with served(db):
        said = pgsched("enqueue", "shop.pay", "--arg", "amount=7", "--wait")
    assert (said.code, documents(said)) == (0, [{"paid": 7, "to": "me"}])
    assert "run 1 shop.pay: succeeded" in said.err


def test_wait_prints_the_error_and_fails(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    with served(db):
        said = pgsched("enqueue", "shop.fail", "--max-attempts", "1", "--wait")
    assert (said.code, documents(said)) == (1, [])
    assert said.err.splitlines()[-1] == "error: run 1 is dead: its only attempt used: OSError: no route to bank"


def test_wait_with_json_is_one_document_and_an_error(pgsched: Program, db: psycopg.Connection[Any]) -> None:
    with served(db):
        said = pgsched("enqueue", "shop.fail", "--max-attempts", "1", "--wait", "--json")
    assert said.code == 1
    (found,) = documents(said)
    assert {"id": 1, "how": "created", "state": "dead", "result": None}.items() <= found.items()
    error = json.loads(said.err)["error"]
    assert (error["code"], error["exit_code"]) == ("run_failed", 1) and "no route to bank" in error["message"]


def test_wait_gives_up_after_its_timeout(pgsched: Program) -> None:
    said = pgsched("enqueue", "shop.pay", "--arg", "amount=7", "--wait-timeout", "0.2")
    assert said.code == 1
    assert said.err.endswith("error: run 1 is queued and has not ended within 0.2 s; it goes on: pgsched run watch 1\n")


@pytest.mark.parametrize(
    "line",
    [
        ["--arg", "amount=1e999"],
        ["--arg", 'to="\\u0000"'],
        ["--args", json.dumps({"to": "x" * 1_100_000}), "--arg", "amount=1"],
    ],
    ids=["infinity", "nul", "too-large"],
)
def test_arguments_that_cannot_be_stored_are_an_error_of_input(pgsched: Program, line: list[str]) -> None:
    said = pgsched("enqueue", "shop.pay", *line)
    assert said.code == 2 and "args: " in said.err and "bug" not in said.err


def test_a_run_that_was_retried_after_its_end_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    run = {"state": "queued", "finished_at": None}
    with pytest.raises(typer.Exit):
        print_end(run, 7, None, json=False)
    assert "run 7 is queued and is open again; it goes on: pgsched run watch 7" in capsys.readouterr().err
