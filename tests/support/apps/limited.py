"""An app whose tasks declare a limit, a retry rule and keys; its handlers wait for as long as they are asked to."""

from __future__ import annotations

import asyncio

from pgsched import App

app = App("limited")


@app.task(name="limited.wait", concurrency=1, max_attempts=1)
async def wait(seconds: float) -> None:
    await asyncio.sleep(seconds)


@app.task(name="limited.picky", retry_on=OSError, backoff=lambda attempt, error: 3600 * attempt, max_attempts=5)
async def picky(kind: str) -> None:
    raise OSError("disk") if kind == "os" else ValueError("no")
