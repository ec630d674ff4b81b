"""The recorder makes, finds and changes the same runs as a database: the same calls are made on both, and compared."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from pgsched import AlreadyEnqueued, App, InputError, bucket, sliding
from pgsched.db.queries.leader import ticks
from pgsched.testing import enqueued, record
from pgsched.testing.key_texts import unique_key_of
from tests.support.db.setting import row_of, take

pytestmark = pytest.mark.packages
SCOPES: list[Any] = [None, "while_active", "while_queued", bucket(86_400 * 365), sliding(3600)]
VALUES: list[Any] = [
    1, 1.0, 1.50, -0.0, 10**20, 1e-7, 1e22, True, None, "", "1", "a-b", '"', "\\", "\n\t\x01\x7f",
    "é\N{OGHAM LETTER RUIS}", "{a}", "x" * 600, [], [1, 1.0, "1"], {}, {"b": 1, "a": 2.0, "aa": [None]},
    {"é": 1, "zz": 2},
]  # fmt: skip


def made(app: App) -> Any:
    @app.task(name="t")
    def work(a: Any, b: Any = 2, items: list[int] | None = None) -> None: ...

    return work


def attempt(call: Callable[[], Any]) -> Any:
    """Return how a call came out: the run and how, or the class of the error and the run that it names."""
    try:
        found = call()
    except (AlreadyEnqueued, InputError) as error:
        return type(error).__name__, getattr(error, "run_id", None)
    return int(found), found.how


def renamed(outcome: Any, place: dict[int, int]) -> Any:
    """Return an outcome with the place of its run among all runs instead of the run's number."""
    return tuple(place[part] if isinstance(part, int) else part for part in outcome)


@pytest.mark.parametrize("pattern", ["k {a}", "{a}-{b}", "{a} {items}", None])
def test_keys_are_the_same_texts(db: psycopg.Connection[Any], dsn: str, pattern: str | None) -> None:
    app = App("shop", dsn=dsn)
    options = {"unique_by": ("a", "items")} if pattern is None else {"unique_key": pattern}

    @app.task(name="t", **options)
    def work(a: Any, b: Any = 2.0, items: Any = (1, 2.50)) -> None: ...

    for value in VALUES:
        run = work.enqueue(value)
        with record(app):
            work.enqueue(value)
            (recorded,) = enqueued(work)
        assert recorded.unique_key == row_of(db, run)["unique_key"]
    app.close()


def test_a_key_of_all_arguments_is_the_same_text(db: psycopg.Connection[Any], dsn: str) -> None:
    app = App("shop", dsn=dsn)
    every = made(app).options(unique_by=True)
    for value in VALUES:
        values = every.values((value,), {"items": [1]})
        assert row_of(db, every.enqueue(value, items=[1]))["unique_key"] == unique_key_of(values)
    app.close()


@pytest.mark.few(4)
@pytest.mark.parametrize("seed", range(8))
def test_the_same_calls_have_the_same_outcome(db: psycopg.Connection[Any], dsn: str, seed: int) -> None:
    rng = random.Random(seed)
    steps: list[Any] = []
    for _ in range(60):
        policy = rng.choice([None, "return", "reject", "replace", "keep_time", "merge"])
        options: dict[str, Any] = {"unique_scope": rng.choice(SCOPES), "on_conflict": policy}
        options |= rng.choice([{"unique_key": "k"}, {"unique_by": ("a",)}, {"unique_by": True}])
        options |= {"delay": rng.choice([60, 600])} if rng.random() < 0.3 else {}
        options |= {"expires": 3600} if rng.random() < 0.3 else {}
        if policy in ("replace", "merge") and rng.random() < 0.5:
            options |= {"debounce_max": 120}
        steps.append(None if rng.random() < 0.1 else (options, rng.choice([1, 2]), [rng.randrange(9)]))
    app = App("shop", dsn=dsn)
    work = made(app)

    def call(step: Any) -> Any:
        options, a, items = step
        return attempt(lambda: work.options(**options).enqueue(a, items=items))

    outcomes = []
    for step in steps:
        if step is None:
            ticks.admit(db, 1000)
            outcomes.append(sorted(claim.id for claim in take(db, 100)))
            db.execute("UPDATE pgsched.runs SET state = 'succeeded', finished_at = now() WHERE state = 'running'")
        else:
            outcomes.append(call(step))
    # in minutes: time passes between two calls to the database
    rows = db.execute("SELECT args, round(extract(epoch FROM available_at - created_at) / 60), round(extract(epoch FROM"
                      " expires_at - available_at)) FROM pgsched.runs ORDER BY id").fetchall()  # fmt: skip
    with record(app) as recorder:
        start = recorder.clock.now()
        recorded = [sorted(run.id for run in recorder.drain()) if step is None else call(step) for step in steps]
        found = [
            (run.args, round((run.at - start) / timedelta(minutes=1)),
             None if run.expires_at is None else round((run.expires_at - run.at) / timedelta(seconds=1)))
            for run in recorder.runs
        ]  # fmt: skip
    # a number that a refused row has taken is missing in the database
    place = {run: number for number, (run,) in enumerate(db.execute("SELECT id FROM pgsched.runs ORDER BY id"), 1)}
    outcomes = [[place[run] for run in one] if isinstance(one, list) else renamed(one, place) for one in outcomes]
    for number, (step, mine, theirs) in enumerate(zip(steps, recorded, outcomes, strict=True)):
        assert mine == theirs, f"step {number}: {step}"
    assert found == [(args, int(due), None if left is None else int(left)) for args, due, left in rows]
    app.close()
