"""Make the pictures of the documentation: `python -m tests.support.web.pictures`. Needs chromium and playwright.

With `--all FOLDER`, make a picture of every page instead, in light and dark, 1280 and 400 pixels wide.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo

from pgsched.db.schema import migrate
from tests.support.paths import ROOT
from tests.support.server import start_server
from tests.support.waiting import wait_until
from tests.support.web import scene
from tests.support.web.chromium import address, browser

IMAGES = ROOT / "docs" / "images"
LOOKED_S = 75.0  # a chart needs several samples of the queues' depth, which is noted every ten seconds
PAGES = {
    "overview": "/?range=24h", "overview-15m": "/?range=15m", "jobs": "/jobs", "job": "/jobs/orders-import",
    "job-ledger": "/jobs/nightly-ledger?at=", "edit": "/job/edit/report", "new": "/job/new",
    "backfill": "/job/backfill/exchange-rates", "runs": "/runs", "runs-dead": "/runs?state=dead",
    "run": "/runs/{running}", "run-dead": "/runs/{dead}", "tree": "/runs/{child}/tree", "queues": "/queues",
    "workers": "/workers", "alerts": "/alerts", "audit": "/audit", "doctor": "/doctor",
}  # fmt: skip
# Name, page, width, height, colour scheme.
SHOTS = (
    ("console-overview", "/?range=24h", 1280, 980, "light"),
    ("console-job", "/jobs/orders-import", 1280, 1180, "light"),
    ("console-run", "/runs/{running}", 1280, 800, "dark"),
    ("console-alerts", "/alerts", 1280, 620, "light"),
    ("console-phone", "/jobs", 400, 800, "dark"),
)
QUESTIONS = {
    "running": "SELECT max(id) FROM pgsched.runs WHERE state = 'running' AND task = 'orders.import'",
    "dead": "SELECT max(id) FROM pgsched.runs WHERE state = 'dead' AND task = 'ledger.close' AND worker_id IS NOT NULL",
    "child": "SELECT max(run_id) FROM pgsched.dependencies",
}


def main() -> None:
    made = argparse.ArgumentParser(prog="python -m tests.support.web.pictures", description=__doc__)
    made.add_argument("--all", type=Path, metavar="FOLDER", help="every page, in both schemes and widths")
    made.add_argument("--only", metavar="NAME", help="one picture, such as console-run")
    made.add_argument("--out", type=Path, default=IMAGES)
    given = made.parse_args()
    with staged() as (console, dsn), browser() as chromium:
        time.sleep(5 if given.all else LOOKED_S)
        for name, path, width, height, scheme in every() if given.all else SHOTS:
            if given.only not in (None, name):
                continue
            file = (given.all or given.out) / f"{name}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            take(chromium, console + filled(path, dsn), file, width, height, scheme, whole=bool(given.all))
            print(f"{file}: {file.stat().st_size // 1024} kB", flush=True)


def every() -> Iterator[tuple[str, str, int, int, str]]:
    """Yield every page in both colour schemes and widths."""
    for name, path in PAGES.items():
        for width, height in ((1280, 900), (400, 800)):
            for scheme in ("light", "dark"):
                yield f"{name}-{width}-{scheme}", path, width, height, scheme


def filled(path: str, dsn: str) -> str:
    """Return the path with its placeholders replaced by ids of such runs."""
    with psycopg.connect(dsn) as db:
        found = {name: db.execute(q.encode()).fetchone() for name, q in QUESTIONS.items() if f"{{{name}}}" in path}
    return path.format(**{name: row[0] for name, row in found.items() if row})


def take(chromium: Any, url: str, file: Path, width: int, height: int, scheme: str, *, whole: bool) -> None:
    """Make one picture."""
    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    page = context.new_page()
    page.goto(url)
    page.wait_for_timeout(1200)
    page.screenshot(path=file, full_page=whole)
    context.close()


@contextmanager
def staged() -> Iterator[tuple[str, str]]:
    """Start a private server with the scene, a worker and a console; yield the console's address and the DSN."""
    server = start_server()
    name = f"pgsched_pictures_{uuid.uuid4().hex[:8]}"
    try:
        with psycopg.connect(server.dsn, autocommit=True) as there:
            there.execute(f"CREATE DATABASE {name}".encode())
        dsn = make_conninfo(server.dsn, dbname=name)
        migrate.upgrade(dsn)
        with psycopg.connect(dsn, autocommit=True) as db:
            scene.build(db)
        with running(dsn) as console:
            yield console, dsn
    finally:
        with psycopg.connect(server.dsn, autocommit=True) as there:
            there.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)".encode())
        server.stop()


@contextmanager
def running(dsn: str) -> Iterator[str]:
    """Start the worker and the console, schedule mails to be sent, and trigger jobs; yield the console's address."""
    env = os.environ | {"PGSCHED_DSN": dsn, "PYTHONUNBUFFERED": "1", "PYTHONPATH": str(ROOT)}
    commands = (
        ["web", "--no-auth", "--port", "0"],
        ["worker", "--app", "tests.support.web.scene:app", "--concurrency", "12", "--allow", "task,command,sql"],
    )
    with tempfile.TemporaryDirectory() as folder, (said := Path(folder) / "said").open("w") as log:
        begun = [
            subprocess.Popen([sys.executable, "-m", "pgsched", *one], cwd=ROOT, env=env, stdout=subprocess.DEVNULL,
                             stderr=log if one[0] == "web" else subprocess.DEVNULL) for one in commands
        ]  # fmt: skip
        try:
            console = wait_until(lambda: address(said), 60, "the console's address")
            with psycopg.connect(dsn, autocommit=True) as db:
                db.execute("INSERT INTO pgsched.runs (task, queue, args, available_at, state) SELECT 'mail.send',"
                           " 'mail', jsonb_build_object('to', n), clock_timestamp() + n * interval '0.3 s', 'scheduled'"
                           " FROM generate_series(1, 2000) n")  # fmt: skip
                for name in ("orders-import", "close-the-month", "close-the-month"):
                    db.execute("SELECT pgsched.trigger(%s, NULL, 'allow')", [name])
                wait_until(lambda: db.execute(QUESTIONS["running"].encode()).fetchone() != (None,), 60, "a run")
            yield console
        finally:
            for one in begun:
                one.kill()  # SIGTERM would take long: a worker lets its runs end first
            for one in begun:
                one.wait(30)


if __name__ == "__main__":
    main()
