"""The JSON API: as its document says, whatever is sent to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings

from pgsched.web.app import make
from pgsched.web.openapi import document
from pgsched.web.settings import Settings
from tests.web.conftest import TOKEN, Browser

OPERATIONS = [(path, method) for path, methods in document(False)["paths"].items() for method in methods]
PATIENT = settings(
    max_examples=20, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=[f"{m} {p}" for p, m in OPERATIONS])
def test_it_answers_as_its_document_says_whatever_is_sent(
    dsn: str, db: psycopg.Connection, path: str, method: str
) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="pip install 'pgsched[test]'")
    from schemathesis import checks
    from schemathesis.generation import GenerationMode

    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '0 2 * * *')")
    db.execute("INSERT INTO pgsched.runs (task, tags) SELECT 't', '{x}' FROM generate_series(1, 5)")
    app = make(Settings(dsn, hosts=("testserver",)))
    api = schemathesis.openapi.from_asgi("/api/openapi.json", app)
    wanted = [
        checks.not_a_server_error,
        *(one for one in checks.CHECKS.get_all() if one.__name__ in (
            "status_code_conformance", "content_type_conformance", "response_headers_conformance",
            "response_schema_conformance", "negative_data_rejection",
        )),
    ]  # fmt: skip

    operation = api[path][method]
    described = document(False)["paths"][path][method]
    can_be_wrong = described["parameters"] or "requestBody" in described
    for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE) if can_be_wrong else (GenerationMode.POSITIVE,):

        @PATIENT
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            case.call_and_validate(checks=wanted)

        ask()


# ---- by hand


@pytest.fixture
def ask(browser: Browser) -> Callable[..., Any]:
    """Sends JSON to the API; gives the status and the answer."""

    def send(method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        more = {} if body is None else {"json": body}
        answer = browser.client.request(method, f"/api/v1{path}", headers=headers, **more)
        return answer.status_code, answer.json()

    return send


def test_a_job_is_made_changed_paused_run_and_deleted(ask: Callable[..., Any]) -> None:
    assert ask("POST", "/jobs", {"name": "a/b c", "task": "t", "schedule": "0 2 * * *", "timeout": "90 s"})[0] == 200
    job = "/jobs/a%2Fb%20c"
    assert ask("GET", job)[1]["timeout"] == 90
    assert ask("PATCH", job, {"schedule": "0 3 * * *"})[1]["schedule"] == "0 3 * * *"
    assert ask("POST", f"{job}/pause", {"reason": "incident"})[1]["paused_reason"] == "incident"
    assert ask("POST", f"{job}/resume")[1]["paused"] is False
    status, run = ask("POST", f"{job}/run", {"args": {"x": 1}})
    assert (status, run["state"], run["args"]) == (200, "queued", {"x": 1})
    assert ask("GET", f"{job}/preview?count=2")[1]["fires"][1]["at"].endswith("03:00:00+00:00")
    assert ask("POST", f"/runs/{run['id']}/cancel", {})[1] == {"id": run["id"], "result": "cancelled"}
    assert ask("POST", f"/runs/{run['id']}/retry")[1] == {"id": run["id"], "result": "queued"}
    assert ask("DELETE", job)[0] == 200
    assert ask("GET", job)[0] == 404


def test_a_refusal_names_the_field_and_the_reason(ask: Callable[..., Any]) -> None:
    status, why = ask("POST", "/jobs", {"name": "x", "task": "t", "schedule": "99 * * * *"})
    assert (status, why["field"]) == (422, "minute")
    assert why["error"].startswith("minute: ")
    assert ask("GET", "/runs?stat=dead") == (422, {"error": "stat: is not a parameter", "field": "stat"})
    assert ask("POST", "/jobs", [1])[1]["error"] == "the body is not a JSON object"
    assert ask("GET", "/runs/999999")[0] == 404
    assert ask("GET", "/nothing") == (404, {"error": "Not Found", "field": None})


def test_many_runs_are_changed_by_a_filter_after_a_dry_run(ask: Callable[..., Any], db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.runs (task, queue) SELECT 't', 'mail' FROM generate_series(1, 3)")
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    status, dry = ask("POST", "/runs/cancel", {"queue": "mail", "dry_run": True})
    assert (status, len(dry["ids"])) == (200, 3)
    assert ask("POST", "/runs/cancel", {"queue": "mail", "reason": "no"})[1]["changed"] == 3
    assert len(ask("GET", "/runs?state=queued")[1]["runs"]) == 1
    assert ask("POST", "/runs/cancel", {})[0] == 422
    assert ask("POST", "/runs/cancel", {"ids": [1], "queue": "mail"})[0] == 422


def test_queues_limits_and_pauses_are_set(ask: Callable[..., Any]) -> None:
    assert ask("PUT", "/queues/mail", {"rate": "100/m", "fair": True})[1]["rate_period"] == 60
    assert ask("PUT", "/queues/mail", {"rate": None})[1]["rate"] is None
    assert ask("PUT", "/limits/customer", {"concurrency": 2})[1]["concurrency"] == 2
    assert [row["name"] for row in ask("GET", "/limits")[1]["limits"]] == ["customer"]
    assert ask("DELETE", "/limits/customer")[0] == 200
    assert ask("POST", "/pauses", {"what": "queue", "name": "mail", "for": "10m"})[0] == 200
    assert ask("GET", "/pauses")[1]["pauses"][0]["name"] == "mail"
    assert ask("POST", "/pauses/end", {"what": "queue", "name": "mail"})[0] == 200
    assert ask("POST", "/pauses", {"what": "all", "name": "mail"})[0] == 422


def test_a_page_of_another_site_cannot_use_it(browser: Browser) -> None:
    new = json.dumps({"name": "x", "task": "t"})
    post = browser.client.post
    kind = {"content-type": "application/json"}
    assert post("/api/v1/jobs", content=new, headers={"content-type": "text/plain"}).status_code == 415
    assert post("/api/v1/jobs", content=new, headers=kind | {"origin": "http://evil.example"}).status_code == 403
    assert post("/api/v1/jobs", content=new, headers=kind).status_code == 200


def test_with_a_cookie_it_wants_the_pages_token_and_with_a_bearer_none(console: Callable[..., Browser]) -> None:
    browser = console(token=TOKEN)
    post, bearer = browser.client.post, {"authorization": f"Bearer {TOKEN}"}
    assert post("/api/v1/jobs", json={"name": "a", "task": "t"}).status_code == 401
    assert post("/api/v1/jobs", json={"name": "a", "task": "t"}, headers=bearer).status_code == 200
    browser.post("/login", {"secret": TOKEN})
    assert post("/api/v1/jobs", json={"name": "b", "task": "t"}).status_code == 403
    shown = {"x-csrf-token": browser.csrf("/")}
    assert post("/api/v1/jobs", json={"name": "b", "task": "t"}, headers=shown).status_code == 200
