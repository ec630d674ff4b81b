"""Handles of recorded runs in the caller's transaction, and what a rollback takes back of runs from before it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import Session

from pgsched import App, Discard, InputError, NotFound, State
from pgsched.testing import inline, record


def test_a_handle_acts_in_the_transaction_that_made_its_run(app: App, welcome: Any, seen: list[Any]) -> None:
    with record(app) as recorder:
        given = Session(sa.create_engine("sqlite://"))
        run, other = welcome.enqueue(1, connection=given), welcome.enqueue(2, connection=given)
        with pytest.raises(NotFound):
            run.state()
        assert run.update(priority=1, connection=given) is State.QUEUED
        assert other.cancel(connection=given) is State.CANCELLED
        assert (run.info(connection=given).priority, other.state(connection=given)) == (1, State.CANCELLED)
        given.commit()
        assert [each.args["user"] for each in recorder.drain()] == [1]
        assert seen == [(1, False)]
        given.close()


def test_a_rollback_leaves_what_it_met_as_it_was_and_what_has_ended(app: App, welcome: Any) -> None:
    with record(app) as recorder:
        once = welcome.options(idempotency_key="request")
        first = once.enqueue(1)
        given = Session(sa.create_engine("sqlite://"))
        assert welcome.options(idempotency_key="request", connection=given).enqueue(1).how == "repeated"
        replacing = welcome.options(unique_key="k", on_conflict="replace")
        run = replacing.enqueue(2)
        recorder.drain()
        ended = recorder.runs[1]
        assert (ended.id, ended.state) == (run, "succeeded")
        again = replacing.enqueue(3)
        welcome.options(unique_key="k", on_conflict="replace", delay=60, connection=given).enqueue(4)
        assert again.state() is State.SCHEDULED
        again.cancel()
        given.rollback()
        assert once.enqueue(1).how == "repeated" and once.enqueue(1) == first
        assert [each.state for each in recorder.runs] == ["succeeded", "succeeded", "cancelled"]
        given.close()


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_what_a_handle_changes_in_a_transaction_ends_with_its_rollback(ending: str, app: App, welcome: Any) -> None:
    @app.task(name="fails", max_attempts=1)
    def fails() -> None:
        raise Discard("no")

    with record(app) as recorder, Session(sa.create_engine("sqlite://")) as session:
        dead = fails.enqueue()
        late = welcome.options(after=[dead]).enqueue(0)
        recorder.drain()
        parent, other = welcome.enqueue(1), welcome.enqueue(2)
        child = welcome.options(after=[parent]).enqueue(3)
        assert parent.cancel("no", connection=session) is State.CANCELLED
        assert other.update(priority=1, queue="slow", connection=session) is State.QUEUED
        assert dead.retry(connection=session) is State.QUEUED
        assert late.retry(connection=session) is State.WAITING
        assert (parent.state(connection=session), child.state()) == (State.CANCELLED, State.WAITING)
        getattr(session, ending)()
        found = [run.state() for run in (dead, late, parent, child)]
        info = other.info()
        if ending == "commit":
            assert found == [State.QUEUED, State.WAITING, State.CANCELLED, State.CANCELLED]
            assert (info.priority, info.queue) == (1, "slow")
        else:
            assert found == [State.DEAD, State.CANCELLED, State.QUEUED, State.WAITING]
            assert (info.priority, info.queue, parent.info().reason) == (5, "mail", None)
            assert [run.id for run in recorder.drain()] == [parent, other, child]


@pytest.mark.parametrize("ending", ["commit", "rollback"])
def test_a_savepoint_takes_back_changes_of_a_run_that_its_transaction_made(
    ending: str, app: App, welcome: Any, seen: list[Any]
) -> None:
    with inline(app), Session(sa.create_engine("sqlite://")) as session:
        run, other, again = (welcome.enqueue(n, connection=session) for n in (1, 2, 3))
        again.cancel(connection=session)
        child = welcome.options(after=[run], connection=session).enqueue(4)
        savepoint = session.begin_nested()
        run.cancel(connection=session)
        other.update(priority=1, connection=session)
        again.retry(connection=session)
        getattr(savepoint, ending)()
        session.commit()
        if ending == "commit":
            found, priority = [State.CANCELLED, State.SUCCEEDED, State.QUEUED, State.CANCELLED], 1
        else:
            found, priority = [State.SUCCEEDED, State.SUCCEEDED, State.CANCELLED, State.SUCCEEDED], 5
        assert [each.state() for each in (run, other, again, child)] == found
        assert other.info().priority == priority
        assert sorted(user for user, _ in seen) == ([2] if ending == "commit" else [1, 2, 4])


def test_a_rolled_back_retry_leaves_its_run_unstarted(app: App, welcome: Any, seen: list[Any]) -> None:
    with record(app) as recorder, Session(sa.create_engine("sqlite://")) as session:
        queued = welcome.options(unique_key="k", unique_scope="while_queued", expires=60)
        run = queued.enqueue(1)
        run.cancel(connection=session)
        run.retry(connection=session)
        session.rollback()
        assert queued.enqueue(2) == run
        recorder.travel(60)
        assert run.state() is State.MISSED
    with inline(app), Session(sa.create_engine("sqlite://")) as session:
        run = welcome.enqueue(3, connection=session)
        savepoint = session.begin_nested()
        run.cancel(connection=session)
        run.retry(connection=session)
        savepoint.rollback()
        session.commit()
        assert (run.state(), seen) == (State.SUCCEEDED, [(3, False)])


@pytest.mark.parametrize("scope", ["while_active", "while_queued"])
def test_a_rollback_gives_a_unique_key_back_to_the_run_that_had_it(scope: str, app: App, welcome: Any) -> None:
    with record(app), Session(sa.create_engine("sqlite://")) as session:
        task = welcome.options(unique_key="k", unique_scope=scope)
        in_session = welcome.options(unique_key="k", unique_scope=scope, connection=session)
        run = task.enqueue(1)
        run.cancel(connection=session)
        assert in_session.enqueue(2).created
        session.rollback()
        assert task.enqueue(3) == run
        run.cancel()
        second = task.enqueue(4)
        second.cancel(connection=session)
        run.retry(connection=session)
        session.rollback()
        assert task.enqueue(5) == second
        second.cancel()
        in_session.enqueue(6).cancel(connection=session)
        in_session.enqueue(7)
        session.rollback()
        assert task.enqueue(8).created


def test_a_run_hears_of_ends_that_came_before_a_rollback_let_it_wait_again(app: App, welcome: Any) -> None:
    with record(app) as recorder, Session(sa.create_engine("sqlite://")) as session:
        parent = welcome.enqueue(1)
        child = welcome.options(after=[parent]).enqueue(2)
        child.cancel(connection=session)
        recorder.drain()
        session.rollback()
        assert child.state() is State.QUEUED


def test_what_a_handle_changes_counts_at_once_where_no_transaction_is_followed(app: App, welcome: Any) -> None:
    with record(app, wait_for_commit=False), Session(sa.create_engine("sqlite://")) as session:
        run = welcome.enqueue(1)
        run.cancel(connection=session)
        session.rollback()
        assert run.state() is State.CANCELLED


def test_an_asyncio_method_takes_an_asyncio_session(app: App, welcome: Any) -> None:
    async def main() -> None:
        run = await welcome.enqueue_async(1)
        with Session(sa.create_engine("sqlite://")) as session, pytest.raises(InputError, match="connection: expected"):
            await run.cancel_async(connection=session)
        assert await run.state_async() is State.QUEUED

    with record(app):
        asyncio.run(main())
