"""Limits that a task declares: rows of `pgsched.limits`, and keys that only the task's runs have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched import App, InputError, TaskError
from pgsched.app.release import releases
from pgsched.db.queries.leader import backfills
from pgsched.db.queries.runs import tasks
from tests.support.db.limiting import admit, end, states
from tests.support.fleet import one
from tests.support.logins import Logins

pytestmark = pytest.mark.pg14


def shop(app: str = "shop", **declared: dict[str, Any]) -> App:
    made = App(app)
    for name, options in declared.items():
        made.task(name=name, **options)(lambda id=1: None)  # noqa: A006
    return made


def start(db: psycopg.Connection, app: App, *, update: bool = True) -> dict[str, str]:
    """Do what a worker of this app does when it starts."""
    tasks.register(db, app.name, releases(app.tasks.values()))
    return tasks.declare_limits(db, app.name, update=update)


def limits(db: psycopg.Connection) -> list[Any]:
    return db.execute("SELECT name, concurrency, rate, extract(epoch FROM rate_period)::int, declared_by"
                      " FROM pgsched.limits ORDER BY name").fetchall()  # fmt: skip


def key(db: psycopg.Connection) -> str:
    return str(one(db, "SELECT concurrency_key FROM pgsched.runs ORDER BY id DESC LIMIT 1"))


# ---- rows


def test_limits_are_declared_changed_and_removed_like_jobs(db: psycopg.Connection) -> None:
    both = {"a": {"concurrency": 5, "rate": "100/min"}, "b": {"rate": "5/10s"}, "c": {}}
    assert start(db, shop(**both)) == {"task:a": "created", "task:b": "created"}
    assert limits(db) == [("task:a", 5, 100, 60, "shop"), ("task:b", None, 5, 10, "shop")]
    assert start(db, shop(**both)) == {}
    assert start(db, shop(**both | {"a": {"concurrency": 6}})) == {"task:a": "updated"}
    assert start(db, shop(**both | {"a": {"priority": 1}})) == {"task:a": "removed"}
    assert limits(db) == [("task:b", None, 5, 10, "shop")]


def test_a_worker_of_an_older_release_changes_no_limit(db: psycopg.Connection) -> None:
    old, new = shop(a={"concurrency": 5}), shop(a={"concurrency": 6})
    start(db, old)
    start(db, new)
    assert (start(db, old), limits(db)) == ({}, [("task:a", 6, None, None, "shop")])


def test_a_persons_change_lasts_until_a_worker_starts(db: psycopg.Connection) -> None:
    """As with declared jobs."""
    app = shop(a={"concurrency": 5})
    start(db, app)
    db.execute("UPDATE pgsched.limits SET concurrency = 1")
    assert start(db, app, update=False) == {}
    assert start(db, app) == {"task:a": "updated"}


def test_limits_that_people_set_are_left_alone(db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.limits (name, concurrency) VALUES ('task:a', 1), ('customer', 2), ('task:old', 3)")
    assert start(db, shop(a={"concurrency": 5})) == {}
    assert [row[:2] for row in limits(db)] == [("customer", 2), ("task:a", 1), ("task:old", 3)]


def test_limits_of_another_app_are_left_alone(db: psycopg.Connection) -> None:
    start(db, shop("other", b={"concurrency": 1}))
    start(db, shop(a={"concurrency": 5}))
    assert start(db, shop(a={})) == {"task:a": "removed"}
    assert [row[0] for row in limits(db)] == ["task:b"]


@pytest.mark.parametrize("old_one_last", [True, False])
def test_a_limit_moves_with_its_task_to_another_app(db: psycopg.Connection, old_one_last: bool) -> None:
    old, new = shop("old", a={"concurrency": 5}, b={}), shop("new", a={"concurrency": 3})
    start(db, old)
    assert start(db, new) == {"task:a": "updated"}
    if old_one_last:
        assert start(db, shop("old", b={})) == {}
        assert start(db, old) == {}, "an older release of the task"
    assert limits(db) == [("task:a", 3, None, None, "new")]
    assert start(db, shop("new", a={})) == {"task:a": "removed"}


def test_the_limits_of_an_owner_that_was_dropped_are_declared_by_the_next_login(
    db: psycopg.Connection, logins: Logins
) -> None:
    start(db, shop(a={"concurrency": 5}))
    db.execute("UPDATE pgsched.tasks SET owner = 'pgsched_dropped'")
    assert start(logins.connect("worker"), shop(a={"concurrency": 6})) == {"task:a": "updated"}


def test_only_workers_declare_limits_and_only_of_their_own_app(db: psycopg.Connection, logins: Logins) -> None:
    start(db, shop(a={"concurrency": 5}))
    worker = logins.connect("worker")
    db.execute("UPDATE pgsched.tasks SET owner = %s", [logins.name("alice")])
    db.execute("DELETE FROM pgsched.limits")
    assert tasks.declare_limits(worker, "shop", update=True) == {}
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        logins.connect("bob").execute("SELECT * FROM pgsched.declare_limits('shop', true)")
    assert limits(db) == []


# ---- keys


def test_runs_of_the_task_carry_its_key(db: psycopg.Connection, dsn: str) -> None:
    app = shop(a={"concurrency": 5}, b={"concurrency": 1, "concurrency_key": "customer {id}"})
    app.dsn = dsn
    app.tasks["a"].enqueue()  # before any worker has registered the task
    assert key(db) == "task:a"
    start(db, app)
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: app.tasks["a"].enqueue_many([[]]), "task:a"),
        (lambda: one(db, "SELECT pgsched.enqueue('a')"), "task:a"),
        (lambda: one(db, "SELECT pgsched.enqueue('a', concurrency_key => 'x')"), "task:a:x"),
        (lambda: app.tasks["a"].options(concurrency_key="x").enqueue(), "task:a:x"),
        (lambda: app.tasks["b"].enqueue(7), "task:b:customer 7"),
        (lambda: one(db, """SELECT pgsched.enqueue('b', '{"id": 8}')"""), "task:b:customer 8"),
    ]
    for call, expected in calls:
        call()
        assert key(db) == expected
        assert one(db, "SELECT name FROM pgsched.limit_of(%s)", expected) == expected[:6]


def test_runs_of_a_job_carry_it_too(db: psycopg.Connection) -> None:
    start(db, shop(a={"concurrency": 5}))
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('j', 'a', '@every 1h')")
    one(db, "SELECT pgsched.trigger('j')")
    assert key(db) == "task:a"
    db.execute("UPDATE pgsched.jobs SET concurrency_key = 'x'")
    one(db, "SELECT pgsched.trigger('j', overlap => 'allow')")
    assert key(db) == "task:a:x"
    db.execute("UPDATE pgsched.jobs SET concurrency_key = 'task:b'")
    one(db, "SELECT pgsched.trigger('j', overlap => 'allow')")
    assert key(db) == "task:a:-task:b"


def test_open_runs_of_a_job_keep_the_limit_of_their_task_after_an_edit(db: psycopg.Connection) -> None:
    start(db, shop(a={"concurrency": 1}))
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule, concurrency_key) VALUES ('j', 'a', '@every 1h', 'x')")
    one(db, "SELECT pgsched.trigger('j')")
    assert key(db) == "task:a:x"
    for edit, expected in (
        ("concurrency_key = 'y'", "task:a:y"),
        ("concurrency_limit = 2", "job:1:y"),
        ("concurrency_limit = NULL", "task:a:y"),
        ("concurrency_key = NULL", "task:a"),
    ):
        db.execute(f"UPDATE pgsched.jobs SET {edit}".encode())
        made = one(db, "SELECT id FROM pgsched.jobs")
        assert key(db) == expected.replace("job:1", f"job:{made}"), edit


def test_a_slot_that_a_backfill_runs_again_keeps_the_limit_of_its_task(db: psycopg.Connection) -> None:
    start(db, shop(a={"concurrency": 1}))
    job = one(db, "INSERT INTO pgsched.jobs (name, task, schedule, concurrency_key)"
                  " VALUES ('j', 'a', '@every 1h', 'x') RETURNING id")  # fmt: skip
    run = one(db, "SELECT pgsched.trigger('j')")
    end(db, run, "dead")
    asked = one(db, "SELECT pgsched.backfill('j', '2020-01-01', '2020-01-02', 'all')")
    assert backfills.rerun(db, {"id": asked, "job_id": job, "priority": 5}, [run], [None]) == 1
    assert key(db) == "task:a:x"


def test_a_changed_limit_of_a_task_holds_for_keys_that_were_admitted(db: psycopg.Connection) -> None:
    start(db, shop(a={"concurrency": 3, "concurrency_key": "customer {id}"}))
    admit(db)  # the new limit is applied
    for _ in range(3):
        one(db, """SELECT pgsched.enqueue('a', '{"id": 7}')""")
    admit(db)
    assert states(db) == {"queued": 3}
    db.execute("UPDATE pgsched.limits SET concurrency = 1")
    admit(db)
    assert states(db) == {"queued": 1, "waiting": 2}
    assert one(db, "SELECT applied_at IS NOT NULL FROM pgsched.limits")


def test_a_declared_job_of_a_limited_task_leaves_the_key_to_the_task() -> None:
    app = App("shop")

    @app.job(schedule="@every 1h")
    @app.task(name="a", concurrency=1, concurrency_key="x {id}", queue="q")
    def send(id: int = 1) -> None: ...  # noqa: A002

    assert app.declared_jobs[0].policies == {"queue": "q"}


@pytest.mark.parametrize("given", ["task:a", "task", "task:ab", "task:a:b", "task:"])
def test_no_other_run_has_the_key_of_a_task(db: psycopg.Connection, given: str) -> None:
    start(db, shop(a={"concurrency": 1}))
    with pytest.raises(psycopg.errors.CheckViolation, match=r"concurrency_key: task:\.\.\. is the limit of a task"):
        db.execute("SELECT pgsched.enqueue('other', concurrency_key => %s)", [given])
    db.execute(
        """SELECT pgsched.enqueue('other', jsonb_build_object('k', %s::text), concurrency_key => '{k}')""", [given]
    )
    assert key(db) == f"-{given}"


def test_an_app_cannot_register_the_key_of_another_task(db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match='concurrency_key: "task" is for the limits of tasks'):
        tasks.register(db, "shop", releases(shop(a={"concurrency_key": "task:b"}).tasks.values()))


def test_a_limit_of_a_task_is_kept(db: psycopg.Connection) -> None:
    """Admission reads the row as it reads one that a person set."""
    start(db, shop(a={"concurrency": 2}))
    for _ in range(3):
        one(db, "SELECT pgsched.enqueue('a')")
    assert db.execute("SELECT DISTINCT state FROM pgsched.runs").fetchall() == [("waiting",)]


@pytest.mark.parametrize(
    ("options", "error", "problem"),
    [
        ({"concurrency": -1}, InputError, "concurrency: -1 is out of range"),
        ({"concurrency": "5"}, InputError, "concurrency: expected a whole number"),
        ({"rate": "100"}, InputError, "rate: .* is not N/PERIOD"),
        ({"rate": 100}, InputError, "rate: expected text such as 100/m"),
        ({"rate": "1/90d"}, InputError, "the period must be between"),
        ({"name": "a:b", "concurrency": 1}, TaskError, "must have no colon"),
        ({"name": "a" * 151, "concurrency": 1}, TaskError, "at most 150 characters"),
    ],
)
def test_wrong_limits_are_refused_at_registration(options: Any, error: type[Exception], problem: str) -> None:
    with pytest.raises(error, match=problem):
        App("shop").task(**options)(lambda: None)
