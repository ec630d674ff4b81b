"""Handles of recorded runs do and refuse what handles of a database's runs do and refuse."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import psycopg
import pytest

from pgsched import AlreadyEnqueued, App, InputError, NotFound
from pgsched.testing import drain, record

pytestmark = pytest.mark.packages
LATER = datetime.now(UTC).replace(microsecond=0) + timedelta(days=1)
EARLIER = datetime.now(UTC) - timedelta(days=1)


class Stage:
    """An app whose runs are recorded, or are rows of a database; the runs of a scene by their names.

    `conn`: the caller's connection.
    """

    def __init__(self, app: App, conn: psycopg.Connection[Any], run_due: Callable[[], object]) -> None:
        self.app = app
        self.conn = conn
        self.runs: dict[str, Any] = {}
        self.run_due = run_due
        self.found: list[Any] = []

    def enqueue(self, name: str, /, ends: str = "well", after: tuple[str, ...] = (), **options: Any) -> None:
        parents = [self.runs[parent] for parent in after] or None
        work = self.app.tasks["work"].options(after=parents, max_attempts=1, **options)
        self.runs[name] = work.enqueue(ends)

    def note(self, call: Callable[[], Any]) -> None:
        """Note what a call returns or raises, with the names of runs instead of their ids."""
        try:
            found = str(call())
        except (AlreadyEnqueued, InputError, NotFound) as error:
            found = type(error).__name__ + ("" if isinstance(error, NotFound) else f": {error}")
        found = found.replace("+00:00", "+00")
        numbers = {str(int(run)): name for name, run in self.runs.items()}
        self.found.append(re.sub(r"\brun (\d+)", lambda match: f"run {numbers.get(match[1], '?')}", found))

    def note_states(self) -> None:
        """Note the state of each run, and why it is cancelled or missed: the database says that of dead ones, too."""
        for name, run in self.runs.items():
            info = run.info()
            why = "" if info.state == "dead" else re.sub(r"cancelled by [^:]*", "cancelled by X", info.reason or "")
            self.found.append((name, info.state.value, info.attempt, info.max_attempts, why))


def update(stage: Stage) -> None:
    stage.enqueue("a")
    run = stage.runs["a"]
    for values in (
        {}, {"priority": 99}, {"priority": -1}, {"queue": ""}, {"queue": " x"}, {"queue": "x" * 300},
        {"at": LATER.replace(tzinfo=None)}, {"at": LATER}, {"priority": 0}, {"queue": "other"},
    ):  # fmt: skip
        stage.note(partial(run.update, **values))
    run.update(at=EARLIER)  # the leader makes it queued; with a recorder it is so at once
    stage.note(lambda: stage.app.run(99).update(priority=1))
    stage.note(lambda: stage.app.run(99).update(priority=99))
    stage.run_due()
    stage.note(lambda: run.update(priority=1))
    stage.note_states()


def cancel(stage: Stage) -> None:
    stage.enqueue("a")
    stage.enqueue("late", at=LATER)
    stage.note(lambda: stage.runs["a"].cancel("x" * 10_001))
    stage.note(lambda: stage.runs["a"].cancel("out of stock"))
    stage.note(stage.runs["a"].cancel)
    stage.note(stage.runs["late"].cancel)
    stage.note(lambda: stage.runs["late"].update(at=EARLIER))
    stage.note_states()


def retry(stage: Stage) -> None:
    stage.enqueue("a", ends="badly")
    stage.enqueue("late", at=LATER)
    stage.note(stage.runs["a"].retry)
    stage.note(stage.runs["late"].retry)
    stage.run_due()
    stage.note(stage.runs["a"].retry)
    stage.note(lambda: stage.runs["a"].retry(now=True))
    stage.note_states()
    stage.enqueue("well")
    stage.run_due()
    stage.note(stage.runs["well"].retry)
    stage.note_states()


def retry_beside_another_with_the_key(stage: Stage) -> None:
    stage.enqueue("a", ends="badly", unique_key="k")
    stage.run_due()
    stage.enqueue("b", at=LATER, unique_key="k")
    stage.note(stage.runs["a"].retry)
    stage.note(stage.runs["b"].cancel)
    stage.note(stage.runs["a"].retry)
    stage.note(stage.runs["b"].retry)
    stage.note(lambda: stage.app.tasks["work"].options(unique_key="k").enqueue("well").how)
    stage.note_states()


def retry_after_a_retry_of_while_queued(stage: Stage) -> None:
    stage.enqueue("a", unique_key="k", unique_scope="while_queued")
    stage.note(stage.runs["a"].cancel)
    stage.note(stage.runs["a"].retry)
    stage.enqueue("b", unique_key="k", unique_scope="while_queued")
    stage.note(lambda: stage.runs["b"].how)


def retry_of_what_waits(now: bool) -> Callable[[Stage], None]:
    def scene(stage: Stage) -> None:
        stage.enqueue("parent", ends="badly")
        stage.enqueue("child", after=("parent",))
        stage.enqueue("grandchild", after=("child",))
        stage.note_states()
        stage.run_due()
        stage.note_states()
        stage.note(lambda: stage.runs["grandchild"].retry(now=now))
        stage.note(lambda: stage.runs["child"].retry(now=now))
        stage.note_states()
        stage.run_due()
        stage.note_states()

    return scene


def wait_for_what_is_missed(stage: Stage) -> None:
    stage.enqueue("parent", expires=0.001, at=LATER)
    for policy in ("cancel", "run_anyway", "wait"):
        stage.enqueue(policy, after=("parent",), on_failure=policy)
    stage.note_states()
    stage.note(stage.runs["parent"].cancel)
    stage.run_due()
    stage.note_states()


def roll_back_to_a_savepoint(stage: Stage) -> None:
    stage.enqueue("cancelled", connection=stage.conn)
    stage.enqueue("updated", connection=stage.conn)
    stage.enqueue("child", after=("cancelled",), connection=stage.conn)
    with stage.conn.transaction(force_rollback=True):
        stage.runs["cancelled"].cancel(connection=stage.conn)
        stage.runs["updated"].update(priority=1, connection=stage.conn)
    stage.conn.commit()
    stage.note(lambda: stage.runs["updated"].info().priority)
    stage.note_states()
    stage.run_due()
    stage.note_states()


def roll_back_with_keys(stage: Stage) -> None:
    work = stage.app.tasks["work"]
    for scope in ("while_queued", "while_active"):
        keys: dict[str, Any] = {"unique_key": scope, "unique_scope": scope}
        again, mine = work.options(**keys), work.options(**keys, connection=stage.conn)
        stage.enqueue(scope, **keys)
        run = stage.runs[scope]
        run.cancel(connection=stage.conn)
        run.retry(connection=stage.conn)
        stage.conn.rollback()
        stage.note(lambda again=again: again.enqueue("well").how)
        run.cancel(connection=stage.conn)
        stage.note(lambda mine=mine: mine.enqueue("well").how)
        stage.conn.rollback()
        stage.note(lambda again=again: again.enqueue("well").how)
    stage.note_states()


def enqueue_what_is_refused(stage: Stage) -> None:
    work = stage.app.tasks["work"]
    stage.note(lambda: work.options(expires=LATER, at=LATER).enqueue("well"))
    stage.note(lambda: work.options(expires=LATER, at=LATER, unique_key="k").enqueue("well"))
    stage.enqueue("a", unique_key="k", at=LATER)
    stage.note(lambda: work.options(expires=LATER, at=LATER, unique_key="k").enqueue("well").how)
    stage.note(lambda: work.options(expires=LATER, at=LATER, unique_key="k", on_conflict="replace").enqueue("well").how)
    stage.note(lambda: work.options(after=[99]).enqueue("well"))
    stage.note_states()


def enqueue_all_or_none(stage: Stage) -> None:
    stage.enqueue("a", at=LATER, unique_by=True)
    work = stage.app.tasks["work"].options(unique_by=True, on_conflict="reject")
    stage.note(lambda: work.enqueue_many([["badly"], ["well"]]))
    stage.note(lambda: work.enqueue_many([["badly"], ["well"]], return_ids=True))
    stage.note(lambda: [run.how for run in work.enqueue_many([["badly"]], return_ids=True)])
    stage.note(lambda: stage.app.tasks["work"].options(unique_by=True).enqueue_many([["well"], ["well"]]))


SCENES = {
    "update": update,
    "cancel": cancel,
    "retry": retry,
    "retry beside another run with the key": retry_beside_another_with_the_key,
    "while_queued": retry_after_a_retry_of_while_queued,
    "retry of what waits": retry_of_what_waits(now=False),
    "retry of what waits, now": retry_of_what_waits(now=True),
    "wait for what is missed": wait_for_what_is_missed,
    "roll back to a savepoint": roll_back_to_a_savepoint,
    "roll back with keys": roll_back_with_keys,
    "enqueue what is refused": enqueue_what_is_refused,
    "all or none": enqueue_all_or_none,
}


@pytest.mark.few(6)
@pytest.mark.parametrize("scene", SCENES)
def test_handles_have_the_same_outcomes(scene: str, dsn: str, db: psycopg.Connection[Any]) -> None:
    app = App("shop", dsn=dsn)

    @app.task(name="work")
    def work(ends: str) -> None:
        if ends == "badly":
            raise ValueError("badly")

    with psycopg.connect(dsn) as conn:
        real = Stage(app, conn, lambda: drain(app))
        SCENES[scene](real)
        with record(app) as recorder:
            recorder.allow_dead = True
            recorded = Stage(app, conn, recorder.drain)
            SCENES[scene](recorded)
    app.close()
    assert recorded.found == real.found
