"""In a real browser, the console keeps each promise that stands at the top of pgsched/web/static/live.js."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.sessions import shut
from tests.support.waiting import wait_until
from tests.support.web.chromium import PATIENCE_MS

sync_api = pytest.importorskip("playwright.sync_api", reason="no playwright: pip install 'pgsched[test]'")
expect = sync_api.expect
ALIVE = "() => window.olds.filter((one) => one.isConnected).length / window.olds.length"
NOTE = """document.addEventListener('DOMContentLoaded', () => {
  window.olds = [...document.querySelectorAll('#live *')];
  window.shows = 0;
  document.addEventListener('shown', () => window.shows++);
})"""
FUTURE = ("INSERT INTO pgsched.runs (task, state, available_at) SELECT 'later', 'scheduled', now() + interval '1 day'"
          " FROM generate_series(1, %s)")  # fmt: skip


@pytest.fixture(autouse=True)
def emptied(db: psycopg.Connection) -> None:
    """Delete what the test before has written."""
    for table in ("pauses", "runs", "jobs", "queues"):
        db.execute(f"DELETE FROM pgsched.{table}".encode())


@pytest.fixture(scope="module")
def noting(tab: tuple[Any, list[str]]) -> None:
    """Add a script to the tab, by which each page notes its elements before the first event."""
    tab[0].add_init_script(NOTE)


@pytest.fixture
def live(noting: None, console: str, page: Any) -> Callable[[str], None]:
    """A function that opens a page of the console."""
    expect.set_options(timeout=PATIENCE_MS)

    def opened(path: str) -> None:
        page.goto(f"{console}{path}")

    return opened


def shows(page: Any, more: int = 1) -> None:
    """Wait until the page has shown at least `more` events."""
    wait_until(lambda: page.evaluate("window.shows") >= more, 30, "an event")


def run_with_output(db: psycopg.Connection, n: int) -> int:
    row = db.execute("INSERT INTO pgsched.runs (task, state, available_at) VALUES ('t', 'scheduled',"
                     " now() + interval '1 day') RETURNING id").fetchone()  # fmt: skip
    assert row is not None
    say(db, row[0], 0, n)
    return int(row[0])


def say(db: psycopg.Connection, run_id: int, first: int, n: int) -> None:
    db.execute("INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk) SELECT %s, 1, n, 'stdout',"
               " 'line ' || n || E'\\n' FROM generate_series(%s::int, %s::int) n",
               [run_id, first, first + n - 1])  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("path", ["/", "/jobs", "/runs", "/queues"])
def test_the_first_event_replaces_no_unchanged_element(
    live: Callable[[str], None], page: Any, db: psycopg.Connection, path: str
) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) SELECT 'job ' || n, 't', '0 2 * * *'"
               " FROM generate_series(1, 20) n")  # fmt: skip
    db.execute(FUTURE, [20])
    live(path)
    shows(page)
    assert page.evaluate(ALIVE) > 0.95


def test_an_event_keeps_focus_typed_text_ticks_and_opened_details(
    live: Callable[[str], None], page: Any, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('mail', 3)")
    live("/queues")
    shows(page)
    page.locator("#new-queue summary").click()
    page.locator("#new-queue input[name=name]").type("urg")
    page.locator("#new-queue input[name=fair]").check()
    before = page.evaluate("window.shows")
    db.execute("INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('a', 3), ('zz', 1)")
    db.execute("UPDATE pgsched.queues SET concurrency_limit = 7 WHERE name = 'mail'")
    shows(page, before + 1)
    expect(page.locator("#queue-zz")).to_be_visible()
    assert page.evaluate("document.activeElement.name") == "fair"
    assert page.locator("#new-queue input[name=name]").input_value() == "urg"
    assert page.locator("#new-queue input[name=fair]").is_checked()
    assert page.evaluate("document.getElementById('new-queue').open")


@pytest.mark.long
def test_an_output_stays_at_its_end_unless_it_was_scrolled_up(
    live: Callable[[str], None], page: Any, db: psycopg.Connection
) -> None:
    run_id = run_with_output(db, 120)
    live(f"/runs/{run_id}")
    at_end = "(({scrollHeight, scrollTop, clientHeight}) => scrollHeight - scrollTop < clientHeight + 5)"
    at_end += "(document.querySelector('.log'))"
    shows(page)
    assert page.evaluate(at_end)
    say(db, run_id, 120, 30)
    expect(page.locator(".log")).to_contain_text("line 149")
    assert page.evaluate(at_end)
    page.evaluate("document.querySelector('.log').scrollTop = 100")
    say(db, run_id, 150, 30)
    expect(page.locator(".log")).to_contain_text("line 179")
    assert page.evaluate("document.querySelector('.log').scrollTop") == 100


@pytest.mark.long
def test_while_runs_are_picked_no_row_moves_and_new_runs_are_counted(
    live: Callable[[str], None], page: Any, db: psycopg.Connection
) -> None:
    db.execute(FUTURE, [50])
    live("/runs")
    shows(page)
    ids = page.evaluate("[...document.querySelectorAll('[data-hold] tr[id]')].map((one) => one.id)")
    for one in ids[-2:]:
        page.locator(f"#{one} input").check()
    page.mouse.move(0, 0)
    db.execute("UPDATE pgsched.runs SET priority = 1")
    db.execute(FUTURE, [12])
    expect(page.locator("#newer")).to_have_text("12 new runs: show")
    assert page.evaluate("[...document.querySelectorAll('[data-hold] tr[id]')].map((one) => one.id)") == ids
    expect(page.locator("[data-picked]").first).to_have_text("2")
    page.locator("#newer").click()
    expect(page.locator("#newer")).to_be_hidden()
    assert page.locator("[data-hold] tr[id]").count() == 50
    expect(page.locator("[data-picked]").first).to_have_text("2")
    page.get_by_role("button", name="Cancel picked").click()
    expect(page.locator("h1")).to_have_text("Cancel 2 runs?")
    for one in ids[-2:]:
        expect(page.locator(f"#{one}")).to_be_visible()


@pytest.mark.long
def test_a_list_that_is_pointed_at_does_not_move(
    live: Callable[[str], None], page: Any, db: psycopg.Connection
) -> None:
    db.execute(FUTURE, [5])
    live("/runs")
    shows(page)
    page.locator("[data-hold] tr[id]").first.hover()
    db.execute(FUTURE, [1])
    expect(page.locator("#newer")).to_have_text("1 new run: show")
    assert page.locator("[data-hold] tr[id]").count() == 5
    page.mouse.move(0, 0)
    expect(page.locator("[data-hold] tr[id]")).to_have_count(6)


@pytest.mark.long
def test_figures_that_cannot_be_updated_are_marked_as_not_live(
    live: Callable[[str], None], page: Any, db: psycopg.Connection, dsn: str
) -> None:
    live("/runs")
    shows(page)
    expect(page.locator("#stale")).to_be_hidden()
    with (
        psycopg.connect(make_conninfo(dsn, dbname="postgres"), autocommit=True) as beside,
        shut(beside, db.info.dbname, [db.info.backend_pid]),
    ):
        expect(page.locator("#stale")).to_contain_text("Not live: the figures below are of ")
        expect(page.locator("#stale")).to_contain_text("database")
        assert page.evaluate("getComputedStyle(document.getElementById('live')).opacity") == "0.55"
        box = page.locator("#stale").bounding_box()
        assert box is not None and box["x"] >= 0 and box["x"] + box["width"] <= 1280
    expect(page.locator("#stale")).to_be_hidden()
    expect(page.locator("#liveness")).to_have_text("live")


@pytest.mark.long
def test_a_refused_stream_is_opened_again(live: Callable[[str], None], page: Any) -> None:
    refused = []

    def refuse(route: Any) -> None:
        streams = "text/event-stream" in route.request.headers.get("accept", "")
        if streams and len(refused) < 2:
            refused.append(route.request.url)
            route.fulfill(status=502, body="bad gateway")
        else:
            route.continue_()

    page.route("**/runs", refuse)
    live("/runs")
    expect(page.locator("#liveness")).to_have_text("live")
    assert len(refused) == 2


def test_ages_are_counted_by_the_browser(live: Callable[[str], None], page: Any, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.pauses (what, name, paused_at) VALUES ('queue', 'mail', now() - interval '3 s')")
    live("/runs")
    shows(page)
    said = page.locator("#paused time").first
    first, events = said.text_content(), page.evaluate("window.shows")
    wait_until(lambda: said.text_content() != first, 10, "a second has passed")
    assert page.evaluate("window.shows") == events, "nothing was shown anew"


@pytest.mark.long
def test_the_seventh_window_does_not_hang(console: str, page: Any, db: psycopg.Connection) -> None:
    pages = [page]
    for _ in range(7):  # the first window opens the others, so that they share its process
        with page.expect_popup() as opening:
            page.evaluate("() => { window.open('about:blank') }")
        pages.append(opening.value)
    for one in pages:
        one.goto(f"{console}/runs", timeout=PATIENCE_MS)
        expect(one.locator("#liveness")).to_have_text("live")
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('fresh.task')")
    for one in (pages[0], pages[-1]):
        expect(one.locator("#live")).to_contain_text("fresh.task")


@pytest.mark.long
@pytest.mark.parametrize("path", ["/", "/jobs", "/runs", "/workers", "/doctor", "/queues"])
def test_a_pause_is_seen_on_every_page_as_soon_as_it_begins(
    live: Callable[[str], None], page: Any, db: psycopg.Connection, path: str
) -> None:
    live(path)
    shows(page)
    db.execute("INSERT INTO pgsched.pauses (what, name, reason, paused_by) VALUES ('all', '', 'fire', 'bob')")
    place = page.locator("#paused" if path != "/queues" else "#live")
    expect(place).to_contain_text("verything")
    expect(place).to_contain_text("by bob")
    expect(place).to_contain_text("fire")
