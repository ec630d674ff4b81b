"""Each refusal of the API is JSON of one shape, whichever part of the console refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from starlette.testclient import TestClient

from pgsched.web.api import operations
from pgsched.web.api.errors import ALL_CODES, CODES, ERRORS
from pgsched.web.api.openapi import document
from pgsched.web.app import make_console
from pgsched.web.security import request_guard
from pgsched.web.settings import Settings
from tests.support.web.console import READER, TOKEN, Browser

JSON = {"content-type": "application/json"}


def refusal(answer: Any) -> tuple[int, str]:
    """Return status and code of a refusal, after a check of its shape."""
    assert answer.headers["content-type"] == "application/json", answer.text[:300]
    (shape,) = answer.json().items()
    name, error = shape
    assert name == "error" and {"code", "message"} <= error.keys() <= {"code", "message", "field", "hint"}
    assert all(isinstance(text, str) and text for text in error.values())
    assert error["code"] in ALL_CODES
    return answer.status_code, error["code"]


def test_refusals_before_an_operation_are_json(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = browser.client.request
    assert refusal(ask("GET", "/api/v1/nothing")) == (404, "not_found")
    assert refusal(ask("GET", "/api")) == (404, "not_found")
    assert refusal(ask("GET", "/api/")) == (404, "not_found")
    assert refusal(ask("GET", "/api/v1/status/")) == (404, "not_found")
    assert refusal(ask("GET", f"/api/v1/runs/{'9' * 30}")) == (404, "not_found")
    wrong = ask("DELETE", "/api/v1/runs", headers=JSON)
    assert refusal(wrong) == (405, "method_not_allowed")
    assert set(wrong.headers["allow"].split(", ")) == {"GET", "HEAD", "POST"}
    assert refusal(ask("POST", "/api/v1/runs", content="task=t")) == (415, "unsupported_media_type")
    assert refusal(ask("POST", "/api/v1/runs", content="{", headers=JSON)) == (422, "invalid")
    assert refusal(ask("POST", "/api/v1/runs", content="[" * 100_000, headers=JSON)) == (422, "invalid")
    assert refusal(ask("GET", "/api/v1/runs", headers={"host": "evil.example"})) == (421, "wrong_host")
    evil = JSON | {"origin": "http://evil.example"}
    assert refusal(ask("POST", "/api/v1/runs", content="{}", headers=evil)) == (403, "forbidden")
    monkeypatch.setattr(request_guard, "LARGEST_BODY", 10)
    assert refusal(ask("POST", "/api/v1/runs", content="x" * 11, headers=JSON)) == (413, "too_large")


def test_refusals_of_visitors_are_json(console: Callable[..., Browser]) -> None:
    browser = console(token=TOKEN, reader_token=READER)
    assert refusal(browser.get("/api/v1/runs")) == (401, "unauthorized")
    assert refusal(browser.get("/api/v1/nothing")) == (401, "unauthorized")
    reader = {"authorization": f"Bearer {READER}"}
    assert refusal(browser.client.post("/api/v1/runs", json={"task": "t"}, headers=reader)) == (403, "forbidden")
    browser.post("/login", {"secret": TOKEN})
    assert refusal(browser.client.post("/api/v1/runs", json={"task": "t"})) == (403, "forbidden")
    wrong = {"authorization": "Bearer wrong"}
    codes = [refusal(browser.get("/api/v1/runs", headers=wrong)) for _ in range(61)]
    assert codes[-1] == (429, "too_many_requests")


def test_a_page_stays_a_page_for_browsers(console: Callable[..., Browser]) -> None:
    browser = console(token=TOKEN)
    assert browser.get("/nothing").status_code == 303
    browser.post("/login", {"secret": TOKEN})
    assert browser.get("/nothing").headers["content-type"].startswith("text/html")
    assert browser.get("/nothing").status_code == 404


def test_errors_of_operations_are_json(browser: Browser) -> None:
    ask = browser.client.request
    assert refusal(ask("GET", "/api/v1/runs/999")) == (404, "not_found")
    assert refusal(ask("GET", "/api/v1/jobs/nobody")) == (404, "not_found")
    assert refusal(ask("GET", "/api/v1/runs?limit=0")) == (422, "invalid")


def test_a_database_that_cannot_be_reached_is_json() -> None:
    client = TestClient(make_console(Settings("host=127.0.0.1 port=1 dbname=none")), base_url="http://localhost")
    answer = client.post("/api/v1/runs", json={"task": "t"})
    assert refusal(answer) == (503, "database_unreachable")
    assert "Idempotency-Key" in answer.json()["error"]["hint"] and answer.headers["retry-after"]


def test_a_bug_is_json(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(operations.queues, "list_pauses", lambda _: 1 / 0)
    client = TestClient(make_console(Settings(dsn)), base_url="http://localhost", raise_server_exceptions=False)
    assert refusal(client.get("/api/v1/pauses")) == (500, "internal")


def test_each_code_has_a_meaning_in_the_reference() -> None:
    used = {*CODES.values(), *(code for _, _, code, _ in ERRORS)}
    assert sorted(used) == ALL_CODES


# ---- the document


def bare_objects(schema: Any, place: str) -> list[str]:
    """Return the places of objects in a schema that say nothing about their fields."""
    if isinstance(schema, list):
        return [one for n, part in enumerate(schema) for one in bare_objects(part, f"{place}[{n}]")]
    if not isinstance(schema, dict):
        return []
    found = [one for name, part in schema.items() for one in bare_objects(part, f"{place}.{name}")]
    says = {"properties", "additionalProperties", "description"} & schema.keys()
    return found + ([place] if schema.get("type") == "object" and not says else [])


def test_each_operation_has_a_typed_answer_and_the_typed_error() -> None:
    found = document(authenticates=True)
    assert bare_objects(found["components"]["schemas"], "") == []
    names = set(found["components"]["schemas"])
    used = set()
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            for status, answer in operation["responses"].items():
                schema = answer["content"]["application/json"]["schema"]
                assert schema, (method, path, status)
                used |= {one.rpartition("/")[2] for one in str(schema).split("'") if one.startswith("#/components")}
                assert bare_objects(schema, f"{method} {path} {status}") == []
    inside = {one.rpartition("/")[2] for one in str(found["components"]).split("'") if one.startswith("#/components")}
    assert used | inside == names, "a schema that no operation uses"
