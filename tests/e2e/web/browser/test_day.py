"""The story of a job that breaks, in a real browser and with a real worker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.waiting import wait_until
from tests.support.web.chromium import PATIENCE_MS

pytestmark = pytest.mark.long

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'pgsched[test]'")


def test_a_job_is_made_breaks_is_repaired_retried_paused_backfilled_and_explained(  # noqa: PLR0915 - one day, one story
    console: str, page: Any, db: psycopg.Connection, tmp_path: Path
) -> None:
    expect = sync_api.expect
    expect.set_options(timeout=PATIENCE_MS)
    data = tmp_path / "data.csv"
    data.write_text("17\n")

    # Make a job. The preview follows the typing.
    page.goto(f"{console}/jobs")
    page.get_by_role("link", name="New job").click()
    page.get_by_label("name", exact=True).fill("load ledger")
    page.get_by_label("kind").select_option("shell")
    page.get_by_role("textbox", name="task").fill(f"echo reading; cat {data}")
    page.get_by_label("schedule").fill("0 0 30 2 *")
    expect(page.locator("#preview")).to_contain_text("never")
    page.get_by_label("schedule").fill("@every 2s")
    expect(page.locator("#preview")).to_contain_text("Every 2 seconds")
    page.get_by_text("Attempts", exact=True).click()
    page.get_by_label("max attempts").fill("1")
    page.get_by_role("button", name="Make the job").click()
    expect(page.get_by_role("status").filter(has_text="Job load ledger is made.")).to_be_visible()

    # Watch the job run. The page changes without being loaded again.
    page.evaluate("window.loaded = 'once'")
    expect(page.locator("svg.bars .bar.succeeded").first).to_be_attached()
    assert page.evaluate("window.loaded") == "once"
    page.goto(f"{console}/runs?state=succeeded")
    page.locator("tbody a").first.click()
    expect(page.locator("pre.log")).to_contain_text("reading")
    expect(page.locator("pre.log")).to_contain_text("17")

    # The job breaks. The error is found from the overview.
    data.unlink()
    page.goto(console)
    failure = page.locator("tr[id^=bad-]").first
    expect(failure).to_contain_text("load ledger")
    failure.get_by_role("link").first.click()
    broken = page.url
    expect(page.locator(".error-text")).to_contain_text("exit")
    expect(page.get_by_text("No such file").first).to_be_visible()

    # Pause the job, repair it, and retry its dead runs.
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

    # The slots during the pause are skipped. One of them is explained, then backfilled.
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
