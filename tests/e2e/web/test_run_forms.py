"""A task, or a job with other arguments, is run by a form with the task's arguments."""

from __future__ import annotations

import html
import re
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.web.console import Browser, one

SCHEMA = {
    "type": "object",
    "properties": {
        "user": {"type": "integer"},
        "color": {"enum": ["red", "blue"]},
        "lines": {"type": "array", "items": {"type": "integer"}},
        "note": {"type": "string", "default": "<b>hi</b>"},
    },
    "required": ["user"],
    "additionalProperties": False,
}


@pytest.fixture
def welcome(db: psycopg.Connection) -> str:
    """A task with a schema, and a job of it."""
    db.execute(
        "INSERT INTO pgsched.tasks (app, task, release, options, schema, owner)"
        " VALUES ('shop', 'welcome', '1', '{}', %s, 'me')",
        [Jsonb(SCHEMA)],
    )
    db.execute(
        "INSERT INTO pgsched.jobs (name, task, schedule, args) VALUES ('a/b', 'welcome', '@daily', '{\"user\": 3}')"
    )
    return "welcome"


def labels(page: Any) -> set[str]:
    return set(re.findall(r'name="(arg\.[^"]+|args)"', page.text))


def test_a_task_is_chosen_and_run_by_its_fields(browser: Browser, db: psycopg.Connection, welcome: str) -> None:
    assert f'<option value="{welcome}">' in browser.get("/runs/new").text
    page = browser.get(f"/runs/new?task={welcome}")
    assert labels(page) == {"arg.user", "arg.color", "arg.lines", "arg.note"}
    assert "default: &#34;&lt;b&gt;hi" in page.text
    form = {"task": welcome, "arg.user": "7", "arg.color": '"red"', "arg.lines": "", "queue": "mail", "delay": "1h"}
    answer = browser.post("/runs/new", form)
    assert answer.status_code == 200 and "was made" in answer.text
    row = db.execute("SELECT task, args, queue, state FROM pgsched.runs").fetchone()
    assert row == ("welcome", {"user": 7, "color": "red"}, "mail", "scheduled")


@pytest.mark.parametrize(
    ("field", "text", "why"),
    [
        ("arg.user", "x", "not a whole number"),
        ("arg.color", '"green"', "not one of"),
        ("arg.lines", '[1, "x"]', "lines[1]: expected integer, got string"),
        ("queue", "x" * 300, "queue"),
        ("delay", "soon", "not a time"),
    ],
)
def test_a_misfit_is_shown_beside_its_field_and_what_was_typed_stays(
    browser: Browser, db: psycopg.Connection, welcome: str, field: str, text: str, why: str
) -> None:
    form = {"task": welcome, "arg.user": "7", "arg.note": "<kept>"} | {field: text}
    answer = browser.post("/runs/new", form)
    assert answer.status_code == 422
    (label,) = [one for one in answer.text.split("<label") if f'name="{field}"' in one]
    assert 'class="problem"' in label and why in html.unescape(label)
    assert "&lt;kept&gt;" in answer.text
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 0


def test_a_task_without_a_schema_takes_json(browser: Browser, db: psycopg.Connection) -> None:
    page = browser.get("/runs/new?task=unknown.task")
    assert labels(page) == {"args"} and "no live worker offers" in page.text
    assert browser.post("/runs/new", {"task": "unknown.task", "args": "[1", "as": "json"}).status_code == 422
    assert browser.post("/runs/new", {"task": "unknown.task", "args": "[1]"}).status_code == 200
    assert one(db, "SELECT args FROM pgsched.runs") == [1]


def test_a_task_with_a_schema_takes_json_as_well(browser: Browser, db: psycopg.Connection, welcome: str) -> None:
    assert labels(browser.get(f"/runs/new?task={welcome}&as=json")) == {"args"}
    form = {"task": welcome, "as": "json", "args": '{"user": "x"}'}
    answer = browser.post("/runs/new", form)
    assert answer.status_code == 422 and "user: expected integer" in html.unescape(answer.text)
    assert browser.post("/runs/new", form | {"args": '{"user": 1}'}).status_code == 200


def test_a_job_is_run_with_other_arguments(browser: Browser, db: psycopg.Connection, welcome: str) -> None:
    page = browser.get("/job/run/a%2Fb")
    assert labels(page) == {"arg.user", "arg.color", "arg.lines", "arg.note"}
    assert 'name="arg.user" value="3"' in page.text
    assert browser.post("/job/run/a%2Fb", {"arg.user": "x"}).status_code == 422
    assert browser.post("/job/run/a%2Fb", {"arg.user": "9", "overlap": "allow"}).status_code == 200
    assert one(db, "SELECT args FROM pgsched.runs") == {"user": 9}
    assert browser.post("/job/run/a%2Fb").status_code == 200  # the button
    assert one(db, "SELECT args FROM pgsched.runs ORDER BY id DESC LIMIT 1") == {"user": 3}


def test_a_text_of_several_lines_has_a_field_that_keeps_them(
    browser: Browser, db: psycopg.Connection, welcome: str
) -> None:
    db.execute("UPDATE pgsched.jobs SET args = %s WHERE name = 'a/b'", [Jsonb({"user": 3, "note": "a\nb"})])
    assert re.search(r'<textarea name="arg.note"[^>]*>a\nb</textarea>', browser.get("/job/run/a%2Fb").text)


def test_arguments_that_no_field_can_show_are_json(browser: Browser, db: psycopg.Connection, welcome: str) -> None:
    db.execute("UPDATE pgsched.jobs SET args = %s WHERE name = 'a/b'", [Jsonb({"user": 3, "note": ""})])
    page = browser.get("/job/run/a%2Fb")
    assert labels(page) == {"args"} and 'name="as" value="json"' in page.text
    assert browser.post("/job/run/a%2Fb", {"arg.user": "9", "overlap": "allow"}).status_code == 200


def test_the_api_refuses_a_job_s_arguments_that_do_not_fit(
    browser: Browser, db: psycopg.Connection, welcome: str
) -> None:
    answer = browser.client.post("/api/v1/jobs/a%2Fb/run", json={"args": {"user": "x"}})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "args.user")
    assert browser.client.post("/api/v1/jobs/a%2Fb/run", json={"args": {"user": 1}}).status_code == 200


def test_a_shell_job_takes_json(browser: Browser, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, kind, task, schedule) VALUES ('sh', 'shell', 'true', '@daily')")
    assert labels(browser.get("/job/run/sh")) == {"args"}
    assert browser.post("/job/run/sh", {"args": '{"env": {}}', "overlap": "allow"}).status_code == 200
