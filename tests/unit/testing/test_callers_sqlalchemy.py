"""The recorder honours the caller's commit and rollback: SQLAlchemy, with a database that is not even PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.orm import Session, scoped_session, sessionmaker

from pgsched import App, InputError, LockTimeout
from pgsched.testing import Recorder, assert_enqueued, enqueued, inline, record, refute_enqueued


@pytest.fixture
def welcome(app: App, seen: list[Any]) -> Any:
    @app.task(name="welcome")
    def welcome(user: int) -> None:
        seen.append(user)
        if user < 0:
            raise ValueError(f"no user {user}")

    return welcome


@pytest.fixture
def engine() -> Iterator[sa.Engine]:
    engine = sa.create_engine("sqlite://", poolclass=sa.pool.StaticPool)

    @event.listens_for(engine, "connect")
    def begin_by_hand(conn: Any, _: Any) -> None:
        conn.isolation_level = None  # as SQLAlchemy's page about SQLite says: otherwise savepoints do not hold

    @event.listens_for(engine, "begin")
    def begin(conn: Any) -> None:
        conn.exec_driver_sql("BEGIN")

    yield engine
    engine.dispose()


KINDS: dict[str, Callable[[sa.Engine], Any]] = {
    "connection": lambda engine: engine.connect(),
    "session": Session,
    "scoped session": lambda engine: scoped_session(sessionmaker(engine)),
}
EACH_KIND = pytest.mark.parametrize("kind", KINDS)


@EACH_KIND
@pytest.mark.parametrize("ending", ["commit", "rollback", "close"])
def test_a_run_counts_when_its_transaction_has_committed(
    kind: str, ending: str, app: App, welcome: Any, engine: sa.Engine
) -> None:
    with record(app) as recorder:
        given = KINDS[kind](engine)
        welcome.enqueue(1, connection=given)
        assert welcome.enqueue_many([[2], [3]], connection=given) == 2
        assert recorder.runs == [] and enqueued(welcome) == []
        refute_enqueued(welcome)
        assert [run.args["user"] for run in enqueued(welcome, connection=given)] == [1, 2, 3]
        getattr(given, ending)()
        assert [run.args["user"] for run in recorder.runs] == ([1, 2, 3] if ending == "commit" else [])
        assert recorder.pending() == []
        given.close()


@EACH_KIND
def test_a_rollback_to_a_savepoint_takes_only_its_runs(kind: str, app: App, welcome: Any, engine: sa.Engine) -> None:
    with record(app) as recorder:
        given = KINDS[kind](engine)
        welcome.enqueue(1, connection=given)
        with given.begin_nested():
            welcome.enqueue(2, connection=given)
        inner = given.begin_nested()
        welcome.enqueue(3, connection=given)
        with given.begin_nested():
            welcome.enqueue(4, connection=given)
        inner.rollback()
        welcome.enqueue(5, connection=given)
        assert [run.args["user"] for run in recorder.pending(given)] == [1, 2, 5]
        given.commit()
        assert [run.args["user"] for run in recorder.runs] == [1, 2, 5]
        given.close()


@EACH_KIND
def test_a_later_savepoint_does_not_take_an_earlier_run(kind: str, app: App, welcome: Any, engine: sa.Engine) -> None:
    with record(app) as recorder:
        given = KINDS[kind](engine)
        outer = given.begin_nested()
        welcome.enqueue(1, connection=given)
        given.begin_nested().rollback()
        outer.commit()
        given.commit()
        assert [run.args["user"] for run in recorder.runs] == [1]
        given.close()


def test_runs_are_in_the_order_of_their_ids_whatever_commits_first(app: App, welcome: Any, engine: sa.Engine) -> None:
    with record(app) as recorder, Session(engine) as session:
        welcome.enqueue(1, connection=session)
        welcome.enqueue(2)
        session.commit()
        assert [(run.id, run.args["user"]) for run in recorder.runs] == [(1, 1), (2, 2)]


def test_a_failed_commit_is_no_commit(app: App, welcome: Any, engine: sa.Engine) -> None:
    def fail(_: Any) -> None:
        raise engine.dialect.loaded_dbapi.OperationalError("no commit")

    with record(app) as recorder, engine.connect() as conn, pytest.MonkeyPatch.context() as patch:
        welcome.enqueue(1, connection=conn)
        patch.setattr(engine.dialect, "do_commit", fail)
        with pytest.raises(sa.exc.OperationalError):
            conn.commit()
        assert recorder.runs == [] and recorder.pending() == []
        patch.undo()
        conn.connection.rollback()  # SQLAlchemy sends none
        conn.rollback()
        welcome.enqueue(2, connection=conn)
        conn.commit()
        assert [run.args["user"] for run in recorder.runs] == [2]


def test_a_connection_that_commits_by_itself_enqueues_at_once(app: App, welcome: Any, engine: sa.Engine) -> None:
    with record(app) as recorder, engine.connect() as conn:
        conn.connection.dbapi_connection = AutocommitConnection()  # type: ignore[assignment]
        welcome.enqueue(1, connection=conn)
        assert len(recorder.runs) == 1


class AutocommitConnection:
    """Stands for a driver's connection under isolation_level="AUTOCOMMIT"."""

    autocommit = True

    def rollback(self) -> None: ...


def test_a_session_inside_a_transaction_of_the_test_counts_its_commits(
    app: App, welcome: Any, seen: list[Any], engine: sa.Engine
) -> None:
    """SQLAlchemy's recipe "joining a session into an external transaction": nothing is ever committed."""
    with inline(app) as recorder, engine.connect() as conn:
        outer = conn.begin()
        session = Session(bind=conn, join_transaction_mode="create_savepoint")
        welcome.enqueue(1, connection=session)
        session.rollback()
        welcome.enqueue(2, connection=session)
        session.commit()
        assert seen == [2] and len(recorder.runs) == 1
        session.close()
        outer.rollback()


def test_without_waiting_for_commits_runs_count_at_once(
    app: App, welcome: Any, seen: list[Any], engine: sa.Engine
) -> None:
    with inline(app, wait_for_commit=False) as recorder, Session(engine) as session:
        welcome.enqueue(1, connection=session)
        session.rollback()
        assert seen == [1] and len(recorder.runs) == 1
    with record(app, wait_for_commit=False) as recorder, Session(engine) as session:
        welcome.enqueue(1, connection=session)
        assert len(recorder.runs) == 1


# ---- inline


def test_inline_a_run_on_a_session_runs_at_its_commit(
    app: App, welcome: Any, seen: list[Any], engine: sa.Engine
) -> None:
    with inline(app), Session(engine) as session:
        welcome.enqueue(1, connection=session)
        assert seen == []
        session.commit()
        assert seen == [1]
        with session.begin():
            welcome.enqueue(2, connection=session)
        assert seen == [1, 2]
        welcome.enqueue(3, connection=session)
        session.rollback()
    assert seen == [1, 2]


LOOKS: dict[str, Callable[[Recorder, Any], Any]] = {
    "runs": lambda recorder, welcome: recorder.runs,
    "drain": lambda recorder, welcome: recorder.drain(),
    "travel": lambda recorder, welcome: recorder.travel(1),
    "enqueue": lambda recorder, welcome: welcome.enqueue(2),
    "assertion": lambda recorder, welcome: refute_enqueued(welcome),
}


@pytest.mark.parametrize("look", LOOKS)
def test_inline_a_run_on_a_connection_runs_when_the_test_next_looks(
    look: str, app: App, welcome: Any, seen: list[Any], engine: sa.Engine
) -> None:
    with inline(app) as recorder, engine.connect() as conn:
        welcome.enqueue(1, connection=conn)
        conn.commit()
        LOOKS[look](recorder, welcome)
        assert seen[0] == 1


def test_inline_what_has_committed_runs_at_the_end_of_the_block(
    app: App, welcome: Any, seen: list[Any], engine: sa.Engine
) -> None:
    with inline(app), engine.connect() as conn:
        welcome.enqueue(1, connection=conn)
        conn.commit()
    assert seen == [1]


def test_inline_a_run_that_dies_after_a_commit_fails_the_test_but_not_the_commit(
    app: App, welcome: Any, seen: list[Any], engine: sa.Engine
) -> None:
    with pytest.raises(ValueError, match="no user -1") as raised, inline(app), Session(engine) as session:
        welcome.enqueue(-1, connection=session)
        session.commit()
    assert raised.value.__notes__ == [
        "pgsched: run 1 of welcome ran after the commit of the transaction that enqueued it"
    ]
    with inline(app) as recorder, Session(engine) as session:
        welcome.enqueue(-2, connection=session)
        welcome.enqueue(-3, connection=session)
        session.commit()
        with pytest.raises(ExceptionGroup, match="runs that ran after a commit are dead") as group:
            recorder.drain()
        assert len(group.value.exceptions) == 2
    with inline(app, allow_dead=True) as recorder, Session(engine) as session:
        welcome.enqueue(-4, connection=session)
        session.commit()
        assert recorder.runs[0].state == "dead"


def test_the_error_of_the_test_itself_is_not_hidden(app: App, welcome: Any, engine: sa.Engine) -> None:
    with pytest.raises(ZeroDivisionError), inline(app), Session(engine) as session:
        welcome.enqueue(-1, connection=session)
        session.commit()
        raise ZeroDivisionError


def test_inline_a_handler_may_use_a_session_that_has_just_committed(
    app: App, seen: list[Any], engine: sa.Engine
) -> None:
    with inline(app), Session(engine) as session:

        @app.task(name="counts")
        def counts(left: int) -> None:
            seen.append(session.execute(sa.text("SELECT 40 + 2")).scalar())
            if left:
                counts.enqueue(left - 1, connection=session)
            session.commit()

        counts.enqueue(2, connection=session)
        session.commit()
    assert seen == [42, 42, 42]


# ---- keys


def test_a_rollback_gives_keys_back(app: App, welcome: Any, engine: sa.Engine) -> None:
    keyed = welcome.options(unique_key="u", idempotency_key="i")
    with record(app) as recorder, Session(engine) as session:
        first = welcome.options(unique_key="u", idempotency_key="i", connection=session).enqueue(1)
        again = welcome.options(unique_key="u", connection=session).enqueue(2)
        assert (again, again.how) == (first, "existing")
        assert app.first_result("i") is None, "not committed yet"
        session.rollback()
        assert keyed.enqueue(3).created
        assert [run.args["user"] for run in recorder.runs] == [3]


def test_a_rollback_takes_a_replacement_back(app: App, welcome: Any, engine: sa.Engine) -> None:
    with record(app) as recorder, Session(engine) as session:
        welcome.options(unique_key="u").enqueue(1)
        changed = welcome.options(
            unique_key="u", on_conflict="replace", delay=60, idempotency_key="i", connection=session
        ).enqueue(2)
        assert changed.how == "replaced"
        session.rollback()
        assert [run.args["user"] for run in recorder.runs] == [1]
        assert recorder.runs[0].at == recorder.clock.now()
        assert app.first_result("i") is None


@pytest.mark.parametrize("key", ["unique_key", "idempotency_key"])
def test_a_key_of_another_open_transaction_is_refused_where_a_database_would_wait(
    key: str, app: App, welcome: Any, engine: sa.Engine
) -> None:
    with record(app) as recorder, Session(engine) as session:
        welcome.options(connection=session, **{key: "k"}).enqueue(1)
        with pytest.raises(LockTimeout, match=f"{key}: 'k' belongs to run 1 of a transaction that is still open"):
            welcome.options(on_conflict="replace", **{key: "k"}).enqueue(2)
        session.commit()
        assert [run.args["user"] for run in recorder.runs] == [1]
        assert not welcome.options(**{key: "k"}).enqueue(3).created


# ---- what is given as a connection


def test_an_object_of_another_kind_has_no_transaction(app: App, welcome: Any) -> None:
    with record(app) as recorder:
        welcome.enqueue(1, connection=object())
        assert_enqueued(welcome, args={"user": 1}, connection=object())
        assert len(recorder.runs) == 1


def test_an_asyncio_connection_needs_enqueue_async(app: App, welcome: Any, engine: sa.Engine) -> None:
    from sqlalchemy.ext.asyncio import AsyncSession

    with record(app), pytest.raises(InputError, match="got a sqlalchemy"):
        welcome.enqueue(1, connection=AsyncSession())


def test_nothing_listens_after_the_block(app: App, welcome: Any, engine: sa.Engine) -> None:
    with Session(engine) as session:
        with record(app) as recorder:
            welcome.enqueue(1, connection=session)
        session.commit()
        assert recorder.runs == []
