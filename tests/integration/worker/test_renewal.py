"""A connection that falls silent without being closed costs no claim."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Literal

import psycopg
import pytest

from pgsched.chaos.site.proxy import Proxy, with_application_name
from pgsched.worker import heartbeat as heartbeat_module
from pgsched.worker.leases import MARGIN
from tests.support.db.setting import add_runs, row_of
from tests.support.workers import Handler, becomes, make, play


@pytest.fixture
def proxy(dsn: str) -> Iterator[Proxy]:
    with Proxy(dsn) as running:
        yield running


@pytest.mark.long
@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.parametrize("lease_s", [4.0, pytest.param(8.0, marks=pytest.mark.long)])
def test_a_heartbeat_without_an_answer_leaves_time_for_another(
    direction: Literal["up", "down"],
    lease_s: float,
    proxy: Proxy,
    db: psycopg.Connection,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        heartbeat_module, "LOOK_S", 60.0
    )  # a look between the heartbeats would notice the silence sooner
    add_runs(db, 1)

    async def scene() -> None:
        handler = Handler()
        worker = make(proxy.dsn, handler, lease_s=lease_s)
        work = asyncio.create_task(worker.run())
        await becomes(lambda: handler.begun, "the start")
        heartbeat = worker.heartbeat
        assert heartbeat is not None
        before = heartbeat.beaten_at
        await becomes(lambda: heartbeat.beaten_at > before, "a beat")
        before = heartbeat.beaten_at
        await asyncio.to_thread(proxy.silence, direction, which=with_application_name("heartbeat"))
        await becomes(lambda: heartbeat.beaten_at > before or handler.cancelled, "the next one")
        assert handler.cancelled == []
        handler.go.set()
        await becomes(lambda: worker.verdicts, "the settlement")
        worker.stop()
        await work
        assert worker.verdicts == {"succeeded": 1}

    play(scene)
    assert row_of(db, 1)["attempt"] == 1


@pytest.mark.parametrize("lease_s", [4.0, 10.0, 30.0, 300.0])
def test_the_server_gives_up_a_heartbeat_before_the_worker_does(lease_s: float) -> None:
    timeout_s, within_s = heartbeat_module.answer_timeouts_s(lease_s)
    assert timeout_s < within_s
    again_at = lease_s / 3 + within_s + 2 * heartbeat_module.AGAIN_S
    assert again_at < lease_s * (1 - MARGIN)
