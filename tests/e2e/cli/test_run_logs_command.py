"""`pgsched run logs`, `run watch` and `run show` print and follow the output and progress of runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from pgsched import App, Run
from tests.support.cli.said import Said
from tests.support.paths import ROOT
from tests.support.waiting import wait_until
from tests.support.working import add, all_ended, work

Pgsched = Callable[..., Said]
NOR_KEPT = ", or its worker keeps no output (--log-bytes 0)\n"


@contextmanager
def started(dsn: str, *args: str) -> Iterator[subprocess.Popen[str]]:
    """Run a command line in its own process, which is killed at the end of the block."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "pgsched", *args], cwd=ROOT, env=os.environ | {"PGSCHED_DSN": dsn},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def is_connected(db: psycopg.Connection) -> Callable[[], object]:
    """Return a check whether a command line is connected to the test's database."""
    query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE %s"
    return lambda: db.execute(query.encode(), ["pgsched cli%"]).fetchone() != (0,)


def shell(db: psycopg.Connection, dsn: str, line: str, **columns: object) -> str:
    run_id = add(db, "shell", line, **columns)
    work(dsn, None, lambda: all_ended(db))
    return str(run_id)


def test_output_is_shown_unchanged(pgsched: Pgsched, dsn: str, db: psycopg.Connection) -> None:
    run_id = shell(db, dsn, r"printf 'a\tb\n\nc'; sleep 0.2; echo oops >&2")
    assert pgsched("run", "logs", run_id, "--stream", "stdout").out == "a\tb\n\nc"
    assert pgsched("run", "logs", run_id, "--stream", "stderr").out == "oops\n"
    assert pgsched("run", "logs", run_id).out == "a\tb\n\ncoops\n"
    pieces = pgsched("run", "logs", run_id, "--json").json
    assert [(piece["stream"], piece["text"], piece["attempt"]) for piece in pieces] == [
        ("stdout", "a\tb\n\nc", 1),
        ("stderr", "oops\n", 1),
    ]


def test_control_characters_reach_a_terminal_only_when_asked_for(
    pgsched: Pgsched, dsn: str, db: psycopg.Connection
) -> None:
    run_id = shell(db, dsn, r"printf '\033[2Jred\r\n'")
    assert pgsched("run", "logs", run_id).out == "\\x1b[2Jred\n"
    assert pgsched("run", "logs", run_id, "--raw").out == "\x1b[2Jred\r\n"


def test_each_attempt_has_its_own_output(pgsched: Pgsched, dsn: str, db: psycopg.Connection) -> None:
    run_id = add(db, "shell", "echo attempt $PGSCHED_ATTEMPT; exit 1")
    db.execute("UPDATE pgsched.runs SET max_attempts = 2, backoff_base = '0', backoff_jitter = 0")

    def tried() -> bool:
        db.execute("UPDATE pgsched.runs SET state = 'queued' WHERE state = 'scheduled'")
        return all_ended(db)

    work(dsn, None, tried)
    said = pgsched("run", "logs", str(run_id))
    assert (said.out, said.err) == ("attempt 1\nattempt 2\n", "--- attempt 2 ---\n")
    assert pgsched("run", "logs", str(run_id), "--attempt", "2").out == "attempt 2\n"


@pytest.mark.parametrize("verb", ["logs", "watch"])
def test_an_unknown_run_ends_with_one_line_and_code_8(verb: str, pgsched: Pgsched) -> None:
    said = pgsched("run", verb, "999")
    assert (said.code, said.out, said.err.count("\n")) == (8, "", 1)
    assert said.err.startswith("error: there is no run 999")
    assert pgsched("run", verb, "x").code == 2


@pytest.mark.long
def test_a_wrong_stream_is_refused_and_missing_output_is_explained(
    pgsched: Pgsched, dsn: str, db: psycopg.Connection
) -> None:
    run_id = shell(db, dsn, "true")
    assert pgsched("run", "logs", run_id, "--stream", "out").code == 2
    said = pgsched("run", "logs", run_id)
    assert (said.code, said.out, said.err) == (0, "", f"run {run_id} has printed nothing{NOR_KEPT}")
    loud = shell(db, dsn, "echo here")
    said = pgsched("run", "logs", loud, "--attempt", "5", "--stream", "stderr")
    assert (said.out, said.err) == ("", f"attempt 5 of run {loud} was never begun\n")
    said = pgsched("run", "logs", loud, "--stream", "stderr")
    assert (said.out, said.err) == ("", f"run {loud} has printed nothing to stderr{NOR_KEPT}")
    later, fetched = str(add(db, "shell", "echo here")), str(add(db, "http", "http://example.com/"))
    assert pgsched("run", "logs", later).err == f"run {later} has not begun yet\n"
    db.execute("UPDATE pgsched.runs SET attempt = 1 WHERE id = %s", [fetched])
    assert "the answer of an http run is its result" in pgsched("run", "logs", fetched).err
    quiet = str(add(db, "task", "t"))
    db.execute("UPDATE pgsched.runs SET attempt = 1 WHERE id = %s", [quiet])
    assert pgsched("run", "logs", quiet).err.endswith("a task's is kept with capture=True, and what run.log() says\n")


def test_follow_prints_the_output_of_a_run_as_it_comes_and_ends_with_the_run(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    run_id = add(db, "shell", f"echo begun; while [ ! -e {gate} ]; do sleep 0.05; done; printf over; exit 3")
    with started(dsn, "run", "logs", str(run_id), "--follow") as follower:
        wait_until(is_connected(db), 30, "the follower")
        got: list[str] = []

        def go_on() -> bool:
            if not got:
                assert follower.stdout is not None
                got.append(follower.stdout.readline())  # while the run goes on
                gate.touch()
            return all_ended(db)

        work(dsn, None, go_on)
        out, _ = follower.communicate(timeout=30)
    assert (got, out, follower.returncode) == (["begun\n"], "over", 0)


@pytest.mark.long
def test_follow_in_json_prints_one_object_per_line(dsn: str, db: psycopg.Connection) -> None:
    run_id = add(db, "shell", "echo one; sleep 1.2; echo two")
    with started(dsn, "run", "logs", str(run_id), "--follow", "--json") as follower:
        wait_until(is_connected(db), 30, "the follower")
        work(dsn, None, lambda: all_ended(db))
        out, _ = follower.communicate(timeout=30)
    assert [json.loads(line)["text"] for line in out.splitlines()] == ["one\n", "two\n"]


def test_ctrl_c_ends_a_follow_cleanly(dsn: str, db: psycopg.Connection) -> None:
    run_id = add(db, "shell", "true")
    with started(dsn, "run", "logs", str(run_id), "-f") as follower:
        wait_until(is_connected(db), 30, "the follower")
        follower.send_signal(signal.SIGINT)
        out, err = follower.communicate(timeout=30)
    assert (follower.returncode, out, err) == (130, "", "")


def steps(db: psycopg.Connection) -> tuple[App, int]:
    """Return an app whose handler reports its progress twice, and the id of a run of it."""
    app = App("test")

    @app.task(name="steps")
    def steps(run: Run) -> None:
        run.log("starting", rows=4)
        run.progress(1, 4, "first")
        run.cancelled.wait(2.5)
        run.progress(4, 4, "last")

    return app, add(db, "task", "steps")


def test_watch_prints_every_change_and_its_code_says_how_it_ended(dsn: str, db: psycopg.Connection) -> None:
    app, run_id = steps(db)
    with started(dsn, "run", "watch", str(run_id)) as watcher:
        wait_until(is_connected(db), 30, "the watcher")
        work(dsn, app, lambda: all_ended(db))
        out, err = watcher.communicate(timeout=30)
    assert (watcher.returncode, out) == (0, "starting rows=4\n")
    assert f"run {run_id} steps: queued" in err
    assert "running, attempt 1/1" in err and "25% (1/4) first\n" in err
    assert "steps: succeeded, attempt 1/1, for 2" in err and "100% (4/4) last\n" in err


def test_watch_of_a_failure_ends_with_one(pgsched: Pgsched, dsn: str, db: psycopg.Connection) -> None:
    run_id = shell(db, dsn, "echo bad >&2; exit 4")
    said = pgsched("run", "watch", run_id)
    assert (said.code, said.out) == (1, "bad\n")
    assert said.err.endswith("exit code 4: bad\n")
    looks = [json.loads(line) for line in pgsched("run", "watch", run_id, "--json").out.splitlines()]
    assert (looks[0]["text"], looks[-1]["state"]) == ("bad\n", "dead")


@pytest.mark.long
def test_show_prints_the_progress(pgsched: Pgsched, dsn: str, db: psycopg.Connection) -> None:
    app, run_id = steps(db)
    work(dsn, app, lambda: all_ended(db))
    assert "progress      100% (4/4) last" in pgsched("run", "show", str(run_id)).out
    progress = pgsched("run", "show", str(run_id), "--json").json["progress"]
    assert {name: progress[name] for name in ("done", "total", "note", "attempt")} == {
        "done": 4, "total": 4, "note": "last", "attempt": 1,
    }  # fmt: skip
