"""Output and progress are fenced, can be sent twice, are stored before the run's end, and never delay a run."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pgsched import App, Run
from pgsched.core.model import Claim, Outcome, Result, Settlement
from pgsched.db.queries.runs.claims import settle
from pgsched.db.queries.runs.run_output import Page, tell_progress, write_pages
from pgsched.worker import output as log_pump
from pgsched.worker.output import LogPump
from pgsched.worker.settling import settlement_queue
from tests.support.db.setting import add_runs, cut, let_expire, reap, take
from tests.support.waiting import wait_until
from tests.support.working import add, all_ended, output, work

KNOWN = "\n               AND EXISTS (SELECT FROM pgsched.attempts a WHERE (a.run_id, a.token) = (g.run_id, g.token))"
FENCE = (
    "\n          AND (r.token = g.token OR (r.attempt > g.attempt OR r.attempt = g.attempt AND r.token IS NULL)"
    f"{KNOWN})"
)


def say(dsn: str, claim: Claim, *texts: str, first: int = 0, base: int | None = None) -> int | None:
    """Write rows of a claim's output; return the base that the database answers."""
    lines = [(first + n, "stdout", text) for n, text in enumerate(texts)]

    async def main() -> int | None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            (told,) = await write_pages(conn, [Page(claim.key, claim.attempt, base, 0, 0, lines)])
            return told

    return asyncio.run(main())


def tell(dsn: str, claim: Claim, done: int) -> None:
    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await tell_progress(conn, [(claim.key, f'{{"done": {done}}}')])

    asyncio.run(main())


def hand_back(dsn: str, claim: Claim) -> None:
    """End the attempt as interrupted: the next attempt has the same number."""

    async def main() -> None:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await settle(conn, [Settlement.of(claim, Outcome(Result.INTERRUPTED, error="stopped"))], "w")

    asyncio.run(main())


def interrupted(dsn: str, db: psycopg.Connection) -> tuple[Claim, Claim]:
    """Return the former claim of a run, which wrote output, and the current one, with the same attempt number."""
    add_runs(db, 1)
    (former,) = take(db)
    assert say(dsn, former, "former\n") == 0
    hand_back(dsn, former)
    (present,) = take(db)
    assert (former.attempt, present.attempt) == (1, 1)
    return former, present


def test_a_zombie_with_the_current_attempt_number_writes_nothing(dsn: str, db: psycopg.Connection) -> None:
    former, present = interrupted(dsn, db)
    assert say(dsn, former, "zombie\n", first=1, base=0) is None
    assert say(dsn, present, "present\n") == 1
    assert output(db, present.id) == "former\npresent\n"


def test_without_the_fence_a_zombie_writes_output(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, "run_log_write", FENCE)
    former, present = interrupted(dsn, db)
    assert say(dsn, former, "zombie\n", first=1, base=0) == 0
    assert "zombie" in output(db, present.id)


def test_late_output_of_a_zombie_is_kept_under_its_own_attempt(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)
    (former,) = take(db)
    db.execute("UPDATE pgsched.runs SET begun = true")
    let_expire(db)
    reap(db)
    assert say(dsn, former, "late\n") == 0
    (present,) = take(db)
    say(dsn, present, "present\n")
    assert say(dsn, former, "later\n", first=1, base=0) == 0
    assert db.execute("SELECT attempt, chunk FROM pgsched.run_logs ORDER BY attempt, seq").fetchall() == [
        (1, "late\n"), (1, "later\n"), (2, "present\n"),
    ]  # fmt: skip


@pytest.mark.parametrize("guarded", [True, False])
def test_output_of_a_run_lost_in_a_failover_reaches_no_run_with_its_number(
    guarded: bool, dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not guarded:
        cut(monkeypatch, "run_log_write", KNOWN)
    add_runs(db, 1)
    (claim,) = take(db)
    db.execute("UPDATE pgsched.runs SET attempt = 2")
    lost = claim._replace(token=uuid4(), attempt=1)
    assert (say(dsn, lost, "secret\n") is None) is guarded
    assert ("secret" in output(db, claim.id)) is not guarded


def test_a_page_that_is_sent_again_changes_nothing(dsn: str, db: psycopg.Connection) -> None:
    _, present = interrupted(dsn, db)
    for _ in range(2):  # the base is not known yet: the answer to the first page was lost
        assert say(dsn, present, "one\n", "two\n") == 1
    assert say(dsn, present, "three\n", first=2, base=1) == 1
    assert output(db, present.id) == "former\none\ntwo\nthree\n"


def test_if_own_rows_counted_for_the_base_a_page_sent_again_would_be_twice(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, "run_log_write", " AND l.token IS DISTINCT FROM g.token")
    _, present = interrupted(dsn, db)
    for _ in range(2):
        say(dsn, present, "one\n")
    assert output(db, present.id) == "former\none\none\n"


def test_no_output_is_written_for_a_deleted_run(dsn: str, db: psycopg.Connection) -> None:
    add_runs(db, 1)
    (claim,) = take(db)
    db.execute("DELETE FROM pgsched.runs")
    assert say(dsn, claim, "late\n") is None
    assert db.execute("SELECT count(*) FROM pgsched.run_logs").fetchone() == (0,)


def progress(db: psycopg.Connection) -> Any:
    row = db.execute("SELECT progress ->> 'done' FROM pgsched.runs").fetchone()
    assert row is not None
    return row[0]


def test_a_zombie_writes_no_progress(dsn: str, db: psycopg.Connection) -> None:
    former, present = interrupted(dsn, db)
    tell(dsn, present, 5)
    tell(dsn, former, 9)
    assert progress(db) == "5"


def test_without_the_fence_a_zombie_writes_progress(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, "run_progress", " AND r.token = g.token")
    former, present = interrupted(dsn, db)
    tell(dsn, present, 5)
    tell(dsn, former, 9)
    assert progress(db) == "9"


LATE_WORDS = "echo first; sleep 0.3; echo last"


def seen_at_the_end(dsn: str, db: psycopg.Connection) -> str:
    """Return the log as it was when the run was settled."""
    db.execute(
        "CREATE TABLE public.seen (text text);"
        "CREATE FUNCTION public.see() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.seen SELECT"
        " string_agg(chunk, NULL ORDER BY seq) FROM pgsched.run_logs WHERE run_id = NEW.id; RETURN NULL; END';"
        "CREATE TRIGGER see AFTER UPDATE ON pgsched.runs FOR EACH ROW WHEN (NEW.finished_at IS NOT NULL)"
        " EXECUTE FUNCTION public.see()"
    )
    add(db, "shell", LATE_WORDS)
    work(dsn, None, lambda: all_ended(db))
    row = db.execute("SELECT text FROM public.seen").fetchone()
    assert row is not None
    return str(row[0])


def test_the_log_is_complete_when_the_run_has_ended(dsn: str, db: psycopg.Connection) -> None:
    assert seen_at_the_end(dsn, db) == "first\nlast\n"


def test_without_the_wait_for_the_pump_the_log_is_incomplete(
    dsn: str, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LogPump, "before", lambda self, key, then: then())
    assert seen_at_the_end(dsn, db) == "first\n"


@pytest.mark.long
def test_a_log_that_cannot_be_written_delays_no_run_and_comes_later(
    dsn: str, db: psycopg.Connection, connect: Any
) -> None:
    run_id = add(db, "shell", "echo hello")
    locker = connect(autocommit=False)
    locker.execute("LOCK TABLE pgsched.run_logs IN ACCESS EXCLUSIVE MODE")
    state: list[str] = []

    def written() -> bool:
        if not state and all_ended(db):
            state.append("ended while its log could not be written")
            locker.rollback()
        return bool(state) and output(db, run_id) == "hello\n"

    work(dsn, None, written)
    assert state


@pytest.mark.parametrize("guarded", [True, False])
def test_the_number_of_outcomes_that_wait_for_output_is_bounded(
    guarded: bool,
    dsn: str,
    db: psycopg.Connection,
    connect: Callable[..., psycopg.Connection],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After a crash, all of these runs would run again."""
    monkeypatch.setattr(log_pump, "PATIENCE_S", 60.0)
    monkeypatch.setattr(settlement_queue, "BEHIND", 20)
    if not guarded:
        monkeypatch.setattr(LogPump, "waiting_outcomes", 0)
    app, begun, most = App("test"), [], 1000

    @app.task(name="says", capture=True)
    async def says() -> None:
        begun.append(1)
        print("said")

    db.execute("INSERT INTO pgsched.runs (task) SELECT 'says' FROM generate_series(1, %s)", [most])
    locker = connect(autocommit=False)
    locker.execute("LOCK TABLE pgsched.run_logs IN ACCESS EXCLUSIVE MODE")
    seen: list[int] = []

    def played() -> bool:
        if not seen and len(begun) >= (20 if guarded else most):
            time.sleep(1.0 if guarded else 0)  # ten polls
            seen.append(len(begun))
            locker.rollback()
        return all_ended(db)

    work(dsn, app, played)
    assert seen[0] < most // 2 if guarded else seen[0] == most


def test_a_log_that_can_never_be_written_fails_no_run(dsn: str, db: psycopg.Connection) -> None:
    add(db, "shell", "echo hello")
    db.execute("ALTER TABLE pgsched.run_logs RENAME TO hidden")
    work(dsn, None, lambda: all_ended(db))
    assert db.execute("SELECT state FROM pgsched.runs").fetchone() == ("succeeded",)


def test_output_is_written_while_the_worker_drains(dsn: str, db: psycopg.Connection) -> None:
    run_id = add(db, "shell", "trap 'echo stopped; exit 1' TERM; echo begun; sleep 60 & wait")
    work(dsn, None, lambda: wait_until(lambda: output(db, run_id) == "begun\n", 30, "its first words"))
    assert output(db, run_id) == "begun\nstopped\n"
    assert db.execute("SELECT state FROM pgsched.runs").fetchone() == ("queued",)


@pytest.mark.long
def test_output_survives_a_lost_connection(dsn: str, db: psycopg.Connection, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    run_id = add(db, "shell", f"echo one; while [ ! -e {gate} ]; do sleep 0.05; done; echo two; sleep 1.5; echo three")
    killed: list[int] = []

    def ended() -> bool:
        if not killed and output(db, run_id) == "one\n":
            rows = db.execute(
                "SELECT pid FROM pg_stat_activity, pg_terminate_backend(pid, 10000)"
                " WHERE datname = current_database() AND application_name LIKE 'pgsched logs%%'"
            )
            killed.extend(row[0] for row in rows)
            gate.touch()
        return all_ended(db)

    work(dsn, None, ended)
    assert killed and output(db, run_id) == "one\ntwo\nthree\n"


def held(dsn: str, db: psycopg.Connection, holder: psycopg.Connection) -> tuple[str, Any]:
    """Let a handler report progress while another transaction locks its run.

    Return the output of another run as it was at the end of that run, and the last progress of the first run.
    """
    app, gate = App("test"), threading.Event()

    @app.task(name="tells")
    def tells(run: Run) -> None:
        while not gate.wait(0.05):
            run.progress(1, 2)
        run.progress(2, 2)

    told = add(db, "task", "tells")
    other: list[int] = []
    seen: list[str] = []

    def played() -> bool:
        states = dict(db.execute("SELECT id, state FROM pgsched.runs").fetchall())
        if not other and states[told] == "running":
            holder.execute("UPDATE pgsched.runs SET tags = '{}' WHERE id = %s", [told])
            other.append(add(db, "shell", "sleep 1.5; echo hello"))  # by its end the pump has come to the locked run
        elif other and not seen and states.get(other[0]) == "succeeded":
            seen.append(output(db, other[0]))
            holder.rollback()
            gate.set()
        return all_ended(db)

    work(dsn, app, played)
    row = db.execute("SELECT progress -> 'done' FROM pgsched.runs WHERE id = %s", [told]).fetchone()
    assert row is not None
    return seen[0], row[0]


@pytest.mark.long
def test_a_locked_run_does_not_delay_the_output_of_another_run(
    dsn: str, db: psycopg.Connection, connect: Callable[..., psycopg.Connection]
) -> None:
    assert held(dsn, db, connect(autocommit=False)) == ("hello\n", 2)


@pytest.mark.long
def test_without_skip_locked_a_locked_run_delays_the_output_of_another(
    dsn: str, db: psycopg.Connection, connect: Callable[..., psycopg.Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(monkeypatch, "run_progress", " FOR NO KEY UPDATE OF r SKIP LOCKED")
    assert held(dsn, db, connect(autocommit=False))[0] == ""
