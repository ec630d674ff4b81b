"""Commands, shell lines and SQL of producers get neither the secrets nor the rights of the worker that runs them.

They delay the worker for no longer than its operator allows.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgsched.db.queries.jobs import declarations
from tests.support.db.setting import cut
from tests.support.fleet import QUICK, Fleet, Member, fleet_on, one
from tests.support.hostile.ordinary_user import USER, works
from tests.support.logins import Logins, alone, not_refused
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

AS_USER = USER if os.geteuid() == 0 else ()
IS_ORDINARY = os.geteuid() != 0 or works(*USER)
ROOT_ALONE = pytest.mark.skipif(not works(*USER), reason="only root may become somebody else")
# Prints the lines of all processes' environments that contain the word from standard input, which is unique.
SEARCH = "read -r word; for p in /proc/[0-9]*; do tr '\\0' '\\n' <$p/environ; done 2>&- | grep -F \"$word\"; true"
DEAF = "trap '' TERM; touch {on}; while :; do sleep 0.1; done"


def run_of(db: psycopg.Connection[Any], kind: str, task: str, **columns: Any) -> int:
    """Enqueue a run of this kind, and return its id."""
    given = {"kind": kind, "task": task, "max_attempts": 1, **columns}
    values = [Jsonb(value) if isinstance(value, (dict, list)) else value for value in given.values()]
    names, places = ", ".join(given), ", ".join(["%s"] * len(given))
    statement = f"INSERT INTO pgsched.runs ({names}) VALUES ({places}) RETURNING id"
    return int(one(db, statement, *values))


def ended(db: psycopg.Connection[Any], run: int, within_s: float = 30.0) -> tuple[str, Any, str | None]:
    """Wait until a run has ended, and return its state, result and error."""
    done = "SELECT EXISTS (SELECT FROM pgsched.runs WHERE id = %s AND finished_at IS NOT NULL)"
    wait_until(lambda: one(db, done, run), within_s, "the run to end")
    row = db.execute("SELECT state, result, error FROM pgsched.runs WHERE id = %s", [run]).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


def printed(db: psycopg.Connection[Any], run: int) -> str:
    rows = db.execute("SELECT chunk FROM pgsched.run_logs WHERE run_id = %s ORDER BY seq", [run]).fetchall()
    return "".join(bytes(row[0]).decode() if isinstance(row[0], (bytes, memoryview)) else row[0] for row in rows)


# ---- the environment


@pytest.mark.few(1)
@pytest.mark.skipif(not IS_ORDINARY, reason="an ordinary user is needed")
@pytest.mark.parametrize("processes", [1, 2])
def test_a_shell_line_finds_no_secret_of_its_worker(
    db: psycopg.Connection[Any], dsn: str, tmp_path: Path, processes: int
) -> None:
    word = uuid.uuid4().hex
    env = {"DATABASE_URL": f"postgresql://{word}", "PGPASSWORD": word, "PGSCHED_WEB_TOKEN": word,
           "PGSCHED_SQL_DSN_W": f"password={word}", "PYTHONDONTWRITEBYTECODE": "1", "PGSCHED_LOG": "debug"}  # fmt: skip
    more = ("--processes", str(processes)) if processes > 1 else ()
    with fleet_on(f"{dsn} application_name={word}" if "=" in dsn else dsn, tmp_path) as fleet:
        member = fleet.launch(*QUICK, "--allow", "task,shell", "--max-memory", "2000", *more,
                              app="tests.support.apps.secretive:app", env=env, prefix=AS_USER)  # fmt: skip
        at_work = "SELECT count(*) FROM pgsched.workers WHERE stopped_at IS NULL"
        wait_until(lambda: one(db, at_work) == processes or not member.alive, 40, "the workers to start")
        if processes > 1 and os.geteuid() == 0:  # only root can read the environment that they were started with
            pids = db.execute("SELECT pid FROM pgsched.workers").fetchall()
            started = [Path(f"/proc/{pid}/environ").read_bytes() for (pid,) in pids]
            assert len(started) == processes and not any(word.encode() in text for text in started)
        for task in ("thread", "process"):  # the child process stays alive for the search
            state, result, error = ended(db, run_of(db, "task", task))
            assert (state, error) == ("succeeded", None)
            assert result == {"at_import": f"postgresql://{word}", "now": [], "enqueued": True}
        first = run_of(db, "shell", "true")  # starts the guard process, which stays alive too
        assert ended(db, first)[0] == "succeeded"
        search = run_of(db, "shell", SEARCH, args={"stdin": f"{word}\n"})
        assert ended(db, search)[0] == "succeeded"
        assert printed(db, search) == ""
        assert member.logged("only root reads this process's memory")


@pytest.mark.long
@pytest.mark.skipif(not IS_ORDINARY, reason="an ordinary user is needed")
def test_a_worker_that_runs_no_programs_is_not_hidden(db: psycopg.Connection[Any], dsn: str, tmp_path: Path) -> None:
    """A debugger of the same user may attach to it, and handlers find the whole environment."""
    env = {"DATABASE_URL": "postgresql://here", "PYTHONDONTWRITEBYTECODE": "1"}
    with fleet_on(dsn, tmp_path) as fleet:
        member = fleet.launch(*QUICK, app="tests.support.apps.secretive:app", env=env, prefix=AS_USER)
        fleet.await_start(member)
        assert ended(db, run_of(db, "task", "thread"))[1]["now"] == ["DATABASE_URL", "PGSCHED_DSN"]
        readable = subprocess.run([*AS_USER, "cat", f"/proc/{member.pid}/environ"], check=False, capture_output=True)
        assert b"PGSCHED_DSN" in readable.stdout


@pytest.mark.skipif(not IS_ORDINARY, reason="an ordinary user is needed")
def test_a_hidden_process_can_still_read_its_memory_and_descriptors() -> None:
    code = (
        "from pgsched import hidden_environment; assert hidden_environment.hide();"
        "import os, subprocess; from pgsched.worker.watching.memory_limit import STATM; STATM.read_text();"
        "os.listdir('/proc/self/fd');"
        "subprocess.run(['true'], check=True, close_fds=True); from pgsched.chaos.fleet import state_of;"
        "assert state_of(os.getpid()) in 'RS'"
    )
    done = subprocess.run([*AS_USER, sys.executable, "-c", code], cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- another user


@pytest.mark.long
@ROOT_ALONE
def test_programs_run_as_the_user_of_run_as(db: psycopg.Connection[Any], dsn: str, tmp_path: Path) -> None:
    with fleet_on(dsn, tmp_path) as fleet:
        member = fleet.launch(*QUICK, "--allow", "task,shell,command", "--run-as", "nobody", "--kill-after-most", "0.5")
        fleet.await_start(member)
        line = 'id -un; id -G; echo "$HOME $USER"; cat /proc/$PPID/environ; test -r /etc/shadow && echo readable; true'
        asked = run_of(db, "shell", line)
        assert ended(db, asked)[0] == "succeeded"
        said = printed(db, asked).splitlines()
        asked_here = ["sh", "-c", "id -G nobody; getent passwd nobody"]
        here = subprocess.run(asked_here, capture_output=True, text=True, check=True)
        groups, entry = here.stdout.splitlines()
        assert said[:3] == ["nobody", groups, f"{entry.split(':')[5]} nobody"]
        assert not any("PGSCHED_DSN" in line or line == "readable" for line in said)
        assert ended(db, run_of(db, "command", "id", args=["-u"]))[0] == "succeeded"
        by_name = run_of(db, "shell", "cat /dev/stdin > /dev/stderr; echo out > /dev/stdout", args={"stdin": "in "})
        assert ended(db, by_name)[0] == "succeeded"
        assert sorted(printed(db, by_name).split()) == ["in", "out"]  # two pipes, read in any order
        stubborn = "trap '' TERM; sleep 1000 & echo $$; while :; do sleep 0.1; done"
        stopped = run_of(db, "shell", stubborn, timeout="1 second")
        assert ended(db, stopped)[0] == "dead"
        pid = printed(db, stopped).strip()
        wait_until(lambda: not Path("/proc", pid).exists(), 10, "the program to end")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--allow", "shell", "--run-as", "nobdy"], "this machine has no user 'nobdy'; did you mean nobody?"),
        (["--run-as", "nobody"], "this worker runs no programs: allow command or shell as well"),
    ],
)
def test_a_wrong_user_is_refused(dsn: str, tmp_path: Path, options: list[str], why: str) -> None:
    with fleet_on(dsn, tmp_path) as fleet:
        member = fleet.launch(*QUICK, *options)
        assert (member.ended(30), member.last_line) == (2, f"error: run-as: {why}")


@pytest.mark.skipif(not IS_ORDINARY, reason="an ordinary user is needed")
def test_only_root_may_run_programs_as_another_user(dsn: str, tmp_path: Path) -> None:
    with fleet_on(dsn, tmp_path) as fleet:
        member = fleet.launch(*QUICK, "--allow", "shell", "--run-as", "nobody", prefix=AS_USER)
        assert member.ended(30) == 2
        assert member.last_line == "error: run-as: only root may run programs as nobody: start the worker as root"


# ---- the text of an SQL job


def member_of(db: psycopg.Connection[Any], logins: Logins, owner: str, *who: str) -> None:
    """Allow these logins to become the owner."""
    for login in who:
        grant = f'GRANT "{logins.name(owner)}" TO "{logins.name(login)}"'
        alone(lambda grant=grant: db.execute(grant.encode()))  # type: ignore[misc]


@pytest.mark.long
def test_where_roles_are_in_force_no_worker_runs_sql_with_its_own_rights(
    logins: Logins, db: psycopg.Connection[Any], dsn: str, tmp_path: Path
) -> None:
    maker = logins.name("nobody")  # before PostgreSQL 16 this login may grant itself a role
    alone(lambda: db.execute(f'ALTER ROLE "{maker}" CREATEROLE'.encode()))
    cases: tuple[tuple[list[str], str], ...] = (
        ([], "error: allow: roles are in force here"),
        (["--sql-login", logins.dsn("ops")], f"error: sql-login: {logins.name('ops')} is a member of pgsched_operator"),
        (["--sql-login", dsn], "error: sql-login: "),
        (["--sql-login", " "], "error: sql-login: it is given, but empty"),
        (["--sql-login", logins.dsn("nobody"), "--sql-as-worker"], "error: sql-as-worker: not together with"),
        (["--sql-login", logins.dsn("nobody")], f"error: sql-login: {maker} is a member of {maker} (CREATEROLE)"),
    )
    with fleet_on(logins.dsn("worker"), tmp_path) as fleet:
        for options, why in cases:
            member = fleet.launch("--no-leader", "--allow", "sql", *options)
            assert member.ended(30) == 2
            assert member.last_line.startswith(why), member.last_line
            assert "password" not in member.last_line
        fleet.start(1, "--no-leader", "--allow", "sql", "--sql-as-worker")


@pytest.mark.long
def test_an_sql_job_gets_no_more_rights_than_its_login(
    logins: Logins, db: psycopg.Connection[Any], tmp_path: Path
) -> None:
    """The login of SQL jobs is a member of alice only; the worker's own login is a member of alice and of bob."""
    member_of(db, logins, "alice", "nobody", "worker")
    member_of(db, logins, "bob", "worker")
    alice, bob = logins.connect("alice"), logins.connect("bob")
    bobs = run_of(bob, "sql", "SELECT 1")
    texts = {
        "SELECT pgsched.enqueue('made')": {"rowcount": 1},
        "RESET ROLE; SET ROLE pgsched_worker": "permission denied to set role",
        f"RESET ROLE; SET ROLE \"{logins.name('bob')}\"": "permission denied to set role",
        f"RESET ROLE; INSERT INTO pgsched.runs (kind, task, owner) VALUES ('shell', 'id', '{logins.name('bob')}')":
            "violates row-level security policy",
        f"RESET ROLE; SELECT 1 / (count(*) - 1) FROM pgsched.runs WHERE id IN ({bobs}, 0)": {"rowcount": 1},
    }  # fmt: skip
    with fleet_on(logins.dsn("worker"), tmp_path) as fleet:
        fleet.start(1, *QUICK, "--no-leader", "--allow", "sql", "--sql-login", logins.dsn("nobody"))
        for text, expected in texts.items():
            state, result, error = ended(db, run_of(alice, "sql", text))
            if isinstance(expected, str):
                assert state == "dead" and expected in (error or ""), (text, error)
            else:
                assert (state, result, error) == ("succeeded", expected, None), text
        state, _, error = ended(db, bobs)
        assert state == "dead" and "permission denied to set role" in (error or "")
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE kind = 'shell'") == 0
    assert one(db, "SELECT owner FROM pgsched.runs WHERE task = 'made'") == logins.name("alice")


@pytest.mark.long
def test_with_sql_login_an_sql_job_that_ends_its_transaction_fails(
    logins: Logins, db: psycopg.Connection[Any], tmp_path: Path
) -> None:
    member_of(db, logins, "alice", "nobody")
    with fleet_on(logins.dsn("worker"), tmp_path) as fleet:
        fleet.start(1, *QUICK, "--no-leader", "--allow", "sql", "--sql-login", logins.dsn("nobody"))
        state, _, error = ended(db, run_of(logins.connect("alice"), "sql", "SELECT 1; COMMIT", max_attempts=3))
        assert state == "dead" and "ended the transaction" in (error or "")


# ---- names of declared jobs


class Declared:
    """A job as code declares it."""

    name, task, schedule, timezone, args = "nightly", "pay", "@daily", "UTC", None
    policies: Mapping[str, Any] = {}


def declared(logins: Logins, app: str = "payments", who: str = "worker") -> dict[str, str]:
    return declarations.declare(logins.connect(who), [Declared()], app)


def squat(logins: Logins, db: psycopg.Connection[Any]) -> None:
    """Give alice a job that claims to be declared by the app, as she could write it in the past."""
    columns = "(name, task, schedule, declared_by, owner) VALUES ('nightly', 'pay', '@daily', 'payments', %s)"
    db.execute(f"INSERT INTO pgsched.jobs {columns}".encode(), [logins.name("alice")])


def test_only_a_declaration_writes_declared_by(logins: Logins) -> None:
    statements = (
        "INSERT INTO pgsched.jobs (name, task, schedule, declared_by) VALUES ('a', 't', '@daily', 'payments')",
        "UPDATE pgsched.jobs SET declared_by = 'payments'",
    )
    for who in ("alice", "ops", "desk", "eye"):
        assert not_refused(logins.connect(who), *statements) == {}, who
    assert not_refused(logins.connect("worker"), statements[1]) == {}
    assert declared(logins) == {"nightly": "created"}


def test_a_declared_job_is_not_taken_over_from_another_owner(logins: Logins, db: psycopg.Connection[Any]) -> None:
    named = f"foreign: it is a job of {logins.name('alice')}"
    squat(logins, db)
    assert declared(logins) == {"nightly": named}
    db.execute("UPDATE pgsched.jobs SET declared_by = NULL")
    assert declared(logins) == {"nightly": named}
    db.execute("DELETE FROM pgsched.jobs")
    assert declared(logins) == {"nightly": "created"}
    other = logins.name("leader")  # another worker of the fleet has another login
    alone(lambda: db.execute(f'GRANT pgsched_worker TO "{other}"'.encode()))
    assert declared(logins, who="leader") == {"nightly": "unchanged"}


def test_without_the_owner_check_the_job_would_stay_the_squatter_s(
    logins: Logins, db: psycopg.Connection[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, "declare_squatted", "j.owner <> current_user", "false")
    squat(logins, db)
    assert declared(logins) == {"nightly": "unchanged"}


@pytest.mark.long
def test_a_worker_names_the_owner_that_took_the_name_of_a_job(
    logins: Logins, db: psycopg.Connection[Any], tmp_path: Path
) -> None:
    name = "salaries"
    logins.connect("alice").execute("INSERT INTO jobs (name, task, schedule) VALUES (%s, 't', '@daily')", [name])
    with fleet_on(logins.dsn("worker"), tmp_path) as fleet:
        member = fleet.launch("--no-leader", app="tests.support.apps.releases:new")
        fleet.await_start(member)
        assert member.logged("another owner has taken their names") and member.logged(logins.name("alice"))
    assert one(db, "SELECT owner FROM pgsched.jobs WHERE name = %s", name) == logins.name("alice")


# ---- how long a run may take to be killed


def deaf(fleet: Fleet, on: Path, *options: str, **columns: Any) -> tuple[Member, int]:
    """Start a worker with a run that ignores SIGTERM and whose kill_after is ten years. Return both."""
    (member,) = fleet.start(1, *QUICK, "--allow", "shell", "--grace", "0.5", "--kill-after-most", "1", *options)
    with psycopg.connect(fleet.dsn, autocommit=True) as db:
        run = run_of(db, "shell", DEAF.format(on=on), kill_after="10 years", **columns)
    wait_until(on.exists, 20, "the run to begin")
    return member, run


@pytest.mark.long
def test_a_time_out_ends_a_run_whose_kill_after_is_years(db: psycopg.Connection[Any], dsn: str, tmp_path: Path) -> None:
    with fleet_on(dsn, tmp_path) as fleet:
        _, run = deaf(fleet, tmp_path / "on", timeout="2 seconds")
        assert ended(db, run)[0] == "dead"


def test_an_operators_cancel_ends_a_run_whose_kill_after_is_years(
    db: psycopg.Connection[Any], dsn: str, tmp_path: Path
) -> None:
    with fleet_on(dsn, tmp_path) as fleet:
        _, run = deaf(fleet, tmp_path / "on")
        db.execute("SELECT pgsched.cancel(%s)", [run])
        assert ended(db, run)[0] == "cancelled"


@pytest.mark.long
def test_a_stop_of_the_worker_ends_a_run_whose_kill_after_is_years(
    db: psycopg.Connection[Any], dsn: str, tmp_path: Path
) -> None:
    with fleet_on(dsn, tmp_path) as fleet:
        member, run = deaf(fleet, tmp_path / "on")
        member.signal(signal.SIGTERM)
        assert member.ended(20) == 0
        assert one(db, "SELECT state FROM pgsched.runs WHERE id = %s", run) == "queued"
