"""The lifespan with a worker, in FastAPI, Starlette and Litestar, around and without a lifespan of the user's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from pgsched import App, DatabaseUnreachable
from pgsched.contrib.starlette import lifespan
from tests.support.hosting.inside import alive, states
from tests.support.waiting import wait_until

QUICK: dict[str, Any] = {"poll": 0.1, "grace": 1.0}
Client = AbstractAsyncContextManager[Any]


def fastapi(life: Callable[..., Any]) -> Any:
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    web = FastAPI(lifespan=life)
    return web, TestClient(web)


def starlette(life: Callable[..., Any]) -> Any:
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    web = Starlette(lifespan=life)
    return web, TestClient(web)


def litestar(life: Callable[..., Any]) -> Any:
    from litestar import Litestar
    from litestar.testing import TestClient

    web = Litestar([], lifespan=[life])
    return web, TestClient(web)


FRAMEWORKS = [fastapi, starlette, litestar]


@pytest.mark.few(2)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_worker_runs_as_long_as_the_application(
    framework: Callable[..., Any], app: App, greet: Any, db: psycopg.Connection[Any]
) -> None:
    web, client = framework(lifespan(app, concurrency=2, **QUICK))
    with client:
        greet.enqueue("you")
        wait_until(lambda: states(db) == {"t": "succeeded"}, 20)
        assert web.state.pgsched_worker.is_running and alive(db) == 1
    assert alive(db) == 0 and not web.state.pgsched_worker.is_running


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_user_s_own_lifespan_goes_around_the_worker(
    framework: Callable[..., Any], app: App, db: psycopg.Connection[Any]
) -> None:
    seen: list[tuple[str, int]] = []

    @asynccontextmanager
    async def own(web: Any) -> AsyncIterator[dict[str, str]]:
        seen.append(("opened", alive(db)))
        yield {"pool": "mine"}
        seen.append(("closed", alive(db)))

    _, client = framework(lifespan(app, own, **QUICK))
    with client:
        assert alive(db) == 1
    assert seen == [("opened", 0), ("closed", 0)]


@pytest.mark.parametrize("framework", [fastapi, starlette])
def test_the_state_of_the_user_s_own_lifespan_reaches_requests(framework: Callable[..., Any], app: App) -> None:
    from starlette.requests import Request
    from starlette.responses import JSONResponse

    @asynccontextmanager
    async def own(_: Any) -> AsyncIterator[dict[str, str]]:
        yield {"pool": "mine"}

    async def answer(request: Request) -> JSONResponse:
        return JSONResponse({"pool": request.state.pool})

    web, client = framework(lifespan(app, own, **QUICK))
    web.add_route("/", answer)
    with client:
        assert client.get("/").json() == {"pool": "mine"}


@pytest.mark.parametrize("framework", [fastapi, starlette])
def test_an_application_whose_worker_cannot_start_does_not_start(framework: Callable[..., Any], dsn: str) -> None:
    closed: list[str] = []

    @asynccontextmanager
    async def own(_: Any) -> AsyncIterator[None]:
        try:
            yield
        finally:
            closed.append("own")

    unreachable = App("test", dsn=make_conninfo(dsn, host="127.0.0.1", port="1"))
    _, client = framework(lifespan(unreachable, own))
    with pytest.raises(DatabaseUnreachable), client:
        pass
    assert closed == ["own"]
