"""`pgsched lock run` runs a command while it holds a lock, and ends it before it could run without the lock."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched import App, LeaseLost, LockTimeout
from pgsched.cli.commands.coordination.held_command import HeldCommand
from pgsched.cli.commands.coordination.lock_run import hold_and_run
from pgsched.recipes.lock import Lock
from tests.support.cli.said import Said
from tests.support.cli.terminal import terminal
from tests.support.db.setting import Open
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

# Writes the time again and again for ten minutes; it cannot be ended by SIGTERM.
STUBBORN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: open(sys.argv[1] + ".term", "w").close())
for _ in range(120000):
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(f"{os.getpid()} {time.time()}")
    os.rename(sys.argv[1] + ".new", sys.argv[1])
    time.sleep(0.005)
"""
Started = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def started(dsn: str) -> Iterator[Started]:
    """Return a function that starts `pgsched lock run` in a process of its own."""
    with contextlib.ExitStack() as opened:

        def start(*args: str, **more: Any) -> subprocess.Popen[str]:
            process = subprocess.Popen(
                [sys.executable, "-m", "pgsched", "lock", "run", *args], cwd=ROOT, text=True, start_new_session=True,
                env=os.environ | {"PGSCHED_DSN": dsn}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more
            )  # fmt: skip
            opened.callback(process.communicate)
            opened.callback(process.kill)
            return process

        yield start


def holders(db: psycopg.Connection, name: str = "job") -> list[Any]:
    found = db.execute("SELECT fence, mode, note FROM pgsched.lock_line(%s) WHERE fence IS NOT NULL", [name])
    return found.fetchall()


def waiting(db: psycopg.Connection, name: str = "job") -> int:
    return len(db.execute("SELECT FROM pgsched.lock_line(%s) WHERE fence IS NULL", [name]).fetchall())


def hold(db: psycopg.Connection, name: str = "job") -> str:
    """Take a lock, and return the token."""
    row = db.execute("SELECT gen_random_uuid()::text").fetchone()
    assert row is not None
    db.execute("SELECT pgsched.lock_acquire(%s, %s, '1 hour')", [name, row[0]])
    return str(row[0])


def last_sign(place: Path) -> tuple[int, datetime]:
    """Return the process of the stubborn command, and when it was last at work."""
    wait_until(place.exists, 20, "the command to begin")
    pid, at = place.read_text().split()
    return int(pid), datetime.fromtimestamp(float(at), UTC)


def is_alive(pid: int) -> bool:
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def ended(process: subprocess.Popen[str]) -> Said:
    out, err = process.communicate(timeout=60)
    return Said(process.returncode, out, err)


def test_the_command_runs_under_the_lock_and_its_exit_code_is_returned(
    process: Callable[..., Said], db: psycopg.Connection, dsn: str
) -> None:
    done = process("lock", "run", "job", "--", "sh", "-c", "echo fence $PGSCHED_FENCE; exit 7", PGSCHED_DSN=dsn)
    last = db.execute("SELECT last_value FROM pgsched.fences").fetchone()
    assert last is not None
    assert (done.code, done.out, done.err) == (7, f"fence {last[0]}\n", "")
    assert db.execute("SELECT count(*) FROM pgsched.sessions").fetchone() == (0,), "it is given back at once"


def test_options_after_two_dashes_are_those_of_the_command(process: Callable[..., Said], dsn: str) -> None:
    done = process("lock", "run", "job", "--", "printf", "%s ", "--wait", "--json", "-x", PGSCHED_DSN=dsn)
    assert (done.code, done.out) == (0, "--wait --json -x ")


def test_a_lock_that_is_not_to_be_had_in_time_ends_with_75(
    process: Callable[..., Said], db: psycopg.Connection, dsn: str, tmp_path: Path
) -> None:
    hold(db)
    for wait in ("0s", "1s"):
        done = process("lock", "run", "job", "--wait", wait, "--", "touch", str(tmp_path / "ran"), PGSCHED_DSN=dsn)
        assert (done.code, done.out) == (75, "")
        assert (
            done.err
            == 'error: "job" was not acquired in time: others hold it or wait before it; see pgsched lock show\n'
        )
    assert not (tmp_path / "ran").exists()
    assert waiting(db) == 0
    assert db.execute("SELECT count(*) FROM pgsched.sessions").fetchone() == (1,)


def test_a_second_one_waits_until_the_first_has_ended(started: Started, db: psycopg.Connection) -> None:
    token = hold(db)
    second = started("job", "--note", "the second", "--", "echo", "done")
    wait_until(lambda: waiting(db) == 1, 20)
    db.execute("SELECT pgsched.lock_release('job', %s)", [token])
    assert ended(second) == Said(0, "done\n", "")


@pytest.mark.long
def test_shares_and_places_of_a_semaphore(
    started: Started, process: Callable[..., Said], db: psycopg.Connection, dsn: str
) -> None:
    started("shared", "--shared", "--", "cat", stdin=subprocess.PIPE)
    started("few", "--semaphore", "2", "--", "cat", stdin=subprocess.PIPE)
    wait_until(lambda: holders(db, "shared") and holders(db, "few"), 20)
    assert [row[1:] for row in holders(db, "shared")] == [("shared", "cat")]
    assert [row[1:] for row in holders(db, "few")] == [("counted", "cat")]
    for args, code in (
        (("shared", "--shared", "--wait", "20s"), 0),
        (("shared", "--wait", "0"), 75),
        (("few", "--semaphore", "2", "--wait", "20s"), 0),
        (("few", "--wait", "0s"), 2),
        (("few", "--semaphore", "2", "--shared"), 2),
    ):
        assert process("lock", "run", *args, "--", "true", PGSCHED_DSN=dsn).code == code, args


@pytest.mark.few(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_passed_on_and_the_lock_given_back(
    number: signal.Signals, started: Started, db: psycopg.Connection, tmp_path: Path
) -> None:
    """The group of the command gets it, too: here a shell that waits for a program."""
    line = f"trap 'echo heard; exit 3' {number.value}; echo $$ > {tmp_path / 'pid'}; sleep 600; true"
    process = started("job", "--", "sh", "-c", line)
    place = tmp_path / "pid"
    wait_until(lambda: place.exists() and place.read_text(), 20)
    wait_until(lambda: is_asleep(int(place.read_text())), 20)
    process.send_signal(number)
    done = ended(process)
    assert (done.code, done.out) == (3, "heard\n"), done.err
    assert holders(db) == []


def is_asleep(shell: int) -> bool:
    """Return whether a shell has started its `sleep`."""
    found = subprocess.run(["pgrep", "-P", str(shell), "-x", "sleep"], capture_output=True, check=False)
    return found.returncode == 0


def test_a_command_that_a_signal_ends_gives_128_and_its_number(started: Started, db: psycopg.Connection) -> None:
    process = started("job", "--", "sleep", "600")
    wait_until(lambda: holders(db), 20)
    wait_until(lambda: is_asleep(process.pid), 20)
    process.terminate()
    assert ended(process) == Said(143, "", "")
    assert holders(db) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_while_it_waits_leaves_nothing_in_line(
    number: signal.Signals, code: int, started: Started, db: psycopg.Connection
) -> None:
    hold(db)
    process = started("job", "--", "true")
    wait_until(lambda: waiting(db) == 1, 20)
    process.send_signal(number)
    assert ended(process) == Said(code, "", "")
    assert waiting(db) == 0


def test_a_broken_lock_ends_the_command_at_once(started: Started, db: psycopg.Connection, tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    process = started("job", "--ttl", "1h", "--", "sh", "-c", f"sleep 600 & touch {begun}; exec sleep 600")
    wait_until(begun.exists, 30)
    db.execute("SELECT pgsched.lock_break('job')")
    done = ended(process)
    assert (done.code, done.out) == (14, "")
    assert done.err.startswith('error: "job" is not held any more: ')
    assert done.err.endswith("; the command was ended\n")


def stubborn(started: Started, place: Path, ttl: str) -> tuple[subprocess.Popen[str], int]:
    """Run the stubborn program under the lock `job`; return `lock run`, and the number of the program's process.

    The command itself is a shell, and the program has a process group of its own.
    """
    line = f"timeout 600 '{sys.executable}' -c \"$0\" '{place}' >/dev/null 2>&1 & wait"
    process = started("job", "--ttl", ttl, "--", "sh", "-c", line, STUBBORN)
    return process, last_sign(place)[0]


def lease(db: psycopg.Connection) -> datetime:
    row = db.execute("SELECT max(lease_until) FROM pgsched.sessions").fetchone()
    assert row is not None
    found: datetime = row[0]
    return found


@pytest.mark.long
def test_a_lease_that_cannot_be_renewed_ends_a_command_that_ignores_sigterm(
    started: Started, db: psycopg.Connection, connect: Open, tmp_path: Path
) -> None:
    process, pid = stubborn(started, tmp_path / "sign", "10s")
    other = connect(autocommit=False)
    other.execute("SELECT FROM pgsched.sessions FOR UPDATE")  # no renewal goes through
    until = lease(other)
    done = ended(process)
    assert (done.code, is_alive(pid)) == (14, False)
    assert (tmp_path / "sign.term").exists(), "it was asked first"
    assert last_sign(tmp_path / "sign")[1] < until, "it was at work when its lease had ended"


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
def test_whatever_becomes_of_lock_run_its_command_does_not_outlive_the_lease(
    number: signal.Signals, started: Started, db: psycopg.Connection, tmp_path: Path
) -> None:
    process, pid = stubborn(started, tmp_path / "sign", "10s")
    process.send_signal(number)
    wait_until(lambda: not is_alive(pid), 20, "the command to end")
    assert last_sign(tmp_path / "sign")[1] < lease(db)
    if number == signal.SIGSTOP:
        process.send_signal(signal.SIGCONT)
        assert ended(process).code == 14


@pytest.mark.long
def test_what_the_command_has_started_in_a_session_of_its_own_ends_with_it(
    started: Started, db: psycopg.Connection, tmp_path: Path
) -> None:
    """SIGTERM ends the shell that is its parent, and then only its number is known."""
    line = f"setsid '{sys.executable}' -c \"$0\" '{tmp_path / 'sign'}' >/dev/null 2>&1 & wait"
    process = started("job", "--ttl", "3s", "--", "sh", "-c", line, STUBBORN)
    pid, _ = last_sign(tmp_path / "sign")
    db.execute("SELECT pgsched.lock_break('job')")
    assert ended(process).code == 14
    assert not is_alive(pid)


@pytest.mark.long
def test_what_the_command_leaves_running_goes_on(started: Started, db: psycopg.Connection, tmp_path: Path) -> None:
    process = started("job", "--", "sh", "-c", f"sleep 600 >/dev/null 2>&1 & echo $! > {tmp_path / 'pid'}")
    assert ended(process).code == 0
    pid = int((tmp_path / "pid").read_text())
    try:
        assert is_alive(pid)
        assert holders(db) == []
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [("no-such-program", 127, 'there is no command "no-such-program"'), ("/etc/passwd", 126, "cannot be started")],
)
def test_a_command_that_cannot_be_started(
    command: str, code: int, says: str, process: Callable[..., Said], db: psycopg.Connection, dsn: str
) -> None:
    done = process("lock", "run", "job", "--", command, PGSCHED_DSN=dsn)
    assert done.code == code
    assert says in done.err
    assert db.execute("SELECT count(*) FROM pgsched.locks").fetchone() == (0,), "the lock was not even asked for"


@pytest.mark.long
def test_on_a_terminal_the_command_has_the_keys(dsn: str, db: psycopg.Connection, tmp_path: Path) -> None:
    line = f"{sys.executable} -m pgsched lock run job -- "
    with terminal(tmp_path, dsn, width=200) as shown:
        shown.send(f"{line} sh -c 'read word </dev/tty; echo got $word'\r")
        wait_until(lambda: holders(db), 20)
        shown.send("it\r")
        shown.until("got it")
        shown.send(f"{line} sh -c 'trap \"echo in''terrupted; exit 5\" INT; sleep 600; true'; echo code $?\r")
        wait_until(lambda: holders(db), 20)
        wait_until(lambda: subprocess.run(["pgrep", "-f", "^sleep 600"], capture_output=True, check=False).stdout, 20)
        shown.send("\x03")
        shown.until("interrupted")
        shown.until("code 5")
    assert holders(db) == []


def test_a_command_is_not_started_under_a_lock_that_was_lost(dsn: str, db: psycopg.Connection, tmp_path: Path) -> None:
    """The process may have stood still between the grant and the start."""
    with contextlib.closing(App("test", dsn=dsn)) as app:
        lock = app.lock("job").acquire()
        db.execute("SELECT pgsched.lock_break('job')")
        assert lock.wait_lost(30)
        child = HeldCommand(lock, 30, ["touch", str(tmp_path / "begun")])
        with child.passing_signals_on(), pytest.raises(LeaseLost, match="was not started"):
            child.run()
        assert not (tmp_path / "begun").exists()


def test_the_exit_code_is_that_of_the_command_though_the_lock_is_not_given_back(
    dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Somebody else may have locked its line for too long."""

    def release(_: Lock) -> None:
        raise LockTimeout("another transaction holds a lock")

    with contextlib.closing(App("test", dsn=dsn)) as app:
        monkeypatch.setattr(Lock, "release", release)
        assert hold_and_run(app.lock("job"), 0, 30, ["sh", "-c", "exit 7"]) == 7
    assert "ends by itself within 30 s" in capsys.readouterr().err
