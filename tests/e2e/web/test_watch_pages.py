"""The pages of alerts, the audit, retention, excluded dates, calendars, graphs, and jobs that wait for jobs."""

from __future__ import annotations

import re

import psycopg
import pytest

from pgsched.web.pages.retention import keep_of, keep_text
from tests.support.db.pruning import count
from tests.support.web.console import Browser, edited, one

DAILY = "INSERT INTO pgsched.jobs (name, task, schedule, timezone) VALUES (%s, 't', '30 2 * * *', 'Europe/Berlin')"


def test_alerts_are_listed_with_their_deliveries_and_their_end(browser: Browser, db: psycopg.Connection) -> None:
    assert "None is open" in browser.get("/alerts").text
    db.execute(DAILY, ["nightly"])
    alert = one(
        db,
        "INSERT INTO pgsched.alerts (job_id, job, kind, details) SELECT id, name, 'silence', 'no <i>success</i>'"
        " FROM pgsched.jobs RETURNING id",
    )
    db.execute("INSERT INTO pgsched.alert_deliveries (alert_id, event, sink, attempts, error, next_at)"
               " VALUES (%s, 'opened', 'webhook https://x', 2, '<b>refused</b>', now())", [alert])  # fmt: skip
    text = browser.get("/alerts").text
    assert "1 open" in text and "no &lt;i&gt;success&lt;/i&gt;" in text
    assert "webhook not delivered" in text and 'title="&lt;b&gt;refused&lt;/b&gt;"' in text
    overview = browser.get("/").text
    assert "Needs attention" in overview and "1 open alert<" in overview
    db.execute("UPDATE pgsched.alerts SET closed_at = clock_timestamp(), recovery = 'a run succeeded'")
    text = browser.get("/alerts").text
    assert "None is open" in text and "a run succeeded" in text


def test_the_audit_is_filtered_and_paged(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(DAILY, ["nightly"])
    db.execute("UPDATE pgsched.jobs SET description = '<script>alert(1)</script>'")
    for n in range(60):
        db.execute("UPDATE pgsched.jobs SET priority = %s", [n % 10])
    first = browser.get("/audit").text
    older = re.search(r'href="(/audit\?[^"]*before=\d+)">Older', first)
    assert first.count('id="change-') == 50 and "priority: 8 -&gt; 9" in first and older is not None
    second = browser.get(older[1].replace("&amp;", "&")).text
    assert 'href="/jobs/nightly"' in second and "created" in second and "<script>alert" not in second
    assert browser.get("/audit?what=queue").text.count('id="change-') == 0
    assert browser.get("/audit?what=job&name=nightly&since=1h").text.count('id="change-') == 50
    assert browser.get("/audit?what=jobs").status_code == 422
    assert browser.get("/audit?since=soon").status_code == 422


def test_retention_is_shown_and_set(browser: Browser, db: psycopg.Connection) -> None:
    fields = {"keep": "any=7d", "keep_minutes": "3d", "keep_hours": "400d", "keep_audit": "400d"}
    assert "Nothing was changed" in browser.post("/retention/save", fields).text
    changed = browser.post(
        "/retention/save", fields | {"keep": "dead=90d, any=2d", "keep_hours": "800d", "archive": "yes"}
    )
    assert "dead 90 days, any other 2 days" in changed.text and "archived_runs" in changed.text
    assert one(db, "SELECT keep_hours = '800 days' AND archive FROM pgsched.retention")
    assert browser.post("/retention/save", fields | {"keep": "dead=soon"}).status_code == 422
    assert browser.post("/retention/save", fields | {"keep": ""}).status_code == 422
    saved = browser.post("/queues/save", {"name": "mail", "keep": "any=36h"})
    assert "keeps all 36 hours" in saved.text and 'value="any=36h"' in saved.text
    browser.post("/queues/save", {"name": "mail"})
    assert one(db, "SELECT keep FROM pgsched.queues") is None


@pytest.mark.parametrize(
    ("keep", "text"),
    [
        ({"any": "7 days", "dead": "90 days"}, "dead=90d, any=7d"),
        ({"any": "604800 seconds"}, "any=7d"),
        ({"any": "1 mon"}, '{"any": "1 mon"}'),
        (None, ""),
    ],
)
def test_retention_of_runs_is_written_in_one_notation(keep: dict[str, str] | None, text: str) -> None:
    assert keep_text(keep) == text
    assert keep_text(None if not text.startswith("d") else keep_of(text)) == (text if text.startswith("d") else "")
    assert keep_of('{"any": "1 mon"}') == '{"any": "1 mon"}', "the database reads it"


def test_dates_are_excluded_and_allowed_again(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(DAILY, ["a/b"])
    assert "None: it runs on every day" in browser.get("/jobs/a%2Fb").text
    day = one(db, "SELECT (current_date + 2)::text")
    text = browser.post("/job/exclude/a%2Fb", {"from": day, "reason": "stock<b>taking"}).text
    assert f"excluded date {day}: stock&lt;b&gt;taking" in text and "will be skipped" in text
    preview = browser.get("/preview?schedule=30+2+*+*+*&timezone=Europe/Berlin&job=a/b").text
    assert "will be skipped" in preview, "the live preview of the form knows them as well"
    assert "will be skipped" not in browser.get("/preview?schedule=30+2+*+*+*&timezone=Europe/Berlin").text
    assert browser.post("/job/exclude/a%2Fb", {"from": "2026-02-30"}).status_code == 422
    assert browser.post("/job/exclude/a%2Fb", {"from": "2026-02-03", "to": "2026-02-01"}).status_code == 422
    browser.post("/job/allow/a%2Fb", {"from": day, "to": day})
    assert one(db, "SELECT count(*) FROM pgsched.job_calendars") == 0


def test_a_job_shows_its_calendar_and_where_slots_move(browser: Browser, db: psycopg.Connection) -> None:
    day = one(db, "SELECT (current_date + 2)::text")
    db.execute("INSERT INTO pgsched.calendars (name) VALUES ('off<i>ice')")
    db.execute(
        "INSERT INTO pgsched.calendar_times (calendar, from_date, reason) VALUES ('off<i>ice', %s, 'in<i>v')", [day]
    )
    db.execute("INSERT INTO pgsched.calendar_times (calendar, weekdays) VALUES ('off<i>ice', '{0}')")
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule, calendar, on_excluded)"
               " VALUES ('nightly', 't', '0 2 * * *', 'off<i>ice', 'next_business_day')")  # fmt: skip
    text = browser.get("/jobs/nightly").text
    assert "off&lt;i&gt;ice" in text and "<i>" not in text.partition('id="calendar"')[2].partition("</ul>")[0]
    assert f"<li>{day} (in&lt;i&gt;v)</li>" in text and "<li>Sun</li>" in text
    assert f"excluded by calendar off&lt;i&gt;ice: {day}" in browser.get(f"/jobs/nightly?month={day[:7]}").text
    asked = "/preview?schedule=0+2+*+*+*&calendar=off%3Ci%3Eice&on_excluded={}"
    assert day in browser.get("/preview?schedule=0+2+*+*+*").text
    assert f"{day} 02:00:00" not in browser.get(asked.format("next_business_day")).text
    assert "will be skipped" in browser.get(asked.format("skip")).text
    assert browser.get(asked.format("nonsense")).status_code == 200


def test_the_preview_respects_starts_at_and_ends_at(browser: Browser) -> None:
    asked = "/preview?schedule=0+0+*+*+*&starts_at=2031-05-01T00:00Z&ends_at=2031-05-03T12:00Z"
    text = browser.get(asked).text
    assert text.count("<li") == 3 and "2031-05-01" in text and "2031-05-03" in text
    assert browser.get("/preview?schedule=0+0+*+*+*&starts_at=203").status_code == 200, "it is being typed"


def test_jobs_that_wait_for_jobs_are_named_on_both_sides_and_in_the_form(
    browser: Browser, db: psycopg.Connection
) -> None:
    for name in ("load, then check", "report"):
        db.execute(DAILY, [name])
    form = edited(browser, "/job/edit/report")
    assert "after_jobs: there is no job named" in browser.post("/job/edit/report", form | {"after_jobs": "load"}).text
    assert (
        "Changed: after_jobs." in browser.post("/job/edit/report", form | {"after_jobs": "load, then check\r\n"}).text
    )
    assert one(db, "SELECT j.after_jobs = ARRAY[o.id] FROM pgsched.jobs j, pgsched.jobs o"
                   " WHERE j.name = 'report' AND o.name LIKE 'load%%'")  # fmt: skip
    assert ">load, then check</a> for the same slot" in browser.get("/jobs/report").text
    db.execute("UPDATE pgsched.jobs SET after_match = 'latest' WHERE name = 'report'")
    assert ">load, then check</a> for the newest slot" in browser.get("/jobs/report").text
    assert "<dt>Before</dt>" in browser.get("/jobs/load%2C%20then%20check").text
    again = edited(browser, "/job/edit/report")
    assert again["after_jobs"] == "load, then check"
    assert "Nothing was changed." in browser.post("/job/edit/report", again).text
    browser.post("/job/edit/report", again | {"after_jobs": ""})
    assert one(db, "SELECT after_jobs FROM pgsched.jobs WHERE name = 'report'") is None


def test_the_durations_of_a_job_stay_after_its_runs_are_deleted(browser: Browser, db: psycopg.Connection) -> None:
    db.execute(DAILY, ["nightly"])
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, origin, attempt, available_at, started_at,"
        " finished_at)"
        " SELECT id, t, 't', 'succeeded', 'schedule', 1, t, t, t + interval '100 s'"
        " FROM pgsched.jobs, (SELECT clock_timestamp() - interval '2 days' AS t) x"
    )
    count(db)
    db.execute("DELETE FROM pgsched.runs")
    assert "Nothing ran yet." in browser.get("/jobs/nightly").text
    for span in ("7d", "30d", "1y"):
        text = browser.get(f"/jobs/nightly?range={span}").text
        assert "half took at most 1m" in text and "executed 1" in text, span
    assert "Nothing ran yet." in browser.get("/jobs/nightly?range=9y").text


def test_the_graph_leads_to_its_runs(browser: Browser, db: psycopg.Connection) -> None:
    first = one(db, "INSERT INTO pgsched.runs (task) VALUES ('lo<b>ad') RETURNING id")
    second = one(db, "INSERT INTO pgsched.runs (task) VALUES ('sum') RETURNING id")
    db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) VALUES (%s, %s)", [second, first])
    text = browser.get(f"/runs/{second}/tree").text
    assert f'href="/runs/{first}"' in text and f'href="/runs/{second}" aria-current' in text
    assert "lo&lt;b&gt;ad" in text and '<span class="state queued">' in text


def test_the_calendar_shows_late_runs_once_excluded_dates_and_coming_slots(
    browser: Browser, db: psycopg.Connection
) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule, timezone)"
               " VALUES ('chatham', 't', '0 12 * * *', 'Pacific/Chatham')")  # fmt: skip
    db.execute(
        "INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, started_at, finished_at, attempt, origin,"
        " covers_count, covers_from, covers_until) SELECT j.id, s.at, 't', s.state, s.at + '1 h', s.at + '2 h', 1,"
        " 'schedule', s.n, s.at - '1 day'::interval, s.at FROM pgsched.jobs j, (VALUES"
        " ('2026-05-02 12:00 Pacific/Chatham'::timestamptz, 'succeeded', 47),"
        " ('2026-05-03 12:00 Pacific/Chatham', 'cancelled', NULL),"
        " ('2026-05-04 12:00 Pacific/Chatham', 'skipped', 5)) s (at, state, n)"
    )
    text = browser.get("/jobs/chatham?month=2026-05").text
    for day, what in ((2, ("1 late", "46 skipped")), (3, ("1 cancelled",)), (4, ("5 skipped",))):
        label = re.search(f'aria-label="2026-05-0{day}: ([^"]*)"', text)
        assert label is not None and sorted(label[1].split(", ")) == sorted(what)
    day = browser.get("/jobs/chatham?day=2026-05-03").text
    assert "Slot (Pacific/Chatham)" in day and "2026-05-03 12:00:00</time>" in day
    db.execute("INSERT INTO pgsched.job_calendars (job_id, from_date, until_date, reason)"
               " SELECT id, '2026-05-10', '2026-05-11', 'stocktaking' FROM pgsched.jobs")  # fmt: skip
    text = browser.get("/jobs/chatham?month=2026-05").text
    assert text.count("excluded: stocktaking") == 4 and "no slot, excluded: stocktaking" in text
    following = one(db, "SELECT to_char((now() AT TIME ZONE 'Pacific/Chatham')::date + 3, 'YYYY-MM-DD')")
    assert f'aria-label="{following}: 1 to come"' in browser.get(f"/jobs/chatham?month={following[:7]}").text


def test_the_audit_names_jobs_and_links_only_those_that_are_there(browser: Browser, db: psycopg.Connection) -> None:
    for name in ("load", "report"):
        db.execute(DAILY, [name])
    db.execute("UPDATE pgsched.jobs SET after_jobs = ARRAY[(SELECT id FROM pgsched.jobs WHERE name = 'load')]"
               " WHERE name = 'report'")  # fmt: skip
    assert "[&#34;load&#34;]" in browser.get("/audit?name=report").text
    db.execute("DELETE FROM pgsched.jobs WHERE name = 'report'")
    assert 'href="/jobs/report"' not in browser.get("/audit?name=report").text
    assert 'href="/jobs/load"' in browser.get("/audit?name=load").text
