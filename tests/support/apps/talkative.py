"""An app with three handlers: one that fails, one that waits, and one that prints."""

from __future__ import annotations

import sys
import time

from pgsched import App

app = App("talkative")


@app.task(name="talkative.boom")
def boom() -> None:
    raise ValueError("boom")


@app.task(name="talkative.waits")
async def waits() -> None:
    import asyncio

    print("it began", file=sys.stderr, flush=True)
    await asyncio.sleep(60)


@app.task(name="talkative.prints")
def prints() -> None:
    print("seen at once")
    time.sleep(30)
