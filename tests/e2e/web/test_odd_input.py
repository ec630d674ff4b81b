"""Input that no form or client would send is refused, and never causes a server error."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tests.support.web.console import Browser

JSON = {"content-type": "application/json"}


@pytest.mark.parametrize("path", ["/runs", "/audit"])
@pytest.mark.parametrize("text", ["--5", "-", "5-"])
def test_a_page_cursor_that_is_no_number_is_refused(browser: Browser, path: str, text: str) -> None:
    assert browser.get(path, params={"before": text}).status_code == 422


def test_a_period_that_begins_before_the_first_year_is_refused(browser: Browser, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '0 2 * * *')")
    answer = browser.get("/api/v1/jobs/nightly/slots", params={"until": "0001-01-01"})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "until")


@pytest.mark.parametrize("keep", ['{"any": "\\u0000"}', '{"any": "\\ud800"}', '{"\\ud800": "1 day"}'])
@pytest.mark.parametrize(("method", "path"), [("PATCH", "/jobs/nightly"), ("PUT", "/queues/mail")])
def test_a_retention_with_text_that_cannot_be_stored_is_refused(
    browser: Browser, db: psycopg.Connection, method: str, path: str, keep: str
) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '0 2 * * *')")
    body = f'{{"keep": {keep}}}'
    answer: Any = browser.client.request(method, f"/api/v1{path}", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "keep")


def test_a_field_whose_name_is_half_a_surrogate_pair_is_refused(browser: Browser) -> None:
    answer = browser.client.post("/api/v1/jobs", content='{"name": "x", "task": "t", "\\ud800": 1}', headers=JSON)
    assert answer.status_code == 422
    assert answer.json()["error"]["message"].startswith("\ud800: is not a field")


@pytest.mark.parametrize("origin", ["http://[", "http://[::1", "null"])
def test_a_malformed_origin_counts_as_another_site(browser: Browser, origin: str) -> None:
    answer = browser.client.post("/api/v1/pauses", json={"what": "all"}, headers={"origin": origin})
    assert answer.status_code == 403
    assert "the request comes from a page of" in answer.json()["error"]["message"]
