"""A shop on FastAPI and SQLAlchemy: requests enqueue in their transaction, and the same process does the work."""

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import psycopg
from fastapi import Depends, FastAPI, HTTPException, Request
from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pgsched import App, InputError, NotFound, Run, RunFailed
from pgsched.contrib.starlette import lifespan, mount_console

DSN = os.environ["PGSCHED_DSN"]
app = App("shop", dsn=DSN)
engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(DSN))


class Base(DeclarativeBase): ...


class Order(Base):
    __tablename__ = "shop_orders"
    id: Mapped[int] = mapped_column(primary_key=True)
    mail: Mapped[str]
    cents: Mapped[int]


# ---- the work


@app.task(max_attempts=3)
def invoice(run: Run, order: int, pages: int = 3) -> str:
    """Write the invoice of an order, page by page."""
    with Session(engine) as session:
        found = session.get_one(Order, order)
        if found.cents <= 0:
            raise ValueError(f"order {order} costs nothing")
    for page in range(1, pages + 1):
        run.progress(page, pages, f"page {page}")
        if run.cancelled.wait(0.1):
            raise RuntimeError("stopped")
    return f"invoice-{order}.pdf"


@app.job(schedule="0 3 * * *", timezone="Europe/Vienna", name="nightly totals")
@app.task
def totals() -> int:
    with Session(engine) as session:
        return sum(order.cents for order in session.query(Order))


# ---- the web


def session() -> Iterator[Session]:
    """Give each request a transaction, which is committed if the request succeeds."""
    with Session(engine) as opened, opened.begin():
        yield opened


@asynccontextmanager
async def tables(_: FastAPI) -> AsyncIterator[None]:
    Base.metadata.create_all(engine)
    yield


web = FastAPI(lifespan=lifespan(app, tables, concurrency=4))


def operator(request: Request) -> str | None:
    """Say who may use the console: here whoever sends the key in shop.key. Your application asks its own login."""
    key = Path("shop.key").read_text().strip()
    return "operator" if secrets.compare_digest(request.headers.get("x-key", "").encode(), key.encode()) else None


mount_console(web, "/jobs", auth=operator, database=app)


@web.post("/orders", status_code=201)
def take_order(mail: str, cents: int, session: Annotated[Session, Depends(session)]) -> dict[str, Any]:
    """Store an order and enqueue its invoice: both are committed, or neither."""
    order = Order(mail=mail, cents=cents)
    session.add(order)
    session.flush()
    run = invoice.enqueue(order.id, connection=session)
    return {"order": order.id, "run": run}


@web.get("/runs/{run_id}")
async def show(run_id: int) -> dict[str, Any]:
    try:
        info = await app.run(run_id).info_async()
    except NotFound as error:
        raise HTTPException(404, str(error)) from error
    page = info.progress["note"] if info.progress else None
    return {"state": info.state, "attempt": info.attempt, "progress": page, "error": info.error}


@web.get("/runs/{run_id}/result")
async def result(run_id: int, seconds: float = 10) -> dict[str, Any]:
    """Wait for the result, for at most so many seconds."""
    try:
        return {"result": await app.run(run_id).result_async(timeout=min(seconds, 30))}
    except TimeoutError as error:
        raise HTTPException(504, str(error)) from error
    except RunFailed as error:
        raise HTTPException(409, str(error)) from error
    except NotFound as error:
        raise HTTPException(404, str(error)) from error


@web.post("/runs/{run_id}/{verb}")
async def change(run_id: int, verb: str) -> dict[str, Any]:
    run = app.run(run_id)
    try:
        if verb == "cancel":
            return {"state": await run.cancel_async("the customer asked")}
        if verb == "retry":
            return {"state": await run.retry_async()}
    except NotFound as error:
        raise HTTPException(404, str(error)) from error
    except InputError as error:
        raise HTTPException(409, str(error)) from error
    raise HTTPException(404, f"no such verb: {verb}")
