"""What the pages on locks and elections need: work to do under a lock, and two copies of the service that they show."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import psycopg

from pgsched import App, DatabaseUnreachable, LeaseLost, LockTimeout
from pgsched.recipes import Election
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.docs.playing import Play


def locking(play: Play) -> dict[str, Any]:
    async def compute_totals_async() -> None: ...

    return {
        "psycopg": psycopg, "dsn": play.dsn, "days": ["2026-05-01", "2026-05-02"],
        "compute_totals": lambda day=None: 1200, "compute_totals_async": compute_totals_async,
    }  # fmt: skip


def written_totals(play: Play) -> None:
    """Check what was written under the locks. Only the lock that the page takes by SQL for somebody else is held."""
    assert play.db.execute("SELECT array_agg(cents ORDER BY cents) FROM totals").fetchone() == ([900, 1200],)
    assert play.db.execute("SELECT count(*) FROM pgsched.lock_places").fetchone() == (0,)


def electing(_: Play) -> dict[str, Any]:
    """Return the program's own parts; the newsletter is sent as soon as this process leads."""
    app, sent, over = App("mailer"), asyncio.Event(), threading.Event()

    def lead(election: Election) -> None:
        while not (election.lost or over.is_set()):
            election.wait_lost(0.05)

    def stand() -> None:
        app.election("mailer").run(lead)

    async def send_mails_async() -> None:
        sent.set()

    return {
        "app": app, "stand": stand, "send_mails_async": send_mails_async, "serve": sent.wait, "asyncio": asyncio,
        "Election": Election, "LeaseLost": LeaseLost, "LockTimeout": LockTimeout,
        "DatabaseUnreachable": DatabaseUnreachable, "_over": over,
    }  # fmt: skip


def elect_another(play: Play) -> None:
    """Run two copies of the page's mailer.py: one leads; after it has been stopped, the other one does."""
    play.names["_over"].set()
    wait_until(lambda: not play.names["app"].election("mailer").line(), 30, "the page's own thread to resign")
    logs = [play.folder / f"mailer-{copy}.log" for copy in (1, 2)]
    copies = []
    try:
        for log in logs:
            with log.open("wb") as out:
                copies.append(subprocess.Popen(
                    [sys.executable, "mailer.py"], cwd=play.folder, stdout=out, stderr=out,
                    env=play.shell.env | {"PYTHONPATH": str(ROOT)},
                ))  # fmt: skip
        line = "SELECT count(fence), count(*) FROM pgsched.lock_line('mailer')"
        wait_until(lambda: play.db.execute(line).fetchone() == (1, 2), 60, "a leader, and a copy that waits")
        wait_until(lambda: sum(map(leads, logs)) == 1, 30, "one copy to lead")
        first = leads(logs[1])
        copies[first].send_signal(signal.SIGTERM)
        assert copies[first].wait(30) == 0
        wait_until(lambda: leads(logs[not first]), 10, "the other copy to lead, before a lease could end")
    finally:
        for copy in copies:
            copy.terminate()
            copy.wait(30)


def leads(log: Any) -> bool:
    return b"leading, term" in log.read_bytes()
