"""The options of a task's decorator hold for every run of the task, in whatever way the run is made.

The call decides first, then the job, then the task, then pgsched's own defaults.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg.types.json import Jsonb

from pgsched import App
from pgsched.app.options import Options
from pgsched.app.release import releases
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.runs import enqueue, tasks
from pgsched.errors import SchemaTooOld
from pgsched.services.runs.enqueueing import enqueue_by_name
from tests.support.db.backfilling import finish, work
from tests.support.db.passing import lead, pass_time
from tests.support.fleet import one
from tests.support.logins import Logins

pytestmark = pytest.mark.pg14

TASK: dict[str, Any] = {
    "queue": "slow", "priority": 2, "max_attempts": 7, "timeout": timedelta(seconds=90), "tags": ["a", "b"],
    "concurrency_key": "tenant:{id}"
}  # fmt: skip
MADE = {**TASK, "concurrency_key": "tenant:4"}
PRODUCT = {"queue": "default", "priority": 5, "max_attempts": 3, "timeout": None, "tags": None, "concurrency_key": None}
ARGS = '{"id": 4}'


def told(app: str = "shop", name: str = "t", **options: Any) -> list[Any]:
    made = App(app)
    made.task(name=name, **options)(lambda id: None)  # noqa: A006
    return releases(made.tasks.values())


def known(db: psycopg.Connection, app: str = "shop", name: str = "t", **options: Any) -> None:
    assert tasks.register(db, app, told(app, name, **options)) is None


@pytest.fixture(autouse=True)
def registered(db: psycopg.Connection) -> None:
    known(db, **TASK)
    known(db, "shop2", "none")


def options(db: psycopg.Connection, run: int | None = None) -> dict[str, Any]:
    """Return the options of the newest run, or of this one."""
    with db.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(f"SELECT {', '.join(PRODUCT)} FROM pgsched.runs WHERE id = coalesce(%s, (SELECT max(id)"
                               " FROM pgsched.runs))", [run]).fetchone()  # fmt: skip
    assert found is not None
    return found


def copied(db: psycopg.Connection, task: str) -> None:
    with db.cursor().copy("COPY pgsched.runs (task, args) FROM STDIN") as copy:
        copy.write_row((task, ARGS))


WAYS: dict[str, Callable[..., Any]] = {
    "insert": lambda db, task: db.execute("INSERT INTO pgsched.runs (task, args) VALUES (%s, %s)", [task, ARGS]),
    "copy": copied,
    "enqueue": lambda db, task: db.execute("SELECT pgsched.enqueue(%s, %s)", [task, ARGS]),
    "keyed": lambda db, task: db.execute("SELECT pgsched.enqueue(%s, %s, unique_key => 'k')", [task, ARGS]),
}


@pytest.mark.parametrize("way", WAYS)
def test_plain_sql_takes_the_task_s_options(db: psycopg.Connection, way: str) -> None:
    WAYS[way](db, "t")
    assert options(db) == MADE


@pytest.mark.parametrize("way", WAYS)
def test_a_task_without_options_takes_the_defaults_of_pgsched(db: psycopg.Connection, way: str) -> None:
    WAYS[way](db, "none")
    assert options(db) == PRODUCT


def test_the_call_decides_first(db: psycopg.Connection) -> None:
    given = {"queue": "mine", "priority": 5, "max_attempts": 3, "timeout": timedelta(hours=1), "tags": [],
             "concurrency_key": "k"}  # fmt: skip
    names = ", ".join(given)
    db.execute(f"INSERT INTO pgsched.runs (task, {names}) VALUES ('t', {', '.join(['%s'] * len(given))})",
               list(given.values()))  # fmt: skip
    assert options(db) == given
    db.execute("SELECT pgsched.enqueue('t', queue => 'mine', priority => 5, max_attempts => 3)")
    assert [options(db)[name] for name in ("queue", "priority", "max_attempts")] == ["mine", 5, 3]


@pytest.mark.parametrize("count", [1, enqueue.WORTH_CHECKING])
def test_programs_that_know_only_name_and_arguments_get_the_options(
    dsn: str, db: psycopg.Connection, count: int
) -> None:
    app = App("elsewhere", dsn=dsn)
    app.task(name="t")(lambda id: None)  # noqa: A006
    app.tasks["t"].enqueue(4)
    assert options(db) == MADE
    app.tasks["t"].enqueue_many([[4]] * count)
    assert options(db) == MADE
    with app.graph() as graph:
        graph.add(app.tasks["t"], 4)
    assert options(db) == MADE
    app.close()


NAMED: dict[str, Callable[[psycopg.Connection, str, dict[str, Any]], Any]] = {
    "enqueue": lambda db, _, options: db.execute(*call_of("enqueue", options)),
    "enqueue_result": lambda db, _, options: db.execute(*call_of("enqueue_result", options)),
    "python by name": lambda _, dsn, options: App("other", dsn=dsn).enqueue("late", {"id": 4}, **options),
    "asyncio by name": lambda _, dsn, options: asyncio.run(
        App("other", dsn=dsn).enqueue_async("late", {"id": 4}, **options)
    ),
    "command line and HTTP": lambda db, _, options: enqueue_by_name(db, "late", {"id": 4}, Options(**options)),
}


@pytest.mark.parametrize("door", ["python by name", "command line and HTTP"])
def test_only_a_task_that_declares_a_key_or_a_delay_costs_more_by_name(
    dsn: str, db: psycopg.Connection, door: str
) -> None:
    """The function makes a run in half as much time again as a plain INSERT."""
    known(db, "shop3", "late", delay=300)
    known(db, "shop4", "keyed", unique_by=("id",))
    db.execute("ALTER FUNCTION pgsched.make_run RENAME TO make_run_hidden")
    doors: dict[str, Callable[..., Any]] = {
        "python by name": lambda task, **options: App("other", dsn=dsn).enqueue(task, {"id": 4}, **options),
        "command line and HTTP": lambda task, **options: enqueue_by_name(db, task, {"id": 4}, Options(**options)),
    }
    given = {"delay": timedelta(hours=1), "tags": ["a"], "priority": 1, "on_conflict": "replace"}
    for task in ("none", "t"):
        assert doors[door](task).created and doors[door](task, **given).created
    for task in ("late", "keyed"):
        with pytest.raises(SchemaTooOld, match="make_run"):
            doors[door](task)


def call_of(function: str, options: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    given = "".join(f", {name} => %({name})s" for name in options)
    return f"SELECT pgsched.{function}('late', '{ARGS}'{given})".encode(), options


@pytest.mark.parametrize("door", NAMED)
def test_a_task_s_delay_and_the_time_of_its_key_hold_by_every_door(dsn: str, db: psycopg.Connection, door: str) -> None:
    known(db, "shop", "late", delay=300, idempotency_retention=timedelta(days=9))
    at = datetime.now(UTC) + timedelta(days=1)
    for given, least in (({}, 300), ({"delay": timedelta(0)}, 0), ({"delay": timedelta(hours=1)}, 3600),
                         ({"at": at}, 86_400), ({"idempotency_key": "k"}, 300)):  # fmt: skip
        NAMED[door](db, dsn, given)
        waits = one(
            db, "SELECT extract(epoch FROM available_at - created_at) FROM pgsched.runs ORDER BY id DESC LIMIT 1"
        )
        assert least - 30 < waits <= least + 1, given
    assert one(db, "SELECT expires_at - created_at > '8 days' FROM pgsched.kept_keys WHERE key = 'k'")
    NAMED[door](db, dsn, {"idempotency_key": "short", "idempotency_retention": timedelta(hours=1)})
    assert one(db, "SELECT expires_at - created_at < '2 hours' FROM pgsched.kept_keys WHERE key = 'short'")


def test_a_call_that_gives_an_instant_has_no_use_for_the_task_s_delay(dsn: str, db: psycopg.Connection) -> None:
    app = App("elsewhere", dsn=dsn)
    app.task(name="u", delay=300)(lambda: None)
    at = datetime.now(UTC) + timedelta(days=1)
    for run in (app.tasks["u"].options(at=at).enqueue(), app.enqueue("u", at=at)):
        assert one(db, f"SELECT available_at FROM pgsched.runs WHERE id = {run}") == at
    app.close()


def test_many_plain_runs_of_a_task_with_options_are_checked_together(dsn: str, db: psycopg.Connection) -> None:
    known(db, "shop", "u", max_attempts=9, queue="q")
    app = App("elsewhere", dsn=dsn)
    app.task(name="u")(lambda id: None)  # noqa: A006
    app.tasks["u"].enqueue_many([[n] for n in range(enqueue.WORTH_CHECKING)])
    found = db.execute(
        "SELECT checked, queue, max_attempts, count(*)::int FROM pgsched.runs GROUP BY 1, 2, 3"
    ).fetchall()
    assert found == [(True, "q", 9, enqueue.WORTH_CHECKING)]
    app.close()


def test_runs_of_jobs_take_the_options_that_the_job_does_not_set(db: psycopg.Connection) -> None:
    jobs.add(db, {"name": "a", "task": "t", "schedule": "@hourly", "args": {"id": 4}})
    pass_time(db, 3600)
    lead(db)
    assert options(db) == MADE
    assert options(db, jobs.trigger(db, "a", None, "allow")) == MADE
    own = {"max_attempts": 3, "queue": "own", "priority": 5}
    jobs.add(db, {"name": "b", "task": "t", "schedule": "@hourly", "args": {"id": 4}, **own})
    assert options(db, jobs.trigger(db, "b", None, "allow")) == {**MADE, **own}
    assert jobs.show_job(db, "a")["queue"] is None and [job["queue"] for job in jobs.list_jobs(db)] == ["slow", "own"]


def test_jobs_follow_a_later_release(db: psycopg.Connection) -> None:
    jobs.add(db, {"name": "a", "task": "later", "schedule": "@hourly"})
    pass_time(db, 3600)
    lead(db)
    assert options(db) == PRODUCT
    assert one(db, "SELECT bool_and(checked) FROM pgsched.runs"), "a task without options costs no trigger"
    known(db, name="later", max_attempts=9)
    pass_time(db, 3600)
    lead(db)
    assert options(db) == {**PRODUCT, "max_attempts": 9}


def test_a_backfill_takes_the_tasks_options_too(db: psycopg.Connection) -> None:
    """This holds for new runs, and for an older run that runs again: it was made before the task had options."""
    jobs.add(db, {"name": "a", "task": "u", "schedule": "@daily", "args": {"id": 4}})
    ask = "SELECT pgsched.backfill('a', '2026-05-01Z', %s, mode => 'all')"
    for until in ("2026-05-02Z", "2026-05-03Z"):
        db.execute(ask, [until])
        while work(db):
            pass
        finish(db)
        work(db)
        known(db, name="u", **TASK)
    priority = {"priority": 9}
    first, second = (options(db, run) for (run,) in db.execute("SELECT id FROM pgsched.runs ORDER BY id").fetchall())
    assert second | priority == MADE | priority
    assert first | priority == MADE | priority


def test_registering_an_older_release_again_does_not_make_it_current(db: psycopg.Connection) -> None:
    known(db, max_attempts=2)
    known(db, **TASK)
    WAYS["insert"](db, "t")
    assert options(db) == {**PRODUCT, "max_attempts": 2}


def test_only_the_20_newest_releases_of_a_task_are_kept(db: psycopg.Connection) -> None:
    for n in range(1, 31):
        known(db, name="u", max_attempts=n)
    found = db.execute("SELECT (options ->> 'max_attempts')::int FROM pgsched.tasks WHERE task = 'u'").fetchall()
    assert sorted(n for (n,) in found) == list(range(11, 31))


def test_rebuild_flags_restores_the_flag_of_task_options(db: psycopg.Connection) -> None:
    """A restore, or a setval by hand, may have set the flag back."""
    db.execute("SELECT setval('pgsched.tasks_with_options', 0)")
    WAYS["insert"](db, "t")
    assert options(db) == PRODUCT
    db.execute("SELECT pgsched.rebuild_flags()")
    WAYS["insert"](db, "t")
    assert options(db) == MADE


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"priority": 10}, "priority: 10 is out of range 0-9"),
        ({"max_attempts": 0}, "max_attempts: 0 is out of range 1-1000"),
        ({"max_attempts": "many"}, "options: invalid input syntax"),
        ({"timeout": 0}, "timeout: 00:00:00 is less than"),
        # PostgreSQL 16 reads a negative interval, other versions refuse the value
        ({"timeout": 1e300}, r"(timeout: .* is less than|options: .*out of range)"),
        ({"queue": " x"}, "queue: must not begin or end with a space"),
        ({"tags": ["a" * 201]}, "tags: 201 characters"),
        ({"concurrency_key": "job:7"}, 'concurrency_key: "job" is for the limits of jobs'),
        ([], "options: expected an object"),
    ],
)
def test_options_that_a_run_could_not_take_are_refused(db: psycopg.Connection, given: Any, problem: str) -> None:
    task = [{"task": "bad", "release": "1", "options": given, "schema": {}}]
    with pytest.raises(psycopg.errors.CheckViolation) as caught:
        db.execute("SELECT pgsched.register_tasks('shop', %s)", [Jsonb(task)])
    assert re.match(f'task "bad": {problem}', str(caught.value.diag.message_primary))


def test_a_role_cannot_register_tasks_of_another_roles_app(db: psycopg.Connection, logins: Logins) -> None:
    worker = logins.connect("worker")
    assert tasks.register(worker, "shop", told(max_attempts=1)) == one(db, "SELECT current_user")
    WAYS["insert"](db, "t")
    assert options(db)["max_attempts"] == 7
    assert tasks.register(worker, "other", told("other", "v", max_attempts=1)) is None
    assert one(db, "SELECT owner FROM pgsched.tasks WHERE task = 'v'") == logins.name("worker")
    WAYS["enqueue"](logins.connect("alice"), "v")
    assert options(db)["max_attempts"] == 1


@pytest.mark.parametrize("who", ["alice", "leader", "ops", "eye"])
def test_only_workers_register_tasks(logins: Logins, who: str) -> None:
    conn = logins.connect(who)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("SELECT pgsched.register_tasks('a', '[]')")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        conn.execute("INSERT INTO pgsched.tasks (app, task, release, owner) VALUES ('a', 'b', 'c', current_user)")


def test_a_worker_can_write_tasks_only_by_the_function(logins: Logins) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        logins.connect("worker").execute("UPDATE pgsched.tasks SET owner = current_user")
