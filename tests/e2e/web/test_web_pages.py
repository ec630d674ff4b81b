"""The pages of the console show what is in the database, and their buttons do what they say."""

from __future__ import annotations

import html
import re
from urllib.parse import urljoin

import psycopg
import pytest

from tests.support.waiting import wait_until
from tests.support.web.console import JOB, Browser, edited, form_of, one

pytestmark = pytest.mark.packages

SCRIPT = "<script>alert(1)</script>\"'&"


def test_every_page_is_shown_for_an_empty_database(browser: Browser) -> None:
    for path in ("/", "/?range=24h", "/jobs", "/job/new", "/runs", "/queues", "/workers", "/doctor"):
        assert browser.get(path).status_code == 200, path


def test_markup_in_rows_is_shown_as_text_on_every_page(browser: Browser, db: psycopg.Connection) -> None:
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


def test_a_form_makes_a_job_and_keeps_its_fields_when_it_is_refused(browser: Browser, db: psycopg.Connection) -> None:
    form = {"name": "a/b c", "task": "reports.build", "kind": "task", "schedule": "0 99 * * *", "args": '{"x": 1}',
            "timezone": "Europe/Berlin", "tags": "eu, slow", "timeout": "90 seconds"}  # fmt: skip
    refused = browser.post("/job/new", form)
    assert refused.status_code == 422
    assert 'aria-describedby="problem-schedule"' in refused.text and 'value="0 99 * * *"' in refused.text
    made = browser.post("/job/new", form | {"schedule": "0 9 * * *"})
    assert made.status_code == 200 and "Job a/b c is made." in made.text
    row = db.execute("SELECT args, tags, timeout::text, timezone, max_attempts FROM pgsched.jobs").fetchone()
    assert row == ({"x": 1}, ["eu", "slow"], "00:01:30", "Europe/Berlin", None), "the task says how often"


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


def test_an_edit_sets_only_changed_fields_and_overwrites_no_other_edit(
    browser: Browser, db: psycopg.Connection
) -> None:
    db.execute(JOB, ["nightly"])
    mine = edited(browser, "/job/edit/nightly")
    assert "Changed: schedule." in browser.post("/job/edit/nightly", mine | {"schedule": "0 4 * * *"}).text
    conflict = browser.post("/job/edit/nightly", mine | {"schedule": "0 5 * * *"})
    assert conflict.status_code == 422 and "schedule: changed by others meanwhile" in conflict.text
    assert "theirs: 0 4 * * *" in conflict.text
    assert one(db, "SELECT schedule FROM pgsched.jobs") == "0 4 * * *"


def test_a_conflict_is_about_the_fields_that_both_changed(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(JOB, ["nightly"])
    mine = edited(browser, "/job/edit/nightly")
    db.execute("UPDATE pgsched.jobs SET priority = 2, description = 'theirs', paused = true")
    answer = browser.post("/job/edit/nightly", mine | {"task": "other"})
    assert "Changed: task." in answer.text
    assert db.execute("SELECT task, priority, description, paused FROM pgsched.jobs").fetchone() == (
        "other", 2, "theirs", True,
    )  # fmt: skip
    conflict = browser.post("/job/edit/nightly", mine | {"task": "other", "description": "mine"})
    assert "description: changed by others meanwhile" in conflict.text and "theirs: theirs" in conflict.text
    again = form_of(conflict.text)
    assert again["description"] == "mine" and again["priority"] == "2"
    assert "Changed: description." in browser.post("/job/edit/nightly", again).text
    assert one(db, "SELECT description FROM pgsched.jobs") == "mine"


def test_a_form_is_kept_when_its_job_was_deleted_meanwhile(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(JOB, ["nightly"])
    mine = edited(browser, "/job/edit/nightly")
    db.execute("DELETE FROM pgsched.jobs")
    answer = browser.post("/job/edit/nightly", mine | {"description": "a long text"})
    assert answer.status_code == 422 and "deleted meanwhile" in answer.text and "a long text" in answer.text
    assert "Job nightly is made." in browser.post("/job/new", form_of(answer.text)).text
    assert one(db, "SELECT description FROM pgsched.jobs") == "a long text"


def test_the_preview_shows_changes_of_the_clocks(browser: Browser, db: psycopg.Connection) -> None:
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


def test_a_job_enters_mode_shadow_and_leaves_it(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(JOB, ["nightly"])
    assert "Leave mode shadow" not in browser.get("/jobs/nightly").text
    entered = browser.post("/job/mode/nightly", {"mode": "shadow"}).text
    assert "Its slots are recorded, and nothing runs." in entered
    assert "Leave mode shadow" in entered and "will be skipped: shadow" in entered
    assert '<span class="state shadow">shadow</span>' in browser.get("/jobs?state=shadow").text
    assert "The next slot runs." in browser.post("/job/mode/nightly", {"mode": "run"}).text
    assert one(db, "SELECT mode FROM pgsched.jobs") == "run"


@pytest.mark.few(3)
@pytest.mark.parametrize("name", [".", "..", "~.", "~~..", "a/../b", "~", "..."])
def test_a_job_has_its_pages_whatever_its_name_is(name: str, browser: Browser, db: psycopg.Connection) -> None:
    """A browser removes the segments `.` and `..` from a path, as urljoin does."""
    for one_name in (".", "..", "~.", "~~..", "a/../b", "~", "..."):
        db.execute(JOB, [one_name])
    listed = browser.get("/jobs").text
    hrefs = dict(re.findall(r'<a href="(/jobs/[^"]*)">([^<]*)</a>', listed))
    (href,) = [href for href, text in hrefs.items() if html.unescape(text) == name]
    shown = browser.get(urljoin("http://localhost/jobs", html.unescape(href)))
    assert (shown.status_code, f"<h1>{name}" in shown.text) == (200, True)
    for verb in ("edit", "backfill", "pause", "run", "delete", "exclude"):
        (place, *_) = re.findall(rf'(?:href|action)="(/job/{verb}/[^"?]*)', shown.text)
        place = urljoin("http://localhost/jobs/x", place)
        if verb in ("edit", "backfill"):
            assert browser.get(place).status_code == 200, verb
    for verb, change in (("pause", "paused"), ("resume", "NOT paused")):
        answer = browser.post(urljoin("http://localhost/", f"/job/{verb}/{href.removeprefix('/jobs/')}"))
        assert (answer.status_code, answer.request.method) == (200, "GET")
        assert one(db, f"SELECT name FROM pgsched.jobs WHERE {change} ORDER BY updated_at DESC LIMIT 1") == name


def test_the_calendar_shows_the_state_and_the_reason_of_each_slot(browser: Browser, db: psycopg.Connection) -> None:
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


def test_shortened_texts_end_with_an_ellipsis(browser: Browser, db: psycopg.Connection) -> None:
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


def test_a_backfill_can_be_tried_without_effect_started_and_cancelled(browser: Browser, db: psycopg.Connection) -> None:
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


def test_the_recorded_queue_depth_is_drawn(browser: Browser, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task) SELECT 't' FROM generate_series(1, 7)")
    noted = browser.client.app.app.state.depths.records  # type: ignore[attr-defined]
    wait_until(lambda: noted, what="the first note")
    assert "noted since this console began" in browser.get("/").text
    assert "no live worker, and 7 runs are queued" in browser.get("/").text


def test_a_lost_connection_is_replaced(browser: Browser, db: psycopg.Connection) -> None:
    assert browser.get("/").status_code == 200
    db.execute(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"
        " WHERE application_name LIKE 'pgsched web%' AND datname = current_database()"
    )
    assert browser.get("/jobs").status_code == 200


def test_the_list_of_jobs_with_a_trailing_slash_is_redirected(browser: Browser) -> None:
    answer = browser.get("/jobs/")
    assert (answer.status_code, answer.headers["location"]) == (308, "/jobs")
