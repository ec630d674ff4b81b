"""The console in a real browser, with a real worker: the day of somebody whose job breaks."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PATIENCE_MS = 30_000
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no chromium here: apt install chromium (the console is NOT tested)"),
]
sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'pgsched[test]'")


@pytest.fixture
def console(dsn: str, tmp_path: Path) -> Iterator[str]:
    """The address of `pgsched web`, with a worker beside it that runs commands."""
    env = os.environ | {"PGSCHED_DSN": dsn, "PYTHONUNBUFFERED": "1"}
    said = tmp_path / "web.log"
    with said.open("w") as log:
        commands = (["web", "--port", "0"], ["worker", "--allow", "shell", "--poll", "0.2"])
        running = [
            subprocess.Popen([sys.executable, "-m", "pgsched", *command], cwd=ROOT, env=env, stderr=log if n == 0 else
                             subprocess.DEVNULL, stdout=subprocess.DEVNULL)
            for n, command in enumerate(commands)
        ]  # fmt: skip
        try:
            yield wait_until(lambda: address(said), 60, "the console's address")
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait(30)
    assert "Traceback" not in said.read_text()


def address(said: Path) -> str | None:
    """What the console said of where it listens."""
    _, found, rest = said.read_text().partition("pgsched web: ")
    return rest.split()[0].rstrip("/") if found and "\n" in rest else None


@pytest.fixture
def chromium() -> Iterator[Any]:
    """A headless browser."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """A page whose scripts may not fail, and whose policy nothing may violate."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    opened, complaints = context.new_page(), []
    opened.set_default_timeout(PATIENCE_MS)
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    opened.on("console", lambda said: complaints.append(said.text) if "Security Policy" in said.text else None)
    yield opened
    assert not complaints
    context.close()


def test_a_job_is_made_breaks_is_repaired_retried_paused_backfilled_and_explained(  # noqa: PLR0915 - one day, one story
    console: str, page: Any, db: psycopg.Connection, tmp_path: Path
) -> None:
    expect = sync_api.expect
    expect.set_options(timeout=PATIENCE_MS)
    data = tmp_path / "data.csv"
    data.write_text("17\n")

    # makes a job, with the preview that follows the typing
    page.goto(f"{console}/jobs")
    page.get_by_role("link", name="New job").click()
    page.get_by_label("name", exact=True).fill("load ledger")
    page.get_by_label("kind").select_option("shell")
    page.get_by_label("task").fill(f"echo reading; cat {data}")
    page.get_by_label("schedule").fill("0 0 30 2 *")
    expect(page.locator("#preview")).to_contain_text("never")
    page.get_by_label("schedule").fill("@every 2s")
    expect(page.locator("#preview")).to_contain_text("Every 2 seconds")
    page.get_by_text("Attempts", exact=True).click()
    page.get_by_label("max attempts").fill("1")
    page.get_by_role("button", name="Make the job").click()
    expect(page.get_by_role("status").filter(has_text="Job load ledger is made.")).to_be_visible()

    # watches it run: the page changes without being loaded again
    page.evaluate("window.loaded = 'once'")
    expect(page.locator("svg.bars .bar.succeeded").first).to_be_attached()
    assert page.evaluate("window.loaded") == "once"
    page.goto(f"{console}/runs?state=succeeded")
    page.locator("tbody a").first.click()
    expect(page.locator("pre.log")).to_contain_text("reading")
    expect(page.locator("pre.log")).to_contain_text("17")

    # it breaks, and the error is found from the overview
    data.unlink()
    page.goto(console)
    failure = page.locator("tr[id^=bad-]").first
    expect(failure).to_contain_text("load ledger")
    failure.get_by_role("link").first.click()
    broken = page.url
    expect(page.locator(".error-text")).to_contain_text("exit")
    expect(page.get_by_text("No such file").first).to_be_visible()

    # pauses it, repairs it, retries what died
    page.goto(f"{console}/jobs/load%20ledger")
    page.get_by_text("Pause with a reason").click()
    page.get_by_label("Reason").fill("the file is gone")
    page.locator("details[open]").get_by_role("button", name="Pause").click()
    expect(page.get_by_text("the file is gone").first).to_be_visible()
    data.write_text("18\n")
    page.goto(broken)
    page.get_by_role("button", name="Retry").click()
    expect(page.locator("h1 + .state")).to_have_text("succeeded")
    expect(page.locator("pre.log")).to_contain_text("18")
    page.goto(f"{console}/runs?state=dead&job=load%20ledger")
    if page.locator("tbody tr").count():
        page.get_by_role("button", name="Retry all").click()
        page.get_by_role("button", name="Retry").click()
        expect(page.get_by_role("status").filter(has_text="Retried")).to_be_visible()

    # the slots of the pause are skipped; one is explained, then backfilled
    paused = "SELECT clock_timestamp() > paused_at + interval '5 s' FROM pgsched.jobs"
    wait_until(lambda: db.execute(paused).fetchone() == (True,), 10, "two slots of the pause")
    page.goto(f"{console}/jobs/load%20ledger")
    page.get_by_role("button", name="Resume", exact=True).click()
    expect(page.get_by_text("The job is active again.")).to_be_visible()
    question = "SELECT scheduled_at FROM pgsched.runs WHERE state = 'skipped' AND origin <> 'backfill' LIMIT 1"
    slot = wait_until(lambda: db.execute(question).fetchone(), 30, "a skipped slot")[0]
    page.goto(f"{console}/jobs/load%20ledger?day={slot:%Y-%m-%d}")
    page.locator("tr", has_text="skipped").first.get_by_role("link", name="explain").click()
    expect(page.locator("#why")).to_contain_text("paused")
    page.get_by_role("link", name="Backfill").click()
    page.locator("[name=from]").fill(f"{slot:%Y-%m-%dT%H:%M:%S}")
    page.locator("[name=to]").fill(f"{slot:%Y-%m-%d}T23:59:59")
    page.get_by_role("button", name="Dry run").click()
    expect(page.locator("main")).to_contain_text("slots")
    page.get_by_role("button", name="Start this backfill").click()
    expect(page.locator("h1 + .state")).to_have_text("finished")
    row = db.execute(
        "SELECT count(*) FROM pgsched.runs WHERE backfill_id IS NOT NULL AND state = 'succeeded'"
    ).fetchone()
    assert row is not None and row[0] >= 1


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_fits_a_telephone_and_can_be_read(
    console: str, chromium: Any, db: psycopg.Connection, scheme: str
) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule, kind) VALUES"
               " ('a job with a rather long name_that_goes_on_and_on', 'true', '@every 1h', 'shell')")  # fmt: skip
    db.execute("INSERT INTO pgsched.runs (task, kind, state, finished_at, error) VALUES"
               " (repeat('long_word', 30), 'shell', 'dead', now(), repeat('x', 300))")  # fmt: skip
    context = chromium.new_context(viewport={"width": 400, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    job = "a%20job%20with%20a%20rather%20long%20name_that_goes_on_and_on"
    row = db.execute("SELECT max(id) FROM pgsched.runs").fetchone()
    assert row is not None
    for path in ("/", "/jobs", f"/jobs/{job}", f"/job/edit/{job}", f"/job/backfill/{job}", "/runs", f"/runs/{row[0]}",
                 "/queues", "/workers", "/doctor"):  # fmt: skip
        page.goto(console + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, path
        assert page.evaluate(CONTRAST) == [], (path, scheme)
    context.close()


def test_everything_is_reached_by_the_keyboard(console: str, page: Any) -> None:
    page.goto(f"{console}/jobs")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to content"
    page.keyboard.press("Enter")
    seen = []
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement === document.body"):
            break
        seen.append(page.evaluate("document.activeElement.textContent.trim() || document.activeElement.name"))
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none", seen
    assert "New job" in seen and "queue" in seen and len(seen) < 30  # the page can be left again


# Text whose contrast with what lies behind it is below 4.5 (WCAG AA): the class and the text of each.
CONTRAST = """() => {
  const parse = (text) => {
    const p = text.match(/[\\d.]+/g).map(Number), scale = text.startsWith("color(srgb") ? 255 : 1;
    return [p[0] * scale, p[1] * scale, p[2] * scale, p[3] ?? 1];
  };
  const light = (c) => {
    const f = c.slice(0, 3).map((v) => v / 255).map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * f[0] + 0.7152 * f[1] + 0.0722 * f[2];
  };
  const behind = (node) => {
    for (let one = node; one; one = one.parentElement) {
      const c = parse(getComputedStyle(one).backgroundColor);
      if (c[3] > 0.9) return c;
    }
    return [255, 255, 255, 1];
  };
  const bad = [];
  for (const node of document.querySelectorAll("main *, header *")) {
    if (node.closest("svg, option, :disabled") || !node.checkVisibility()) continue;
    if (![...node.childNodes].some((c) => c.nodeType === 3 && c.data.trim())) continue;
    const a = light(parse(getComputedStyle(node).color)), b = light(behind(node));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) bad.push(`${node.className}: ${node.textContent.trim().slice(0, 30)} ${ratio.toFixed(2)}`);
  }
  return bad;
}"""
