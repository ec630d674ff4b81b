"""Graphs and batches are made in one transaction, with parents before the runs that wait for them."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

from pgsched import App, InputError, PgschedError, TaskError
from pgsched.db.queries.leader import ticks
from pgsched.leader.dependents import decide_dependencies
from tests.support.db.enqueued import edges, runs


def end(db: psycopg.Connection, *run_ids: int, state: str = "succeeded") -> None:
    db.execute("UPDATE pgsched.runs SET state = %s, finished_at = now() WHERE id = ANY (%s)", [state, list(run_ids)])
    with db.transaction():
        decide_dependencies(db, 5000)
        ticks.admit(db, 5000)


def test_a_graph_is_made_with_all_its_runs_options_and_edges(app: App, db: psycopg.Connection) -> None:
    @app.task
    def step(n: int) -> None: ...

    with app.graph() as g:
        a = g.add(step, n=1)
        b = g.add(step.options(queue="big", delay=3600, concurrency_key="k", tags=["x"]), n=2, after=[a])
        c = g.add(step, 3, after=[a, b], on_failure="run_anyway")
        d = g.add(step, 4, after_any=[b, c])
        assert runs(db) == []
    assert edges(db) == [
        (b.id, a.id, "cancel", False),
        (c.id, a.id, "run_anyway", False), (c.id, b.id, "run_anyway", False),
        (d.id, b.id, "cancel", True), (d.id, c.id, "cancel", True),
    ]  # fmt: skip
    assert [run[2]["n"] for run in runs(db)] == [1, 2, 3, 4]
    assert runs(db)[1][3] == "big"
    asked = db.execute("SELECT concurrency_key, tags FROM pgsched.runs WHERE id = %s", [b.id])
    assert asked.fetchone() == ("k", ["x"])
    end(db, a.id)
    later = db.execute("SELECT available_at > now() + interval '59 min' FROM pgsched.runs WHERE id = %s", [b.id])
    assert later.fetchone() == (True,)


def test_the_leader_need_not_mark_the_parents_of_a_graph(app: App, db: psycopg.Connection) -> None:
    @app.task
    def step() -> None: ...

    with app.graph() as g:
        a = g.add(step)
        b = g.add(step, after=[a])
        c = g.add(step, after_any=[a, b])
    marked = "SELECT array_agg(id ORDER BY id) FROM pgsched.runs WHERE has_children"
    assert db.execute(marked).fetchone() == ([a.id, b.id],)
    end(db, a.id)  # before the leader has looked at any of the runs
    assert [run[1] for run in runs(db)] == ["succeeded", "queued", "queued"]
    assert c.id


def test_an_exception_in_the_block_makes_nothing(app: App, db: psycopg.Connection) -> None:
    @app.task
    def step() -> None: ...

    with pytest.raises(ZeroDivisionError), app.graph() as g:
        g.add(step)
        raise ZeroDivisionError
    assert runs(db) == []


def test_a_graph_belongs_to_the_callers_transaction(app: App, db: psycopg.Connection, dsn: str) -> None:
    @app.task
    def step() -> None: ...

    with psycopg.connect(dsn) as mine:
        with app.graph(connection=mine) as g:
            a = g.add(step)
            g.add(step, after=[a])
        assert runs(db) == []
        mine.rollback()
        assert runs(db) == []
        earlier = step.enqueue()
        with app.graph(connection=mine) as g:
            g.add(step, after=[earlier])
        mine.commit()
    assert [run[1] for run in runs(db)] == ["queued", "waiting"]


def test_a_graph_can_be_made_with_asyncio(app: App, db: psycopg.Connection) -> None:
    @app.task
    def step() -> None: ...

    async def make() -> None:
        async with app.graph() as g:
            a = g.add(step)
            g.add(step, after=[a])
        assert (await g.counts_async()).total == 2
        await app.close_async()

    asyncio.run(make())
    assert [run[1] for run in runs(db)] == ["queued", "waiting"]


def test_wrong_nodes_are_refused_when_they_are_added(app: App) -> None:
    @app.task
    def step(n: int) -> None: ...

    g, other = app.graph(), app.graph()
    node = other.add(step, 1)
    with pytest.raises(InputError, match="belongs to another graph"):
        g.add(step, 1, after=[node])
    with pytest.raises(TaskError, match="parameter n: "):
        g.add(step, "x")
    with pytest.raises(InputError, match="unique_key: finds a run"):
        g.add(step.options(unique_key="k"), 1)
    with pytest.raises(InputError, match="expected a task or"):
        g.add(print, 1)  # type: ignore[arg-type]
    with pytest.raises(PgschedError, match="has no id yet"):
        print(node.id)
    assert g.enqueue() == []
    with pytest.raises(PgschedError, match="enqueued already"):
        g.enqueue()


def test_a_batch_counts_its_runs_and_runs_its_callback_when_all_ended(app: App, db: psycopg.Connection) -> None:
    @app.task
    def part(n: int) -> None: ...

    @app.task
    def finish(name: str) -> None: ...

    batch = app.batch(finish, {"name": "all"})
    for n in range(3):
        batch.add(part, n)
    ids = batch.enqueue()
    assert batch.callback is not None
    assert runs(db)[-1] == (batch.callback.id, "waiting", {"name": "all"}, "default")
    end(db, ids[0], state="dead")
    assert (batch.counts().total, batch.counts().done, batch.counts().failed) == (3, 1, 1)
    assert not batch.counts().finished
    end(db, *ids[1:])
    assert batch.counts().finished
    assert runs(db)[-1][1] == "queued"


def test_another_process_counts_the_runs_of_a_batch_by_their_ids(app: App, db: psycopg.Connection, dsn: str) -> None:
    @app.task
    def part(n: int) -> None: ...

    with app.batch(part, {"n": 9}) as batch:
        for n in range(3):
            batch.add(part, n)
    end(db, batch.ids[0], state="dead")
    other = App("another", dsn=dsn)
    found = other.counts(batch.ids)
    assert (found.total, found.done, found.failed) == (3, 1, 1)
    assert other.counts([]).finished
    assert asyncio.run(asked(other, batch.ids)) == found
    with pytest.raises(InputError, match="runs: expected a list of runs or of their ids, got int"):
        other.counts(batch.ids[0])  # type: ignore[arg-type]
    with pytest.raises(PgschedError, match="nothing has been enqueued yet"):
        print(app.batch().ids)
    other.close()


async def asked(app: App, ids: list[int]) -> Any:
    found = await app.counts_async(ids)
    await app.close_async()
    return found


def test_a_callback_only_for_success_is_cancelled_by_a_failure(app: App, db: psycopg.Connection) -> None:
    @app.task
    def part() -> None: ...

    with app.batch(part, on_failure="cancel") as batch:
        node = batch.add(part)
    end(db, node.id, state="dead")
    assert runs(db)[-1][1] == "cancelled"


def test_a_callback_of_an_empty_batch_runs_at_once(app: App, db: psycopg.Connection) -> None:
    @app.task
    def finish() -> None: ...

    with app.batch(finish):
        pass
    assert [run[1] for run in runs(db)] == ["queued"]


def test_a_callback_with_wrong_arguments_is_refused_at_once(app: App) -> None:
    @app.task
    def finish(n: int) -> None: ...

    with pytest.raises(TaskError, match="missing a required argument"):
        app.batch(finish)


def test_a_run_that_waits_for_others_goes_on_waiting_when_it_is_replaced(app: App, db: psycopg.Connection) -> None:
    @app.task
    def step(n: int) -> None: ...

    a = step.enqueue(n=1)
    b = step.options(unique_key="k", after=[a]).enqueue(n=2)
    again = step.options(unique_key="k", on_conflict="replace", delay=3600).enqueue(n=3)
    assert (again, again.how) == (b, "replaced")
    with db.transaction():
        decide_dependencies(db, 5000)
        ticks.admit(db, 5000)
    assert runs(db)[1][1:3] == ("waiting", {"n": 3})
    end(db, a)
    assert runs(db)[1][1] == "scheduled"


def test_a_run_with_parents_and_a_limit_waits_for_its_parents_first(app: App, db: psycopg.Connection) -> None:
    row = db.execute("SELECT pgsched.enqueue('a')").fetchone()
    assert row is not None
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('narrow', 1)")
    db.execute("SELECT pgsched.enqueue('b', queue => 'narrow', after => %s::bigint[])", [list(row)])
    assert db.execute("SELECT state, ready_at FROM pgsched.runs WHERE task = 'b'").fetchone() == ("waiting", None)
    end(db, row[0])
    found = db.execute("SELECT state, ready_at IS NULL, available_at < now() + interval '1 day' FROM pgsched.runs"
                       " WHERE task = 'b'").fetchone()  # fmt: skip
    assert found == ("waiting", False, True)
    again = db.execute("SELECT pgsched.cancel(%s)", [row[0] + 1]).fetchone()
    assert again == ("cancelled",)
    end(db, row[0], state="dead")
    assert [r[1] for r in db.execute("SELECT id, state FROM pgsched.retry_tree(%s)", row).fetchall()] == [
        "queued", "waiting",
    ]  # fmt: skip
    assert db.execute("SELECT ready_at FROM pgsched.runs WHERE task = 'b'").fetchone() == (None,)


def test_a_role_that_may_only_insert_runs_and_edges_makes_graphs(
    app: App, db: psycopg.Connection, dsn: str, request: pytest.FixtureRequest
) -> None:
    @app.task
    def step() -> None: ...

    role = f"enqueuer_{db.info.dbname}"
    db.execute(f'CREATE ROLE "{role}" LOGIN')
    request.addfinalizer(lambda: db.execute(f'DROP OWNED BY "{role}"; DROP ROLE "{role}"'))
    db.execute(f'GRANT USAGE ON SCHEMA pgsched TO "{role}"; GRANT SELECT, INSERT ON pgsched.runs TO "{role}";'
               f' GRANT INSERT, SELECT ON pgsched.dependencies TO "{role}"')  # fmt: skip
    with psycopg.connect(dsn, user=role, autocommit=True) as mine:
        with app.graph(connection=mine) as g:
            a = g.add(step)
            b = g.add(step, after=[a])
        c = step.options(after=[a], connection=mine).enqueue()
        mine.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) VALUES (%s, %s)", [b.id, c])
    assert [run[1] for run in runs(db)] == ["queued", "waiting", "waiting"]
