"""A producer's rights suffice to give its own runs their trace, but not the runs of another role."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from pgsched import App
from tests.support.logins import Logins
from tests.support.once import traced_by

trace = pytest.importorskip("opentelemetry.trace")
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402

CARRIED = "SELECT options -> 'trace' ->> 'traceparent' FROM pgsched.runs ORDER BY id"


@pytest.fixture
def provider() -> Iterator[None]:
    with traced_by(TracerProvider()):
        yield


@pytest.mark.usefixtures("provider")
def test_a_producers_runs_carry_their_trace(db: psycopg.Connection[Any], logins: Logins) -> None:
    app = App("traced", dsn=logins.dsn("alice"))

    @app.task(name="a")
    def a(n: int = 0) -> None: ...

    try:
        with trace.get_tracer("shop").start_as_current_span("order") as order:
            a.enqueue()
            assert a.options(unique_key="k").enqueue().created
            assert not a.options(unique_key="k").enqueue().created
            a.options(idempotency_key="i").enqueue()
            a.enqueue_many([{"n": n} for n in range(200)])
            with app.graph() as made:
                made.add(a, after=[made.add(a)])
    finally:
        app.close()
    found = [row[0] for row in db.execute(CARRIED)]
    assert len(found) == 205
    wanted = f"00-{order.get_span_context().trace_id:032x}-"
    assert [text for text in found if not (text or "").startswith(wanted)] == []


def test_a_producer_cannot_give_a_trace_to_the_run_of_another_role(db: psycopg.Connection[Any], logins: Logins) -> None:
    alice, bob = logins.connect("alice"), logins.connect("bob")
    run = alice.execute("INSERT INTO pgsched.runs (task) VALUES ('a') RETURNING id").fetchone()
    carry = "SELECT pgsched.carry_trace(%s, 'created', '{\"traceparent\": \"x\"}')"
    bob.execute(carry, run)
    assert db.execute(CARRIED).fetchone() == (None,)
    alice.execute(carry, run)
    assert db.execute(CARRIED).fetchone() == ("x",)
