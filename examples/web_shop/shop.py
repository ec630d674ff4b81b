"""A web shop: an order and the run that mails its confirmation are committed together, or not at all."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from pgsched import App, Run

DSN = os.environ["PGSCHED_DSN"]
TABLES = """
CREATE TABLE IF NOT EXISTS orders (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, mail text NOT NULL, confirmed_at timestamptz);
CREATE TABLE IF NOT EXISTS items (
    order_id bigint NOT NULL REFERENCES orders, name text NOT NULL, cents bigint NOT NULL CHECK (cents > 0))
"""
app = App("shop")


@app.task(name="shop.confirm", queue="mail", max_attempts=10)
def confirm(run: Run, order: int) -> None:
    """Send the mail. What the handler writes and the success of its run are one commit."""
    with run.transaction() as connection:
        cursor = connection.execute("UPDATE orders SET confirmed_at = now() WHERE id = %s RETURNING mail", [order])
        (mail,) = cursor.fetchone()
        run.log(f"order {order} is confirmed to {mail}")


async def take_order(request: Request) -> JSONResponse:
    """Take an order. If a later statement fails, the order and the run are rolled back together."""
    given = await request.json()
    try:
        async with await psycopg.AsyncConnection.connect(DSN) as connection:
            cursor = await connection.execute("INSERT INTO orders (mail) VALUES (%s) RETURNING id", [given["mail"]])
            (order,) = await cursor.fetchone()
            run = await confirm.enqueue_async(order=order, connection=connection)
            for name, cents in given["items"].items():
                await connection.execute("INSERT INTO items VALUES (%s, %s, %s)", [order, name, cents])
    except psycopg.errors.CheckViolation:
        return JSONResponse({"error": "an item must cost something"}, status_code=422)
    return JSONResponse({"order": order, "run": run}, status_code=201)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    async with await psycopg.AsyncConnection.connect(DSN) as connection:
        await connection.execute(TABLES)
    yield


web = Starlette(routes=[Route("/orders", take_order, methods=["POST"])], lifespan=lifespan)
