"""An app that reads a secret from the environment when imported, and whose tasks report which secrets they see."""

from __future__ import annotations

import os

from pgsched import App

app = App("secretive")
other = App("other")  # has no DSN, and no worker sets one
AT_IMPORT = os.environ["DATABASE_URL"]
SECRETS = ("DATABASE_URL", "PGPASSWORD", "PGSCHED_DSN", "PGSCHED_WEB_TOKEN")


@other.task(name="later")
def later() -> None:
    """Do nothing: runs of this task are only enqueued here."""


def seen() -> dict[str, object]:
    now = [name for name in SECRETS if name in os.environ]
    return {"at_import": AT_IMPORT, "now": now, "enqueued": later.enqueue() > 0}


@app.task(name="thread")
def thread() -> dict[str, object]:
    return seen()


@app.task(name="process", run_in="process")
def process() -> dict[str, object]:
    return seen()
