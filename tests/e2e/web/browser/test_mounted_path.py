"""In an application of its own, the console works below its path: no request of a browser leaves that path."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.paths import ROOT
from tests.support.waiting import wait_until
from tests.support.web.console import TOKEN

pytestmark = pytest.mark.long

pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'pgsched[test]'")

PREFIX = "/ops/jobs"
PROGRAM = f"""
import sys
import uvicorn
from starlette.applications import Starlette
from pgsched.contrib.starlette import mount_console
app = Starlette()
mount_console(app, "{PREFIX}", token="{TOKEN}")
uvicorn.run(app, port=0)
"""
PAGES = (
    "/", "/?range=24h", "/jobs", "/jobs/nightly", "/jobs/nightly?at=", "/job/new", "/job/edit/nightly",
    "/job/run/nightly", "/job/backfill/nightly", "/runs", "/runs/new", "/runs/new?task=welcome", "/runs?state=dead",
    "/runs/{run}", "/runs/{run}/tree", "/queues", "/workers", "/locks", "/alerts", "/audit", "/doctor",
    "/runs/999999999",
)  # fmt: skip
SCHEMA = {
    "type": "object", "required": ["user"], "additionalProperties": False,
    "properties": {"user": {"type": "integer"}, "color": {"enum": ["red", "blue"]},
                   "day": {"type": "string", "format": "date"}},
}  # fmt: skip


@pytest.fixture(scope="module")
def place(dsn: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an application that has the console below PREFIX."""
    folder = tmp_path_factory.mktemp("mounted")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PGSCHED_")}
    env |= {"PGSCHED_DSN": dsn, "PGSCHED_HOME": str(folder / "home"), "PYTHONUNBUFFERED": "1"}
    said = folder / "log"

    def address() -> str | None:
        _, found, after = said.read_text().partition("running on ")
        return after.split()[0] if found else None

    with said.open("w") as log:
        process = subprocess.Popen([sys.executable, "-c", PROGRAM], cwd=ROOT, env=env, stderr=log)
        try:
            yield wait_until(address, 60, "the application")
        finally:
            process.terminate()
            process.wait(30)
    assert "Traceback" not in said.read_text()


@pytest.fixture(scope="module")
def run_id(dsn: str) -> Any:
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 'welcome', '0 2 * * *')")
        db.execute(
            "INSERT INTO pgsched.tasks (app, task, release, options, schema, owner)"
            " VALUES ('shop', 'welcome', '1', '{}', %s, 'me')",
            [Jsonb(SCHEMA)],
        )
        row = db.execute("INSERT INTO pgsched.runs (task) VALUES ('welcome') RETURNING id").fetchone()
    assert row is not None
    return row[0]


def test_no_request_of_a_browser_leaves_the_path(place: str, run_id: int, dsn: str, chromium: Any) -> None:
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page, addresses, complaints = context.new_page(), list[str](), list[str]()
    context.on("request", lambda request: addresses.append(request.url))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if "Security Policy" in message.text else None)
    page.goto(f"{place}{PREFIX}/runs?state=queued")
    page.fill("input[name=secret]", TOKEN)
    page.click("button.main")
    assert page.url == f"{place}{PREFIX}/runs?state=queued"
    pictures = os.environ.get("PGSCHED_PICTURES")
    for n, path in enumerate(PAGES):
        page.goto(place + PREFIX + path.format(run=run_id))
        assert page.locator("nav a").count() >= 8, path
        hrefs = page.eval_on_selector_all("a[href], form[action]", "all => all.map(one => one.href || one.action)")
        assert all(urlsplit(href).path.startswith(f"{PREFIX}/") for href in hrefs), path
        if pictures:
            page.screenshot(path=Path(pictures) / f"{n:02}.png", full_page=True)
    # a form, and where it leads
    page.goto(f"{place}{PREFIX}/runs/new?task=welcome")
    page.fill("input[name='arg.user']", "7")
    page.select_option("select[name='arg.color']", '"red"')
    page.click("button.main")
    assert "was made" in page.locator("p.told[role=status]").inner_text()
    # the preview of a schedule, which a script asks for
    page.goto(f"{place}{PREFIX}/job/new")
    page.fill("input[name=schedule]", "0 4 * * *")
    page.wait_for_selector("#preview >> text=At 04:00")
    # live updates
    page.goto(f"{place}{PREFIX}/runs/{run_id}")
    page.wait_for_selector("#liveness.good")
    with psycopg.connect(dsn, autocommit=True) as db:
        db.execute("SELECT pgsched.cancel(%s, 'enough')", [run_id])
    page.wait_for_selector(".headline .state.cancelled")
    page.click("text=Log out")
    assert page.url == f"{place}{PREFIX}/login"
    cookies = [cookie for cookie in context.cookies() if cookie["path"] != PREFIX]
    context.close()
    outside = [one for one in addresses if not urlsplit(one).path.startswith(f"{PREFIX}/")]
    assert (outside, cookies, complaints) == ([], [], [])
    assert any(urlsplit(one).path == f"{PREFIX}/preview" for one in addresses)
