"""An app with a hook of every kind; hooks and handlers note their calls, and some the thread, in a file.

HOOKED_NOTES names the file.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from typing import Any

from pgsched import App, Run, Snooze

app = App("hooked")


def note(what: str) -> None:
    with Path(os.environ["HOOKED_NOTES"]).open("a") as notes:
        notes.write(f"{what}\n")


@app.on_start
async def opens() -> None:
    await asyncio.sleep(0)
    note("start")


@app.on_shutdown
def closes() -> None:
    note("shutdown")


@app.middleware
async def outer(run: Run, call_next: Any) -> Any:
    note(f"outer {run.task} {run.attempt}")
    try:
        value = await call_next()
    except KeyError:
        return "rescued"
    finally:
        note("outer ends" + (" cancelled" if run.cancelled.is_set() else ""))
    return f"<{value}>"


@app.middleware
async def inner(run: Run, call_next: Any) -> Any:
    note("inner")
    return await call_next()


@app.middleware
def plain(run: Run, call_next: Any) -> Any:
    note(f"plain in {threading.current_thread().name}")
    return call_next()


@app.on_error
async def told(run: Run, error: BaseException) -> None:
    note(f"told {run.task} {type(error).__name__}: {error}")


@app.on_error
def told_plainly(run: Run, error: BaseException) -> None:
    raise RuntimeError("a hook that fails")


@app.on_error
def told_last(run: Run, error: BaseException) -> None:
    note("told last")


RAISED = {"value": ValueError("no"), "key": KeyError("k"), "snooze": Snooze(5), "exit": SystemExit(3)}


def does(what: str) -> str:
    note(f"handler in {threading.current_thread().name}")
    if what in RAISED:
        raise RAISED[what]
    if what == "sleeps":
        time.sleep(3600)
    return what


@app.task(name="thread")
def on_thread(what: str) -> str:
    return does(what)


@app.task(name="process", run_in="process")
def in_process(what: str) -> str:
    return does(what)


@app.task(name="loop")
async def on_loop(what: str) -> str:
    if what == "sleeps":
        note("handler sleeps")
        await asyncio.sleep(3600)
    return does(what)


@app.task(name="process_async", run_in="process")
async def in_process_async(what: str) -> str:
    return does(what)


def runs_a_loop() -> list[Any]:
    """Run an event loop in a plain function, then look whether one still runs there; return both findings."""

    async def main() -> str:
        await asyncio.sleep(0)
        return "from a loop"

    found = asyncio.run(main())
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return [found, "none runs here"]
    return [found]


app.task(name="thread_with_loop")(runs_a_loop)
app.task(name="process_with_loop", run_in="process")(runs_a_loop)


@app.task(name="dies", run_in="process")
def dies() -> None:
    os._exit(7)
