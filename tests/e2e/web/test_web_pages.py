"""The pages: each shows what is there, and does what its buttons say."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from starlette.requests import Request

from pgsched.web.pages.responses import View, event, look
from pgsched.web.pages.runs import index
from pgsched.web.security.guard import Visitor
from pgsched.web.security.secrets import begun
from tests.support.db.pruning import prune
from tests.support.waiting import wait_until
from tests.support.web.console import JOB, Browser, edited, one

SCRIPT = "<script>alert(1)</script>\"'&"


def test_an_empty_database_has_every_page(browser: Browser) -> None:
    for path in ("/", "/?range=24h", "/jobs", "/job/new", "/runs", "/queues", "/workers", "/doctor"):
        assert browser.get(path).status_code == 200, path


def test_what_others_wrote_is_text_on_every_page(browser: Browser, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule, description, queue) VALUES (%(x)s, %(x)s, '@daily',"
               " %(x)s, 'q')", {"x": SCRIPT})  # fmt: skip
    db.execute("UPDATE pgsched.jobs SET paused = true, paused_by = %(x)s, paused_reason = %(x)s", {"x": SCRIPT})
    run_id = one(
        db,
        "INSERT INTO pgsched.runs (task, args, tags, concurrency_key)"
        " VALUES (%s, jsonb_build_object(%s::text, 1), ARRAY[%s], 'k') RETURNING id",
        *[SCRIPT] * 3,
    )
    db.execute(
        "UPDATE pgsched.runs SET state = 'dead', finished_at = now(), error = %(x)s, reason = %(x)s", {"x": SCRIPT}
    )
    db.execute("INSERT INTO pgsched.attempts (run_id, token, attempt, outcome, finished_at, worker, error, traceback,"
               " log_tail) VALUES (%(id)s, gen_random_uuid(), 1, 'failed', now(), %(x)s, %(x)s, %(x)s, %(x)s)",
               {"id": run_id, "x": SCRIPT})  # fmt: skip
    db.execute("INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk) VALUES (%s, 1, 0, 'stdout', %s)",
               [run_id, SCRIPT])  # fmt: skip
    db.execute("INSERT INTO pgsched.pauses (what, name, reason) VALUES ('task', %(x)s, %(x)s)", {"x": SCRIPT})
    name = "%3Cscript%3Ealert(1)%3C%2Fscript%3E%22'%26"
    paths = ["/", "/jobs", f"/jobs/{name}", f"/jobs/{name}?at=%3Cscript%3Ealert(1)", f"/job/edit/{name}", "/runs",
             f"/runs/{run_id}", f"/runs/{run_id}/tree", "/queues", "/workers", "/doctor", f"/job/backfill/{name}",
             "/runs?error=%3Cscript%3Ealert(1)", "/preview?schedule=%3Cscript%3Ealert(1)", f"/jobs?after={name}",
    ]  # fmt: skip
    for path in paths:
        answer = browser.get(path)
        assert answer.status_code == 200, path
        assert "<script>alert" not in answer.text, path
        assert "style=" not in answer.text and "onclick" not in answer.text, path


def test_control_characters_are_shown_and_not_obeyed(browser: Browser, db: psycopg.Connection) -> None:
    run_id = one(db, "INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id")
    db.execute("INSERT INTO pgsched.run_logs (run_id, attempt, seq, stream, chunk) VALUES (%s, 1, 0, 'stdout', %s)",
               [run_id, "a\x1b[31mb\u202ec\n"])  # fmt: skip
    text = browser.get(f"/runs/{run_id}").text
    assert "a\\x1b[31mb\\u202ec" in text
    assert browser.get(f"/runs/{run_id}/log").text == "a\x1b[31mb\u202ec\n"


def test_a_job_is_made_from_the_form_and_its_fields_are_kept_when_it_is_refused(
    browser: Browser, db: psycopg.Connection
) -> None:
    form = {"name": "a/b c", "task": "reports.build", "kind": "task", "schedule": "0 99 * * *", "args": '{"x": 1}',
            "timezone": "Europe/Berlin", "tags": "eu, slow", "timeout": "90 seconds"}  # fmt: skip
    refused = browser.post("/job/new", form)
    assert refused.status_code == 422
    assert 'aria-describedby="problem-schedule"' in refused.text and 'value="0 99 * * *"' in refused.text
    made = browser.post("/job/new", form | {"schedule": "0 9 * * *"})
    assert made.status_code == 200 and "Job a/b c is made." in made.text
    row = db.execute("SELECT args, tags, timeout::text, timezone, max_attempts FROM pgsched.jobs").fetchone()
    assert row == ({"x": 1}, ["eu", "slow"], "00:01:30", "Europe/Berlin", 3)


@pytest.mark.parametrize("args", ["@/etc/passwd", "-", "@-", "{", "null"])
def test_arguments_are_json_and_never_a_file_of_this_machine(
    browser: Browser, db: psycopg.Connection, args: str
) -> None:
    db.execute(JOB, ["nightly"])
    answer = browser.post("/job/new", {"name": "x", "task": "t", "args": args})
    assert answer.status_code == 422 and "args: " in answer.text and "root:" not in answer.text
    assert browser.post("/job/run/nightly", {"args": args}).status_code == 422
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 0


def test_saving_a_job_unchanged_changes_nothing(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(JOB, ["nightly"])
    db.execute("UPDATE pgsched.jobs SET tags = '{a,b}', timeout = '90 s', args = '{\"a\": [1, 2.5]}',"
               " retry_codes = '{1,2}',"
               " starts_at = '2026-05-01 10:00+02', delete_after_run = false, backoff = 'linear'")  # fmt: skip
    before = db.execute("SELECT * FROM pgsched.jobs").fetchone()
    answer = browser.post("/job/edit/nightly", edited(browser, "/job/edit/nightly"))
    assert "Nothing was changed." in answer.text
    assert db.execute("SELECT * FROM pgsched.jobs").fetchone() == before


def test_only_the_changed_fields_are_set_and_not_over_somebody_elses(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(JOB, ["nightly"])
    mine = edited(browser, "/job/edit/nightly")
    assert "Changed: schedule." in browser.post("/job/edit/nightly", mine | {"schedule": "0 4 * * *"}).text
    conflict = browser.post("/job/edit/nightly", mine | {"schedule": "0 5 * * *"})
    assert conflict.status_code == 422 and "somebody else has changed" in conflict.text
    assert one(db, "SELECT schedule FROM pgsched.jobs") == "0 4 * * *"


def test_the_preview_tells_of_the_clocks(browser: Browser, db: psycopg.Connection) -> None:
    assert "At 02:30 every day" in browser.get("/preview?schedule=30+2+*+*+*&timezone=Europe/Berlin").text
    assert "is not a known IANA zone" in browser.get("/preview?schedule=@daily&timezone=Nowhere").text
    db.execute(JOB, ["nightly"])
    text = browser.get("/jobs/nightly").text
    assert "when the clocks go forward" in text and "when the clocks go back" in text
    assert "the wall time 02:30 does not exist" in text and "comes twice" in text


def test_a_job_is_paused_resumed_run_and_deleted(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(JOB, ["nightly"])
    assert "incident 7" in browser.post("/job/pause/nightly", {"reason": "incident 7"}).text
    assert one(db, "SELECT paused FROM pgsched.jobs")
    browser.post("/job/resume/nightly")
    assert not one(db, "SELECT paused FROM pgsched.jobs")
    assert browser.post("/job/run/nightly", {"args": '{"x": 1}'}).url.path.startswith("/runs/")
    assert one(db, "SELECT args FROM pgsched.runs") == {"x": 1}
    assert "Not deleted" in browser.post("/job/delete/nightly", {"name": "other"}).text
    browser.post("/job/delete/nightly", {"name": "nightly"})
    assert one(db, "SELECT count(*) FROM pgsched.jobs") == 0


def test_the_calendar_says_what_became_of_each_slot_and_why(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(JOB, ["nightly"])
    db.execute("""
        INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, started_at, finished_at, attempt, origin, reason)
        SELECT j.id, s.at::timestamptz, 't', s.state, s.at::timestamptz + s.late::interval,
            s.at::timestamptz + '1 hour',
            1, 'schedule', s.reason
        FROM pgsched.jobs j, (VALUES ('2026-05-01 00:30Z', 'succeeded', '1 s', NULL),
            ('2026-05-02 00:30Z', 'succeeded', '10 min', NULL), ('2026-05-03 00:30Z', 'skipped', NULL, 'overlap: busy'),
            ('2026-05-04 00:30Z', 'missed', NULL, 'nobody led')) s (at, state, late, reason)""")
    text = browser.get("/jobs/nightly?month=2026-05").text
    for day, what in ((1, "1 ran"), (2, "1 late"), (3, "1 skipped"), (4, "1 missed"), (5, "no slot")):
        assert f'aria-label="2026-05-0{day}: {what}"' in text
    day = browser.get("/jobs/nightly?day=2026-05-03").text
    assert "overlap: busy" in day and "explain" in day
    assert browser.get("/jobs/nightly?day=yesterday").status_code == 422
    assert browser.get("/jobs/nightly?month=0001-01").status_code == 422


def test_what_is_cut_on_a_page_says_that_it_goes_on(browser: Browser, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule, kind) VALUES ('a', %s, '@daily', 'shell')", ["x" * 90])
    db.execute(
        "INSERT INTO pgsched.runs (task, state, finished_at, error) VALUES ('t', 'dead', now(), %s)", ["y" * 300]
    )
    assert f"{'x' * 59}…" in browser.get("/jobs").text
    assert f"{'y' * 79}…" in browser.get("/").text
    assert f"{'y' * 159}…" in browser.get("/runs").text


def test_a_slot_is_explained(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(JOB, ["nightly"])
    assert "still to come" in browser.get("/jobs/nightly?at=2099-05-01T02:30").text
    assert "&#34;soon&#34; is not" in browser.get("/jobs/nightly?at=soon").text


def test_a_backfill_is_shown_dry_and_asked_for(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(JOB, ["nightly"])
    db.execute("UPDATE pgsched.jobs SET decided_until = now(), anchor_at = '2026-01-01'")
    dry = browser.get("/job/backfill/nightly?from=2026-05-01&to=2026-05-04&mode=missing")
    assert "3 slots" in dry.text and one(db, "SELECT count(*) FROM pgsched.backfills") == 0
    asked = browser.post("/job/backfill/nightly", {"from": "2026-05-01", "to": "2026-05-04", "mode": "missing"})
    assert asked.url.path.startswith("/backfills/") and "No live leader" in asked.text
    browser.post(f"{asked.url.path}/cancel")
    assert one(db, "SELECT cancelled_at IS NOT NULL FROM pgsched.backfills")
    assert "is not later" in browser.post("/job/backfill/nightly", {"from": "2026-05-01", "to": "2026-04-01"}).text


def test_queues_limits_and_pauses_are_edited(browser: Browser, db: psycopg.Connection) -> None:
    text = browser.post("/queues/save", {"name": "mail", "concurrency": "20", "rate": "100/m", "fair": "yes"}).text
    assert "20 at once" in text and 'value="100/m"' in text
    assert browser.post("/queues/save", {"name": "mail", "rate": "fast"}).status_code == 422
    browser.post("/queues/save", {"name": "mail"})
    assert db.execute("SELECT concurrency_limit, rate, fair FROM pgsched.queues").fetchone() == (None, None, False)
    assert "2 at once" in browser.post("/limits/save", {"name": "customer", "concurrency": "2"}).text
    browser.post("/limits/remove", {"name": "customer"})
    assert one(db, "SELECT count(*) FROM pgsched.limits") == 0
    paused = browser.post("/pauses/begin", {"what": "queue", "name": "mail", "reason": "incident 7", "lasts": "10m"})
    assert "incident 7" in paused.text and "incident 7" in browser.get("/queues").text
    browser.post("/pauses/end", {"what": "queue", "name": "mail"})
    assert "incident 7" not in browser.get("/queues").text
    assert browser.post("/pauses/begin", {"what": "queue"}).status_code == 422


def test_what_is_noted_of_the_depth_is_drawn(browser: Browser, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 7)")
    noted = browser.client.app.app.state.depths.kept  # type: ignore[attr-defined]
    wait_until(lambda: noted, what="the first note")
    assert "noted since this console began" in browser.get("/").text
    assert "no live worker, and 7 runs are queued" in browser.get("/").text


def test_a_database_that_is_gone_is_said_and_is_found_again(browser: Browser, db: psycopg.Connection) -> None:
    assert browser.get("/").status_code == 200
    db.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE application_name LIKE 'pgsched web%' AND datname = current_database()"
    )
    assert browser.get("/jobs").status_code == 200


def test_a_live_page_is_made_by_the_function_that_made_the_page(browser: Browser, db: psycopg.Connection) -> None:
    app: Any = browser.client.app
    visitor = Visitor("write", "", begun("write"), "x")
    scope = {"type": "http", "app": app.app, "method": "GET", "path": "/runs", "query_string": b"", "headers": [],
             "state": {"visitor": visitor, "form": {}}}  # fmt: skip
    before = look(Request(scope), index)
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('fresh.task')")
    after = look(Request(scope), index)
    assert (before[0], after[0]) == ("part", "part")
    assert "fresh.task" in after[1] and "fresh.task" not in before[1] and "<html" not in after[1]


def test_a_live_page_says_that_the_database_is_gone(browser: Browser, db: psycopg.Connection) -> None:
    app: Any = browser.client.app
    scope = {"type": "http", "app": app.app, "method": "GET", "path": "/x", "query_string": b"", "headers": []}

    def broken(request: Request, conn: psycopg.Connection) -> View:
        conn.execute("SELECT pg_terminate_backend(pg_backend_pid())")
        raise AssertionError

    name, text, _ = look(Request(scope), broken)
    assert name == "trouble" and "cannot reach the database" in text


def test_an_event_carries_every_line(browser: Browser) -> None:
    assert event("part", "a\nb\r\n\nc") == b"event: part\ndata: a\ndata: b\ndata: \ndata: c\n\n"
    assert event("part", "") == b"event: part\ndata:\n\n"


def test_the_doctors_findings_are_shown_once_he_has_looked(browser: Browser, db: psycopg.Connection) -> None:
    assert "Looking at it" in browser.get("/doctor").text
    wait_until(lambda: "takes writes" in browser.get("/doctor").text, 60, "the first look")
    assert "looked at" in browser.get("/doctor").text


def test_open_alerts_are_on_the_first_page_and_on_the_jobs(browser: Browser, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('watched', 't', '@every 1h')")
    db.execute(
        "INSERT INTO pgsched.alerts (job_id, job, kind, details) SELECT id, name, 'failures', '3 <b>failed</b>'"
        " FROM pgsched.jobs WHERE name = 'watched'"
    )
    for page in ("/", "/jobs/watched"):
        assert "3 &lt;b&gt;failed&lt;/b&gt;" in browser.get(page).text, page
    db.execute("UPDATE pgsched.alerts SET closed_at = clock_timestamp(), recovery = 'a run succeeded'")
    for page in ("/", "/jobs/watched"):
        assert "failed&lt;/b&gt;" not in browser.get(page).text, page


def test_charts_stay_when_the_rows_are_gone(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO pgsched.runs (task, state, available_at, started_at, finished_at) SELECT 't', 'dead', t, t, t"
        " FROM (SELECT clock_timestamp() - interval '2 hours' AS t) x, generate_series(1, 7)"
    )
    prune(db, 60.0)
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (0,)
    for span in ("6h", "24h", "7d", "30d"):
        assert "dead 7" in browser.get(f"/?range={span}").text, span
    assert "dead 7" not in browser.get("/?range=1h").text


def test_what_a_job_is_watched_for_and_keeps_is_edited_in_its_form(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, schedule, keep, expect_every)"
        " VALUES ('watched', 't', '@every 1h', '{\"dead\": \"90 days\"}', '2 hours')"
    )
    assert "dead 90 days" in browser.get("/jobs/watched").text
    form = browser.get("/job/edit/watched").text
    assert "7200 seconds" in form and 'value="dead=90d"' in form
    browser.post("/job/edit/watched", edited(browser, "/job/edit/watched") | {"keep": "dead=30d, any=36h"})
    assert one(db, "SELECT keep FROM pgsched.jobs") == {"dead": "2592000 seconds", "any": "129600 seconds"}
    assert 'value="dead=30d, any=36h"' in browser.get("/job/edit/watched").text
    browser.post("/job/edit/watched", edited(browser, "/job/edit/watched") | {"keep": ""})
    assert (
        one(db, "SELECT keep FROM pgsched.jobs") is None and "kept as everywhere" in browser.get("/jobs/watched").text
    )
