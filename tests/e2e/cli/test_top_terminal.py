"""`pgsched top` on a real terminal with a real database and worker, used as an operator would."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgsched.chaos.fleet import Fleet
from pgsched.db.schema import roles
from pgsched.db.schema.migrate import upgrade
from tests.support.cli.terminal import Terminal, terminal
from tests.support.fleet import one
from tests.support.logins import alone
from tests.support.paths import ROOT
from tests.support.server import PrivateCluster
from tests.support.waiting import wait_until

RESTORED = {"7", "25"}  # the modes of an unchanged terminal: it wraps lines and shows the cursor


@pytest.fixture
def worker(dsn: str, tmp_path: Path) -> Iterator[Fleet]:
    """A worker of tests/support/apps/watched.py."""
    fleet = Fleet(dsn, tmp_path, "tests.support.apps.watched:app", cwd=ROOT)
    try:
        fleet.await_start(fleet.launch("--concurrency", "2"))
        yield fleet
    finally:
        fleet.end()


@pytest.fixture
def screen(dsn: str, tmp_path: Path) -> Iterator[Terminal]:
    """A terminal of 80x24 on which `pgsched top` has drawn."""
    with terminal(tmp_path, dsn) as made:
        made.send("top\n")
        made.until("1 overview")
        made.until("healthy")
        yield made


def quits(screen: Terminal, code: int = 0) -> None:
    """Check that top has ended and that the terminal is as it was before."""
    screen.until(f"ended {code}, terminal restored")
    assert screen.screen.modes - {"2004"} == RESTORED
    assert "2004" not in screen.screen.modes
    assert "1 overview" not in screen.screen.text(), "the other screen is back"


def pid_of_top(shell: int) -> int:
    """Return the process id of the command that a shell runs."""
    found = Path(f"/proc/{shell}/task/{shell}/children").read_text().split()
    return int(found[-1])


@pytest.mark.long
def test_an_operator_watches_a_run_and_cancels_it(db: psycopg.Connection, worker: Fleet, screen: Terminal) -> None:
    run_id = one(db, "SELECT pgsched.enqueue('copies')")
    screen.send("2")
    screen.until(lambda shown: "42% (42/100) copying" in shown and "████░░" in shown)
    screen.send("\r")
    screen.until("the first line")
    screen.until(f"run {run_id} copies: running, attempt 1/3")
    screen.send("c")
    screen.until(f"cancel run {run_id} copies? y/N")
    screen.send("y")
    screen.until("reason (Enter: none, Esc: no):")
    screen.send("wrong data\r")
    screen.until(lambda shown: "its worker was asked to stop it" in shown or "cancelled" in shown)
    screen.until(f"run {run_id} copies: cancelled")
    assert one(db, "SELECT cancel_reason FROM pgsched.runs WHERE id = %s", run_id).endswith(": wrong data")
    screen.send("\x1b")
    screen.until("nothing runs")
    screen.send("q")
    quits(screen)


def test_an_operator_finds_a_dead_run_and_retries_it(db: psycopg.Connection, worker: Fleet, screen: Terminal) -> None:
    run_id = one(db, "INSERT INTO pgsched.runs (task, max_attempts) VALUES ('breaks', 1) RETURNING id")
    screen.until("bank.example: connection")
    screen.send("5")
    screen.until(re.compile(rf"> +{run_id} dead").search)
    screen.send("\r")
    screen.until("ConnectionError: bank.example: connection refused")
    screen.until("attempt 1  failed after")
    screen.send("r")
    screen.until(f"retry run {run_id} breaks? y/N")
    screen.send("y")
    screen.until(f"run {run_id} is queued again")
    wait_until(lambda: one(db, "SELECT attempt = 2 AND state = 'dead' FROM pgsched.runs WHERE id = %s", run_id))
    screen.until("attempt 2  failed after")


def test_an_operator_pauses_a_job_and_a_queue_and_resumes_them(db: psycopg.Connection, screen: Terminal) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '0 2 * * *')")
    db.execute("INSERT INTO pgsched.runs (task, queue) VALUES ('t', 'mail')")
    screen.send("4")
    screen.until(re.compile("> nightly +active").search)
    screen.send("p")
    screen.until("pause job nightly? reason")
    screen.send("incident 7\r")
    screen.until("job nightly is paused by")
    screen.until(re.compile("> nightly +paused").search)
    assert one(db, "SELECT paused_reason FROM pgsched.jobs") == "incident 7"
    screen.send("py")
    screen.until("job nightly is active")
    assert one(db, "SELECT paused FROM pgsched.jobs") is False
    screen.send("3")
    screen.until("> mail")
    screen.send("p\r")
    screen.until("queue mail is paused")
    screen.until("paused by")
    assert one(db, "SELECT name FROM pgsched.pauses WHERE what = 'queue'") == "mail"
    screen.send("py")
    screen.until("queue mail goes on")
    assert one(db, "SELECT count(*) FROM pgsched.pauses") == 0


@pytest.mark.long
def test_a_viewer_sees_everything_and_gets_an_error_for_each_change(
    dsn: str, db: psycopg.Connection, tmp_path: Path
) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '0 2 * * *')")
    run_id = one(db, "SELECT pgsched.enqueue('t')")
    alone(lambda: roles.apply(db))
    with terminal(tmp_path, make_conninfo(dsn, options="-c role=pgsched_viewer")) as screen:
        screen.send("top --page jobs\n")
        screen.until("> nightly")
        for key, wanted in (
            ("1", "RUN ENDED"),
            ("2", "nothing runs"),
            ("3", "> default"),
            ("5", "ended badly"),
            ("6", "no live worker:"),
        ):
            screen.send(key)
            screen.until(wanted)
        screen.send("3")
        screen.until("> default")
        screen.send("\r")
        screen.until(re.compile(rf"> +{run_id} queued").search)
        screen.send("cy\r")
        screen.until("the database role lacks a grant")
        screen.send("4")
        screen.until("> nightly")
        screen.send("p\r")
        screen.until("the database role lacks a grant")
        screen.send("q")
        quits(screen)
    assert one(db, "SELECT state FROM pgsched.runs") == "queued"
    assert one(db, "SELECT paused FROM pgsched.jobs") is False


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("how", "code"),
    [("q", 0), ("\x03", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), ("\x1c", 131)],
    ids=["q", "ctrl-c", "SIGTERM", "SIGHUP", "ctrl-backslash"],
)
def test_the_terminal_is_restored_however_top_ends(screen: Terminal, how: str | signal.Signals, code: int) -> None:
    assert {"1049"} <= screen.screen.modes
    assert "25" not in screen.screen.modes
    if isinstance(how, str):
        screen.send(how)
    else:
        os.kill(pid_of_top(screen.shell.pid), how)
    quits(screen, code)


def fill(screen: Terminal) -> None:
    """Make top draw until the terminal, which is not read, has no room for more."""
    waits_in = Path(f"/proc/{pid_of_top(screen.shell.pid)}/wchan")
    for _ in range(1000):  # 1000 draws also fill the terminal where the kernel hides what a process waits for
        screen.send("\x0c")
        if screen.unread(0.01) and "wait_woken" in waits_in.read_text():
            return


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_top_although_its_terminal_is_full(screen: Terminal, number: signal.Signals) -> None:
    fill(screen)
    pid = pid_of_top(screen.shell.pid)
    os.kill(pid, number)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), 30, "its end")
    screen.until(f"ended {128 + number}, terminal restored")


def test_ctrl_s_does_not_stop_top(screen: Terminal) -> None:
    screen.send("\x13?")
    screen.until("any key goes back")


@pytest.mark.parametrize("what", ["loop.frame", "reader.Reader._once"])
def test_the_terminal_is_restored_after_a_bug(dsn: str, tmp_path: Path, what: str) -> None:
    """A bug in the drawing or reading code ends top, so that old figures do not stay there as if they were new."""
    with terminal(tmp_path, dsn) as screen:
        broken = tmp_path / "broken.py"
        broken.write_text(
            "import sys\n"
            "from pgsched.cli.top import loop, reader\n"
            "def buggy(_):\n    raise ZeroDivisionError('a bug')\n"
            f"{what} = buggy\n"
            "from pgsched.cli import run\n"
            "sys.exit(run(['top']))\n"
        )
        before = tmp_path / "before"
        screen.send(f"clear; stty -g > {before}\n{sys.executable} {broken}; echo ended $?\n")
        screen.until("ended 70\nREADY>")  # before that, top may take typed text as keys
        screen.send(
            f"stty -g | cmp - {before} && echo sa''me\n"
        )  # the split word keeps the echo of the command from matching
        shown = screen.until("same")
        assert "ended 70" in shown
        assert "ZeroDivisionError: a bug" in shown
        assert screen.screen.modes == RESTORED


@pytest.mark.long
def test_top_can_be_suspended_and_resumed(db: psycopg.Connection, screen: Terminal) -> None:
    screen.send("\x1a")
    screen.until("Stopped")
    assert screen.screen.modes == RESTORED
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '0 2 * * *')")
    screen.send("fg\n")
    screen.until("1 overview")
    screen.until("> nightly")
    assert "1049" in screen.screen.modes
    screen.send("\x1a")
    screen.until("Stopped")
    screen.send("fg\n")
    screen.until("> nightly")
    screen.send("q")
    screen.until(lambda shown: "1 overview" not in shown)
    assert screen.screen.modes == RESTORED


@pytest.mark.long
def test_top_follows_the_size_of_the_window(screen: Terminal) -> None:
    for width, height in ((120, 40), (50, 12), (80, 24)):
        screen.resize(width, height)
        shown = screen.until(lambda shown: "q quit" in shown and "1 overview" in shown)
        assert shown.splitlines()[height - 1].endswith("q quit")
        assert len(shown.splitlines()[height - 1]) == width


@pytest.mark.long
def test_without_utf_8_the_bars_are_plain_characters(dsn: str, tmp_path: Path) -> None:
    with terminal(tmp_path, dsn, PYTHONIOENCODING="ascii") as screen:
        screen.send("top\n")
        screen.until("throughput ____")
        screen.send("q")
        quits(screen)
        screen.send("clear\ntop --once\n")
        screen.until(lambda shown: "throughput ____" in shown and "ended 0" in shown)


@pytest.mark.long
def test_no_color_turns_colours_off(dsn: str, tmp_path: Path) -> None:
    for environment, coloured in (({}, True), ({"NO_COLOR": "1"}, False)):
        with terminal(tmp_path, dsn, **environment) as screen:
            screen.send("top\n")
            screen.until("healthy")
            screen.send("q")
            quits(screen)
            assert bool(screen.screen.colours) == coloured


@pytest.mark.long
def test_errors_with_control_characters_do_nothing_to_the_terminal(db: psycopg.Connection, screen: Terminal) -> None:
    db.execute(
        "INSERT INTO pgsched.runs (task, state, finished_at, attempt, error)"
        " VALUES ('日本語のタスク', 'dead', now(), 1, E'\\x1b[2J\\x1b]0;title\\x07gone')"
    )
    screen.send("5")
    shown = screen.until("日本語のタスク")
    assert "\\x1b[2J\\x1b]0;title\\x07gone" in shown
    assert "1 overview" in shown
    screen.send("\r")
    screen.until("error      \\x1b[2J\\x1b]0;title\\x07gone")


@pytest.mark.long
def test_top_goes_on_when_a_stopped_database_comes_back(private_cluster: PrivateCluster, tmp_path: Path) -> None:
    upgrade(private_cluster.dsn)
    with terminal(tmp_path, private_cluster.dsn) as screen:
        screen.send("top\n")
        screen.until("healthy")
        private_cluster.stop("immediate")
        screen.until("DOES NOT ANSWER for")
        screen.until("as of ")
        screen.send("4")
        screen.until("reading ...")
        private_cluster.start()
        screen.until("pgsched top healthy")
        screen.until("no jobs")
        private_cluster.stop("immediate")
        screen.until("DOES NOT ANSWER for")
        screen.send("q")
        quits(screen)


@pytest.mark.long
def test_keys_work_while_the_database_does_not_answer(private_cluster: PrivateCluster, tmp_path: Path) -> None:
    upgrade(private_cluster.dsn)
    with terminal(tmp_path, private_cluster.dsn) as screen:
        screen.send("top\n")
        screen.until("healthy")
        with psycopg.connect(private_cluster.dsn) as blocking:
            blocking.execute("LOCK pgsched.jobs IN ACCESS EXCLUSIVE MODE")
            screen.send("4")
            screen.until("reading ...")
            screen.send("?")
            screen.until("any key goes back")
            screen.send("xq")
            quits(screen)


@pytest.mark.long
def test_a_producer_is_told_that_alerts_are_hidden(dsn: str, db: psycopg.Connection, tmp_path: Path) -> None:
    alone(lambda: roles.apply(db))
    with terminal(tmp_path, make_conninfo(dsn, options="-c role=pgsched_producer")) as screen:
        screen.send("top\n")
        screen.until("this role may not read alerts")
        screen.until("RUN ENDED")
