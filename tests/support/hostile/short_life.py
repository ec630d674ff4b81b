"""A short life of an installation: what workers, a leader, operators and producers send to the database.

Invariant: the test's own questions go through a session of pgsched's `connect`. So the settings of the database and of
its roles do not change them.
"""

from __future__ import annotations

import contextlib
import io
import threading
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest

from pgsched import App, Run
from pgsched.cli import run as run_command
from pgsched.config import LeaderSettings
from pgsched.db.connection.connect import Connection, connect
from pgsched.leader.election import Leader
from tests.support.cli.said import Said
from tests.support.waiting import wait_until
from tests.support.working import work

OPEN = "SELECT count(*)::int FROM pgsched.runs WHERE phase < 3 AND job_id IS NULL"
DEAD = "SELECT id, task, coalesce(error, reason) FROM pgsched.runs WHERE state = 'dead' ORDER BY id"
ENOUGH = "SELECT count(*) > 6 FROM pgsched.runs WHERE job_id IS NOT NULL AND state = 'succeeded'"
ENDED = "SELECT count(*)::int FROM pgsched.backfills WHERE finished_at IS NULL"
JOBS = (
    "INSERT INTO pgsched.jobs (name, schedule, task, overlap, timeout, jitter, misfire_after)"
    " VALUES ('tick', '@every 1s', 'note', 'allow', '30 seconds', '0.1 seconds', '1 minute')",
    "INSERT INTO pgsched.jobs (name, schedule, task, timezone, keep)"
    """ VALUES ('tock', '30 2 * * *', 'note', 'Europe/Berlin', '{"dead": "90 days"}')""",
    "INSERT INTO pgsched.jobs (name, schedule, kind, task, max_lateness, expect_every)"
    " VALUES ('rows', '@every 1s', 'sql', 'INSERT INTO public.rows SELECT 1', '1 hour', '1 day')",
)
# Each statement works under any setting: none depends on a style of dates, intervals or literals.
RUNS = (
    "SELECT pgsched.enqueue('note', delay => '1 second', timeout => '1 minute')",
    "SELECT pgsched.enqueue('note', unique_key => 'k', unique_scope => 'bucket(1 hour)')",
    "SELECT pgsched.enqueue('note', idempotency_key => 'i', tags => '{a,b}')",
    "SELECT pgsched.enqueue('note', '[\"x\"]', concurrency_key => 'c:{0}', queue => 'narrow')",
    "SELECT pgsched.enqueue('note', at => clock_timestamp(), after => ARRAY(SELECT max(id) FROM pgsched.runs))",
    "INSERT INTO pgsched.runs (task, args, concurrency_key) VALUES ('note', '[1]', 'c:{0}')",
    "INSERT INTO pgsched.runs (kind, task) VALUES ('shell', 'echo hello')",
    "INSERT INTO pgsched.runs (kind, task) VALUES ('sql', 'SELECT 1; SELECT 2')",
    "INSERT INTO pgsched.runs (task, max_attempts, backoff_base) VALUES ('flaky', 3, '10 milliseconds')",
    "INSERT INTO pgsched.runs (task) VALUES ('own'), ('own_async'), ('note')",
    "SELECT pgsched.trigger('tock')",
)
COMMANDS = """
job add nightly --kind shell --task true --schedule 0_2_*_*_* --timezone Europe/Berlin --set timeout=90s
job show nightly
job list
job pause nightly --reason why
job resume nightly
job run nightly
job calendar nightly add 2030-12-24..2030-12-26 --reason feast
job calendar nightly list
job update nightly --set concurrency_limit=2
explain tick
backfill start tock --from 2020-01-01 --to 2020-01-03
backfill list
limit set c --concurrency 2 --rate 100/s
limit list
queue set narrow --concurrency 1 --rate 1000/s --fair
queue list
pause --queue other --for 1h
resume --queue other
retention set --keep 7d --keep dead=90d --archive
retention show
run list
run show 1
run logs 1
audit
alerts
status
doctor
check
prune --dry-run
job delete nightly
"""
REFUSED = ("error:", "Traceback", "[fail", "fail ")


@dataclass
class Life:
    """What went wrong in this life: `said` holds the messages."""

    said: list[str] = field(default_factory=list)

    def note(self, what: str, done: Said) -> None:
        refused = refusals(done)
        if done.code not in (0, 1) or refused:
            self.said.append(f"{what}: {done.code}: {refused or (done.out + done.err).strip()[-600:]}")


def refusals(done: Said) -> list[str]:
    """Return the lines that a command prints where something is wrong."""
    return [line for line in (done.out + done.err).splitlines() if any(word in line for word in REFUSED)]


def make_app(dsn: str) -> App:
    """Return an app with a task for each way in which a handler uses the database."""
    app = App("life", dsn=dsn)

    @app.task(name="note", capture=True)
    def note(run: Run, word: Any = None) -> dict[str, Any]:
        print("noted")
        run.progress(1, 2, "half")
        return {"noted": word}

    @app.task(name="own")
    def own(run: Run) -> None:
        with run.transaction() as conn:
            note.enqueue(connection=conn)
            note.enqueue_many([{}] * 3, connection=conn)
            conn.execute("SELECT pgsched.enqueue('note')")

    @app.task(name="own_async")
    async def own_async(run: Run) -> None:
        async with run.transaction() as conn:
            await note.enqueue_async(connection=conn)

    @app.task(name="flaky")
    def flaky(run: Run) -> None:
        if run.attempt == 1:
            raise ValueError("no luck")

    return app


def command(*args: str) -> Said:
    """Run a command line in this process."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command([*args])
    return Said(code, out.getvalue(), err.getvalue())


def produce(life: Life, app: App, producer_dsn: str) -> None:
    """Send what producers send, in their own sessions and through the app."""
    with psycopg.connect(producer_dsn, autocommit=True) as theirs:
        for statement in (*JOBS, *RUNS):
            theirs.execute(statement.encode())
        note = app.tasks["note"]
        for key, on in (("ours", None), ("theirs", theirs)):
            note.enqueue(connection=on)
            note.options(connection=on, delay=0.2, timeout=30, unique_key=key, tags=["t"]).enqueue()
            note.options(connection=on, delay=0.2, queue="many").enqueue_many([{}] * 5)
            note.enqueue_many([{}] * 120, connection=on)


def live(
    own: Connection[Any], *, worker_dsn: str, operator_dsn: str, producer_dsn: str, app_dsn: str | None = None
) -> Life:
    """Produce, work, lead and operate until all runs and commands are done.

    `own`: the session for the test's own questions (see `ours`).
    """
    life, fatal = Life(), []
    own.execute("CREATE TABLE public.rows (n int)")
    own.execute("GRANT ALL ON public.rows TO PUBLIC")
    app = make_app(app_dsn or producer_dsn)
    produce(life, app, producer_dsn)
    leader = Leader(worker_dsn, LeaderSettings(election_every_s=0.1, prune_every_s=0.5), "life", fatal.append)
    leading = threading.Thread(target=leader.run, daemon=True)

    def operate() -> None:
        for line in COMMANDS.strip().splitlines():
            words = [word.replace("_", " ") if "*" in word else word for word in line.split()]
            done = command(*words, "--dsn", operator_dsn)
            if line == "doctor" and refusals(done):  # on a busy machine, work may be late for a moment
                with contextlib.suppress(pytest.fail.Exception):
                    wait_until(lambda: not refusals(command("doctor", "--dsn", operator_dsn)))
                done = command("doctor", "--dsn", operator_dsn)
            life.note(line, done)

    operating = threading.Thread(target=operate, daemon=True)

    def done() -> bool:
        return bool(
            fatal
            or (
                not operating.is_alive()
                and own.execute(OPEN).fetchone() == own.execute(ENDED).fetchone() == (0,)
                and own.execute(ENOUGH).fetchone() == (True,)
            )
        )

    leading.start()
    operating.start()
    try:
        work(worker_dsn, app, done, timeout=90, poll_s=0.2)
    finally:
        leader.stop()
        leading.join()
        operating.join(30)
        app.close()
    life.said += [str(error) for error in fatal]
    life.said += [str(row) for row in own.execute(DEAD).fetchall()]
    return life


def ours(dsn: str) -> Connection[Any]:
    """Return a session for the test's own questions."""
    return connect(dsn, purpose="test")
