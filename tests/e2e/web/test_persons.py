"""The audit records the person for whom the console made a change, for every page and API operation."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched.errors import InputError
from pgsched.web.settings import parse_tokens
from tests.support.web.console import JOB, Browser, edited, one


def test_every_change_is_noted_with_the_person_that_the_proxy_named(
    console: Callable[..., Browser], db: psycopg.Connection
) -> None:
    browser = console("10.1.2.3", proxy_header="x-user", proxies=(ipaddress.ip_network("10.0.0.0/8"),))
    browser.client.headers["x-user"] = "carol@example.com"
    db.execute(JOB, ["nightly"])
    run_id = one(db, "INSERT INTO pgsched.runs (task) VALUES ('t') RETURNING id")
    begun = one(db, "SELECT coalesce(max(id), 0) FROM pgsched.audit")
    form = edited(browser, "/job/edit/nightly") | {"description": "hers"}
    changes: dict[str, dict[str, Any]] = {
        "/job/edit/nightly": form, "/job/pause/nightly": {}, "/job/resume/nightly": {},
        "/job/mode/nightly": {"mode": "shadow"},
        "/job/run/nightly": {}, f"/runs/{run_id}/cancel": {}, f"/runs/{run_id}/retry": {},
        "/runs/many/do": {"verb": "cancel", "id": [run_id]}, "/queues/save": {"name": "mail", "rate": "1/s"},
        "/limits/save": {"name": "k", "concurrency": "1"}, "/limits/remove": {"name": "k"},
        "/pauses/begin": {"what": "all"}, "/pauses/end": {"what": "all"},
        "/job/delete/nightly": {"name": "nightly"},
    }  # fmt: skip
    for path, fields in changes.items():
        assert browser.post(path, fields).status_code == 200, path
    csrf = {"x-csrf-token": browser.csrf("/")}
    made = browser.client.post("/api/v1/jobs", json={"name": "api", "task": "t", "schedule": "@daily"}, headers=csrf)
    assert made.status_code == 200
    found = db.execute("SELECT action, what, for_user FROM pgsched.audit WHERE id > %s", [begun]).fetchall()
    assert len(found) >= len(changes) + 1
    assert {person for _, _, person in found} == {"carol@example.com"}, found
    assert "carol@example.com by" in browser.get("/audit").text
    db.execute("UPDATE pgsched.jobs SET priority = 3")
    assert one(db, "SELECT for_user FROM pgsched.audit ORDER BY id DESC LIMIT 1") is None


def test_a_named_token_records_its_name(console: Callable[..., Browser], db: psycopg.Connection) -> None:
    named = (("carol", "a-token-that-is-carols"), ("dave", "a-token-that-is-daves"))
    browser = console(named_tokens=named)
    db.execute(JOB, ["nightly"])
    browser.post("/login", {"secret": "a-token-that-is-carols"})
    assert "<span>carol</span>" in browser.get("/").text
    browser.post("/job/pause/nightly")
    headers = {"authorization": "Bearer a-token-that-is-daves"}
    assert browser.client.post("/api/v1/jobs/nightly/resume", json={}, headers=headers).status_code == 200
    found = db.execute("SELECT action, for_user FROM pgsched.audit ORDER BY id DESC LIMIT 2").fetchall()
    assert found == [("resumed", "dave"), ("paused", "carol")]
    assert one(db, "SELECT for_user FROM pgsched.audit ORDER BY id LIMIT 1") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a-single-token", ("a-single-token", ())),
        (None, (None, ())),
        ("carol abc\n\ndave def\n", (None, (("carol", "abc"), ("dave", "def")))),
    ],
)
def test_a_token_file_has_one_token_or_names(text: str | None, found: object) -> None:
    assert parse_tokens(text) == found


@pytest.mark.parametrize("text", ["a b c", "carol abc\ndef", "carol abc\ncarol def", "carol abc\ndave abc"])
def test_a_malformed_token_file_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="token: "):
        parse_tokens(text)
