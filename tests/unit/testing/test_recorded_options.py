"""The recorder keeps the options and keys of a run as a database does; see also test_recorder_like_database.py."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgsched import App, InputError, sliding
from pgsched.testing import assert_enqueued, record

NOON = datetime(2026, 3, 28, 12, tzinfo=UTC)


def test_a_run_that_has_not_started_in_time_is_missed(app: App, welcome: Any, seen: list[Any]) -> None:
    with record(app, now=NOON) as recorder:
        late, kept = welcome.options(expires=60).enqueue(1), welcome.options(expires=61).enqueue(2)
        recorder.travel(60)
        assert [run.id for run in recorder.drain()] == [kept]
        assert [run.state for run in recorder.runs] == ["missed", "succeeded"]
        assert recorder.runs[late - 1].finished_at == NOON + timedelta(seconds=60)


def test_the_options_of_a_run_can_be_asserted(app: App, welcome: Any) -> None:
    with record(app, now=NOON):
        welcome.options(backoff="fixed", backoff_base=5, keep=60, kill_after=1, expires=30).enqueue(1)
        assert_enqueued(
            welcome, backoff="fixed", backoff_base=timedelta(seconds=5), keep=timedelta(minutes=1),
            kill_after=timedelta(seconds=1), expires_at=NOON + timedelta(seconds=30),
        )  # fmt: skip


def test_sliding_and_queued_keys_hold_as_they_do_in_a_database(app: App, welcome: Any) -> None:
    with record(app, now=NOON) as recorder:
        slow = welcome.options(unique_by=True, unique_scope=sliding(60))
        assert [slow.enqueue(1).how, slow.enqueue(1).how, slow.enqueue(2).how] == ["created", "existing", "created"]
        queued = welcome.options(unique_key="k", unique_scope="while_queued")
        assert [queued.enqueue(1).how, queued.enqueue(1).how] == ["created", "existing"]
        recorder.drain()
        assert (slow.enqueue(1).how, queued.enqueue(1).how) == ("existing", "created")
        recorder.travel(60)
        assert slow.enqueue(1).created


def test_many_calls_return_their_ids(app: App, welcome: Any) -> None:
    with record(app):
        ids = welcome.options(unique_by=True).enqueue_many([[1], [2], [1]], return_ids=True)
        assert ([*ids], [run.how for run in ids]) == ([1, 2, 1], ["created", "created", "existing"])
        assert welcome.options(unique_by=True).enqueue_many([[1], [3]]) == 1


def test_many_calls_have_their_idempotency_keys(app: App, welcome: Any) -> None:
    with record(app, now=NOON) as recorder:
        first = welcome.options(idempotency_key="b").enqueue(2)
        ids = welcome.enqueue_many([[1], [2]], idempotency_keys=["a", "b"], return_ids=True)
        assert [run.how for run in ids] == ["created", "repeated"] and ids[1] == first
        assert welcome.enqueue_many([[1], [2], [3]], idempotency_keys=["a", "b", "c"]) == 1
        assert asyncio.run(welcome.enqueue_many_async([[3], [4]], idempotency_keys=["c", "d"])) == 1
        assert [(run.idempotency_key, run.args["user"]) for run in recorder.runs] == [
            ("b", 2), ("a", 1), ("c", 3), ("d", 4),
        ]  # fmt: skip
        with pytest.raises(InputError, match="2 keys for 1 call"):
            welcome.enqueue_many([[5]], idempotency_keys=["e", "f"])
