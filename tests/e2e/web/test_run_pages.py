"""The pages of runs: filters find runs, and buttons change one run or many."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched import App
from pgsched.web import app as web
from tests.support.web.console import JOB, Browser, one


def dead(db: psycopg.Connection, n: int, error: str) -> None:
    db.execute("INSERT INTO pgsched.runs (task, queue, state, attempt, started_at, finished_at, error)"
               " SELECT 't', 'mail', 'dead', 3, now(), now(), %s FROM generate_series(1, %s)", [error, n])  # fmt: skip


def test_runs_are_found_by_the_text_of_their_error(browser: Browser, db: psycopg.Connection) -> None:
    dead(db, 2, "ConnectionError: Refused by smtp")
    dead(db, 1, "ValueError: row 17")
    assert browser.get("/runs?error=refused").text.count('id="run-') == 2
    assert browser.get("/runs?state=dead&queue=mail&ended_since=1h").text.count('id="run-') == 3
    assert browser.get("/runs?state=undead").status_code == 422


def test_a_run_that_waits_for_others_shows_no_due_time_of_the_far_future(
    browser: Browser, db: psycopg.Connection
) -> None:
    parent = one(db, "SELECT pgsched.enqueue('extract')")
    waits = one(db, "SELECT pgsched.enqueue('load', after => ARRAY[%s])", parent)
    assert 'Slot or due"><time' in browser.get("/runs?state=waiting").text
    for page in ("/runs?state=waiting", f"/runs/{waits}", f"/api/v1/runs/{waits}", "/api/v1/runs"):
        assert not re.search("8999|in [0-9]{6,}d", browser.get(page).text), page


def test_pages_of_runs_follow_each_other(browser: Browser, db: psycopg.Connection) -> None:
    dead(db, 60, "x")
    first = browser.get("/runs?state=dead").text
    older = re.search(r'href="(/runs\?[^"]*before=\d+)"', first)
    assert older is not None and "state=dead" in older[1]
    assert browser.get(older[1].replace("&amp;", "&")).text.count('id="run-') == 10


def test_many_runs_are_retried_only_after_a_confirmation(browser: Browser, db: psycopg.Connection) -> None:
    dead(db, 3, "refused")
    dead(db, 1, "row 17")
    asked = browser.post("/runs/many", {"verb": "retry-all", "error": "refused"})
    assert "Retry 3 runs?" in asked.text and one(db, "SELECT count(*) FROM pgsched.runs WHERE state = 'queued'") == 0
    done = browser.post("/runs/many/do", {"verb": "retry-all", "error": "refused"})
    assert "Retried 3 of 3 runs." in done.text
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE state = 'queued'") == 3


def test_a_dead_item_is_found_by_its_kind_and_put_back_by_a_retry(
    browser: Browser, db: psycopg.Connection, dsn: str
) -> None:
    app = App("shop", dsn=dsn)
    app.enqueue("t")
    queue = app.item_queue("orders", max_attempts=1)
    queue.put({"order": 7})
    with pytest.raises(ValueError, match="no such order"), queue.get(0):
        raise ValueError("no such order")
    page = browser.get("/runs?kind=item").text
    assert page.count('id="run-') == 1 and "no such order" in page
    (run,) = browser.get("/api/v1/runs?kind=item").json()["runs"]
    assert (run["kind"], run["task"], run["state"]) == ("item", "orders", "dead")
    assert "no such order" in browser.get(f"/runs/{run['id']}").text
    browser.post(f"/runs/{run['id']}/retry")
    assert queue.get(0).value == {"order": 7}
    app.close()


def test_ticked_runs_are_cancelled_and_no_others(browser: Browser, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 4)")
    ids = [row[0] for row in db.execute("SELECT id FROM pgsched.runs ORDER BY id LIMIT 2").fetchall()]
    asked = browser.post("/runs/many", {"verb": "cancel", "id": ids})
    assert "Cancel 2 runs?" in asked.text
    assert "Cancelled 2 of 2" in browser.post("/runs/many/do", {"verb": "cancel", "id": ids, "reason": "no"}).text
    assert one(db, "SELECT array_agg(id) FROM pgsched.runs WHERE state = 'cancelled'") == ids
    for nothing in (
        {"verb": "cancel"},
        {"verb": "cancel-all"},
        {"verb": "burn", "id": ids},
        {"verb": "cancel", "id": "x"},
    ):
        assert browser.post("/runs/many", nothing).status_code == 422


def test_a_run_shows_its_attempts_and_can_be_retried_and_cancelled(browser: Browser, db: psycopg.Connection) -> None:
    dead(db, 1, "ValueError: row 17")
    run_id = one(db, "SELECT id FROM pgsched.runs")
    db.execute("INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, started_at, finished_at, worker, error,"
               " traceback) VALUES (%s, gen_random_uuid(), 3, 'failed', now() - interval '3 s', now(), 'web-1:7', 'e',"
               " 'File \"x.py\", line 17')", [run_id])  # fmt: skip
    text = browser.get(f"/runs/{run_id}").text
    assert "ValueError: row 17" in text and "line 17" in text and "web-1:7" in text
    assert "is queued again" in browser.post(f"/runs/{run_id}/retry").text
    assert "is cancelled" in browser.post(f"/runs/{run_id}/cancel", {"reason": "no"}).text
    assert browser.get("/runs/999999").status_code == 404


def test_dependencies_are_shown_on_both_sides(browser: Browser, db: psycopg.Connection) -> None:
    first, second = (
        one(db, "INSERT INTO pgsched.runs (task) VALUES (%s) RETURNING id", name) for name in ("load", "sum")
    )
    db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) VALUES (%s, %s)", [second, first])
    assert "sum" in browser.get(f"/runs/{first}").text
    assert "load" in browser.get(f"/runs/{second}").text
    assert "load" in browser.get(f"/runs/{second}/tree").text


def test_a_page_that_stops_reading_early_links_to_the_next_part(
    browser: Browser, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgsched.services.runs.pages.READ", 3)
    monkeypatch.setattr("pgsched.services.runs.pages.MAX_BAD_READ", 3)
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('rare')")
    dead(db, 9, "x")
    db.execute("UPDATE pgsched.runs SET finished_at = now() - id * interval '1 s', task = 'rare' WHERE id = 2")
    for start in ("/runs?task=rare", "/runs?state=dead&task=rare"):
        path, found, pages = start, 0, 0
        while path:
            text = browser.get(path).text
            found += text.count('id="run-')
            pages += 1
            further = re.search(r'href="(/runs\?[^"]*)">Look further', text)
            path = further[1].replace("&amp;", "&") if further else ""
        assert found == (2 if start == "/runs?task=rare" else 1) and pages > 1, start


def test_the_runs_of_a_job_are_paged(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(JOB, ["nightly"])
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, finished_at)"
               " SELECT j.id, '2026-05-01'::timestamptz + n * interval '1 h', 't', 'succeeded', now()"
               " FROM pgsched.jobs j, generate_series(1, 70) n")  # fmt: skip
    first = browser.get("/runs?job=nightly").text
    older = re.search(r'href="(/runs\?[^"]*before=\d+)">Older', first)
    assert first.count('id="run-') == 50 and older is not None
    assert browser.get(older[1].replace("&amp;", "&")).text.count('id="run-') == 20


async def ask(app: Any, path: str, begun: asyncio.Semaphore, may_go_on: asyncio.Event) -> tuple[int, bytes]:
    """Return the answer to a slow browser: it takes the rest of the body only after `may_go_on` is set."""
    got: dict[str, Any] = {"status": 0, "body": b""}

    async def receive() -> dict[str, Any]:
        await asyncio.get_running_loop().create_future()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        got["status"] = message.get("status", got["status"])
        got["body"] += message.get("body", b"")
        if got["body"]:
            begun.release()
            await may_go_on.wait()

    await app(
        {"type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": path, "query_string": b"",
         "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("localhost", 80)},
        receive, send,
    )  # fmt: skip
    return got["status"], got["body"]


@pytest.mark.long
def test_slow_readers_of_an_output_do_not_block_other_requests(
    console: Callable[..., Browser], db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web, "TIMEOUT_S", 2.0)
    run_id = one(db, "INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id")
    db.execute("INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk)"
               " SELECT %s, 1, n, 'stdout', n || E'\\n' FROM generate_series(1, 1200) n", [run_id])  # fmt: skip
    app = console().client.app

    async def main() -> list[tuple[int, bytes]]:
        slow, quick, begun = asyncio.Event(), asyncio.Event(), asyncio.Semaphore(0)
        quick.set()
        readers = [asyncio.create_task(ask(app, f"/runs/{run_id}/log", begun, slow)) for _ in range(web.CONNECTIONS)]
        for _ in readers:
            await begun.acquire()
        status, _ = await ask(app, "/healthz", begun, quick)
        assert status == 200
        slow.set()
        return await asyncio.gather(*readers)

    whole = b"".join(b"%d\n" % n for n in range(1, 1201))
    assert asyncio.run(main()) == [(200, whole)] * web.CONNECTIONS


def test_a_wrong_filter_stays_in_the_form_and_gets_suggestions(browser: Browser, db: psycopg.Connection) -> None:
    for name in ("Orders-import", "orders-export", "mail"):
        db.execute(JOB, [name])
    answer = browser.get("/runs?job=order&state=dead&queue=heavy")
    assert answer.status_code == 404 and 'name="job" value="order"' in answer.text and 'value="heavy"' in answer.text
    assert "Did you mean" in answer.text and "job=Orders-import" in answer.text and "job=mail" not in answer.text
    wrong = browser.get("/runs?job=mail&since=someday")
    assert wrong.status_code == 422 and 'value="someday"' in wrong.text and 'name="job" value="mail"' in wrong.text


def test_a_filter_that_finds_nothing_gets_suggestions(browser: Browser, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task, queue, tags) VALUES ('shop.send', 'mail', '{customer:7}')")
    found = browser.get("/runs?queue=mial&tag=custmer:7&state=dead")
    assert found.status_code == 200
    assert "Did you mean the queue" in found.text and "queue=mail" in found.text
    assert "Did you mean the tag" in found.text and "tag=customer%3A7" in found.text
    assert "Did you mean" in browser.get("/runs?task=send").text
    assert "Did you mean" not in browser.get("/runs?queue=mail&state=dead").text


def test_an_unroutable_run_gets_a_suggestion_for_its_task(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO pgsched.workers (name, hostname, pid, version, concurrency, kinds, tasks, lease)"
        " VALUES ('w', 'h', 1, '0', 1, '{task}', '{app.touch}', '1 minute')"
    )
    run_id = one(db, "INSERT INTO pgsched.runs (task) VALUES ('touch') RETURNING id")
    text = browser.get(f"/runs/{run_id}").text
    assert "No live worker offers task touch on queue default; did you mean app.touch? It waits until one does." in text


def test_reloading_a_page_after_a_button_repeats_no_change(browser: Browser, db: psycopg.Connection) -> None:
    dead(db, 2, "x")
    ids = [row[0] for row in db.execute("SELECT id FROM pgsched.runs").fetchall()]
    for path, form, came in [
        ("/runs/many", {"verb": "retry", "id": ids}, "/runs"),
        ("/runs/many", {"verb": "retry-all", "state": "dead"}, "/runs?state=dead"),
        ("/runs/many", {"verb": "retry"}, "/runs"),
        (f"/runs/{ids[0]}/retry", {}, f"/runs/{ids[0]}"),
        (f"/runs/{ids[0]}/retry", {}, f"/runs/{ids[0]}"),  # the run is queued already
        ("/runs/4711/cancel", {}, "/runs?state=queued"),
        ("/job/pause/nobody", {}, "/jobs"),
        ("/queues/save", {"name": "q", "concurrency": "many"}, "/queues"),
    ]:
        answer = browser.post(path, form, referer=f"http://localhost{came}")
        assert (answer.request.method, len(answer.history)) == ("GET", 1), path
        assert answer.history[0].status_code == 303
        reloaded = browser.get(str(answer.request.url))
        assert "That did not work" not in reloaded.text or path == "/runs/many"


def test_a_refused_button_shows_the_reason_on_its_own_page(browser: Browser) -> None:
    answer = browser.post("/queues/save", {"name": "q", "concurrency": "many"}, referer="http://localhost/queues")
    assert answer.status_code == 200 and answer.request.url.path == "/queues"
    assert "That did not work: concurrency" in answer.text
    elsewhere = browser.post("/queues/save", {"name": "q", "concurrency": "many"}, referer="http://evil.example/queues")
    assert elsewhere.status_code == 422 and elsewhere.request.method == "POST"


def test_only_possible_actions_are_offered(browser: Browser, db: psycopg.Connection) -> None:
    dead(db, 2, "x")
    assert "Retry all…" in browser.get("/runs?state=dead").text
    assert "Cancel all…" not in browser.get("/runs?state=dead").text
    assert "Retry all…" not in browser.get("/runs?state=queued").text
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    ids = [row[0] for row in db.execute("SELECT id FROM pgsched.runs").fetchall()]
    asked = browser.post("/runs/many", {"verb": "retry", "id": ids}).text
    assert "Retry 2 runs?" in asked and "1 of those that were ticked cannot be retried: it is queued." in asked


def test_a_run_names_the_pause_that_holds_it(browser: Browser, db: psycopg.Connection) -> None:
    run_id = one(db, "INSERT INTO pgsched.runs (task, queue) VALUES ('t', 'etl') RETURNING id")
    assert 'id="held"' not in browser.get(f"/runs/{run_id}").text
    db.execute("INSERT INTO pgsched.pauses (what, name, reason, paused_by) VALUES ('queue', 'etl', 'migration', 'bob')")
    text = browser.get(f"/runs/{run_id}").text
    assert "It waits: queue etl is paused by bob: migration." in text
