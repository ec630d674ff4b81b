"""Handlers that log, in every place: on the event loop, in a thread and in a child process."""

from __future__ import annotations

import asyncio
import logging
import sys

import structlog

from pgsched import App

app = App("logging")
logger = logging.getLogger("handlers")


def say(word: str) -> None:
    logger.warning("%s warned", word)
    structlog.get_logger().info(f"{word} structured")


@app.task(name="on_loop")
async def on_loop(word: str = "other") -> None:
    say(word)
    await asyncio.create_task(nested(word))


async def nested(word: str) -> None:
    await asyncio.sleep(0)
    logger.warning("%s nested", word)


@app.task(name="in_thread")
def in_thread(word: str) -> None:
    say(word)
    logger.warning("%s nested", word)


@app.task(name="in_process", run_in="process")
async def in_process(word: str) -> None:
    say(word)
    await asyncio.create_task(nested(word))


@app.task(name="fails")
def fails() -> None:
    raise ValueError("it")


def __getattr__(name: str) -> App:
    """Return the same app as `with_handler` or `with_structlog`, after setting up logging as an app may do itself."""
    if name == "with_structlog":
        structlog.configure(
            processors=[structlog.processors.KeyValueRenderer(key_order=["event"])],
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
        return app
    if name != "with_handler":
        raise AttributeError(name)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("[run %(pgsched_run)s.%(pgsched_attempt)s %(pgsched_task)s] %(message)s"))
    logging.getLogger().addHandler(handler)
    return app
