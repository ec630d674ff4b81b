"""The JSON API answers as its OpenAPI document says, whatever is sent to it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from starlette.routing import Route

from pgsched.web.api import operation_table
from pgsched.web.api.openapi import document
from pgsched.web.app import make_console
from pgsched.web.routes import ROUTES
from pgsched.web.settings import Settings
from tests.support.waiting import wait_until
from tests.support.web.console import TOKEN, Browser

OPERATIONS = [(path, method) for path, methods in document(False)["paths"].items() for method in methods]
EXAMPLES = [4, pytest.param(20, marks=pytest.mark.long)]


def patient(examples: int) -> settings:
    return settings(
        max_examples=examples, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
    )


@pytest.mark.few(8)
@pytest.mark.parametrize("examples", EXAMPLES)
@pytest.mark.parametrize(("path", "method"), OPERATIONS, ids=[f"{m} {p}" for p, m in OPERATIONS])
def test_the_api_answers_any_request_as_its_document_says(
    dsn: str, db: psycopg.Connection, path: str, method: str, examples: int
) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="pip install 'pgsched[test]'")
    from schemathesis import checks
    from schemathesis.generation import GenerationMode

    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('nightly', 't', '0 2 * * *')")
    db.execute("INSERT INTO pgsched.runs (task, tags) SELECT 't', '{x}' FROM generate_series(1, 5)")
    db.execute("INSERT INTO pgsched.runs (kind, task, state, phase, finished_at, checked)"
               " VALUES ('item', 'orders', 'dead', 4, now(), true)")  # fmt: skip
    app = make_console(Settings(dsn, hosts=("testserver",)))
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

        @patient(examples)
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            case.call_and_validate(checks=wanted)

        ask()


# ---- single operations


@pytest.fixture
def ask(browser: Browser) -> Callable[..., Any]:
    """A function that sends JSON to the API and returns the status and the answer."""

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


def test_a_preset_sets_the_policies_that_a_body_leaves_out(ask: Callable[..., Any]) -> None:
    body = {"name": "a", "task": "t", "schedule": "0 2 * * *", "like": "kubernetes", "overlap": "replace"}
    status, job = ask("POST", "/jobs", body)
    assert (status, job["overlap"], job["max_attempts"], job["backoff_max"]) == (200, "replace", 7, 360)
    job = ask("PATCH", "/jobs/a", {"like": "cron", "max_attempts": 2})[1]
    assert (job["overlap"], job["catch_up"], job["max_attempts"], job["backoff_max"]) == ("allow", "skip", 2, None)
    status, why = ask("PATCH", "/jobs/a", {"like": "corn"})
    assert (status, why["error"]["field"]) == (422, "like")
    assert why["error"]["message"] == "like: is not one of cron, kubernetes, temporal, celery"


def test_a_refusal_names_the_field_and_the_reason(ask: Callable[..., Any]) -> None:
    status, why = ask("POST", "/jobs", {"name": "x", "task": "t", "schedule": "99 * * * *"})
    assert (status, why["error"]["code"], why["error"]["field"]) == (422, "invalid", "minute")
    assert why["error"]["message"].startswith("minute: ")
    refused = {"code": "invalid", "message": "stat: is not a parameter", "field": "stat"}
    assert ask("GET", "/runs?stat=dead") == (422, {"error": refused})
    assert ask("POST", "/jobs", [1])[1]["error"]["message"] == "the body is not a JSON object"
    assert ask("GET", "/runs/999999")[0] == 404


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


def test_excluded_dates_retention_and_graphs_are_changed(ask: Callable[..., Any], db: psycopg.Connection) -> None:
    ask("POST", "/jobs", {"name": "a/b", "task": "t", "schedule": "0 2 * * *"})
    status, made = ask("POST", "/jobs/a%2Fb/dates", {"from": "2031-12-24", "to": "2031-12-26", "reason": "Christmas"})
    assert (status, made["until_date"]) == (200, "2031-12-26")
    assert ask("DELETE", "/jobs/a%2Fb/dates?from=2031-12-25")[0] == 200
    left = [(row["from_date"], row["until_date"]) for row in ask("GET", "/jobs/a%2Fb/dates")[1]["dates"]]
    assert left == [("2031-12-24", "2031-12-24"), ("2031-12-26", "2031-12-26")]
    assert ask("POST", "/jobs/a%2Fb/dates", {"from": "2031-12-32"})[0] == 422
    assert ask("PATCH", "/retention", {"keep": {"dead": "90 days", "any": "7 days"}, "keep_hours": "800d"})[0] == 200
    assert ask("GET", "/retention")[1]["keep"] == {"dead": "90 days", "any": "7 days"}
    told = ask("GET", "/retention")[1]
    assert {name: told[name] for name in ("keep_minutes", "keep_hours", "keep_audit")} == {
        "keep_minutes": "3d", "keep_hours": "800d", "keep_audit": "400d"
    }  # fmt: skip
    assert ask("PATCH", "/retention", {"keep_audit": told["keep_audit"]})[0] == 200
    assert ask("PATCH", "/retention", {})[0] == 422
    assert ask("PUT", "/queues/mail", {"keep": {"any": "2 days"}})[1]["keep"] == {"any": "2 days"}
    ids = [row[0] for row in db.execute("INSERT INTO pgsched.runs (task) VALUES ('a'), ('b') RETURNING id").fetchall()]
    db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) VALUES (%s, %s)", ids[::-1])
    assert len(ask("POST", f"/runs/{ids[1]}/tree/cancel", {"reason": "no"})[1]["runs"]) == 2
    assert len(ask("POST", f"/runs/{ids[0]}/tree/retry", {})[1]["runs"]) == 2


@pytest.mark.long
def test_the_api_returns_what_the_pages_show(ask: Callable[..., Any], db: psycopg.Connection) -> None:
    ask("POST", "/jobs", {"name": "nightly", "task": "t", "schedule": "0 2 * * *"})
    db.execute("INSERT INTO pgsched.runs (job_id, scheduled_at, task, state, finished_at, reason)"
               " SELECT id, now() - interval '1 h', 't', 'skipped', now(), 'paused' FROM pgsched.jobs")  # fmt: skip
    db.execute("INSERT INTO pgsched.alerts (job_id, kind, details, closed_at) VALUES (0, 'test', 'x', now())")
    assert ask("GET", "/jobs/nightly/slots")[1]["slots"][0]["reason"] == "paused"
    assert ask("GET", "/jobs/nightly/slots?until=2020-01-01")[1] == {"slots": []}
    assert ask("GET", "/jobs/nightly/slots?from=2h&until=1h")[0] == 200
    assert len(ask("GET", "/jobs/nightly/rates?range=1y")[1]["stretches"]) == 60
    for span in ("15m", "1h", "6h", "24h", "7d", "30d", "1y"):
        assert len(ask("GET", f"/rates?range={span}")[1]["stretches"]) == 60
    assert ask("GET", "/alerts")[1] == {"alerts": []}
    assert ask("GET", "/alerts?all=true")[1]["alerts"][0]["kind"] == "test"
    assert [row["action"] for row in ask("GET", "/audit?what=job&name=nightly")[1]["changes"]] == ["created"]
    assert ask("GET", "/doctor")[1] == {"findings": [], "age_s": None}
    wait_until(lambda: ask("GET", "/doctor")[1]["findings"], 60, "the doctor's first look")


# For each page and button of the console, the operation of the API that does the same.
SAME = {
    "/job/new": "POST /jobs",
    "/job/edit": "PATCH /jobs/{job}",
    "/job/backfill": "POST /jobs/{job}/backfills",
    "/job/mode": "PATCH /jobs/{job}",
    "/job/pause": "POST /jobs/{job}/pause",
    "/job/resume": "POST /jobs/{job}/resume",
    "/job/run": "POST /jobs/{job}/run",
    "/job/delete": "DELETE /jobs/{job}",
    "/job/exclude": "POST /jobs/{job}/dates",
    "/job/allow": "DELETE /jobs/{job}/dates",
    "/runs/new": "POST /runs",
    "/runs/many": "POST /runs/retry",
    "/runs/many/do": "POST /runs/cancel",
    "/runs/{id}/retry": "POST /runs/{id}/retry",
    "/runs/{id}/cancel": "POST /runs/{id}/cancel",
    "/runs/{id}/tree/retry": "POST /runs/{id}/tree/retry",
    "/runs/{id}/tree/cancel": "POST /runs/{id}/tree/cancel",
    "/queues/save": "PUT /queues/{name}",
    "/limits/save": "PUT /limits/{name}",
    "/limits/remove": "DELETE /limits/{name}",
    "/pauses/begin": "POST /pauses",
    "/pauses/end": "POST /pauses/end",
    "/retention/save": "PATCH /retention",
    "/workers/{id}/drain": "POST /workers/{id}/drain",
    "/backfills/{id}/cancel": "POST /backfills/{id}/cancel",
    "/locks/break": "POST /locks/break",
    "/": "GET /rates",
    "/jobs": "GET /jobs",
    "/jobs/": "GET /jobs",
    "/jobs/{name}": "GET /jobs/{job}/slots",
    "/preview": "GET /schedule/preview",
    "/runs": "GET /runs",
    "/runs/{id}": "GET /runs/{id}",
    "/runs/{id}/log": "GET /runs/{id}/log",
    "/runs/{id}/tree": "GET /runs/{id}/tree",
    "/queues": "GET /queues",
    "/workers": "GET /workers",
    "/locks": "GET /locks",
    "/alerts": "GET /alerts",
    "/audit": "GET /audit",
    "/doctor": "GET /doctor",
    "/backfills/{id}": "GET /backfills/{id}",
}


def test_every_page_and_button_has_an_operation_in_the_api() -> None:
    pages = {
        re.sub(r"^(/job/\w+)/\{name\}$", r"\1", re.sub(r":\w+", "", one.path))
        for one in ROUTES
        if isinstance(one, Route) and not one.path.startswith("/api/")
    }
    assert pages == set(SAME)
    operations = {f"{one.method} {one.path}" for one in operation_table.OPERATIONS}
    assert set(SAME.values()) <= operations


def test_a_page_of_another_site_cannot_use_the_api(browser: Browser) -> None:
    new = json.dumps({"name": "x", "task": "t"})
    post = browser.client.post
    kind = {"content-type": "application/json"}
    assert post("/api/v1/jobs", content=new, headers={"content-type": "text/plain"}).status_code == 415
    assert post("/api/v1/jobs", content=new, headers=kind | {"origin": "http://evil.example"}).status_code == 403
    assert post("/api/v1/jobs", content=new, headers=kind).status_code == 200


def test_a_cookie_needs_a_csrf_token_and_a_bearer_token_does_not(console: Callable[..., Browser]) -> None:
    browser = console(token=TOKEN)
    post, bearer = browser.client.post, {"authorization": f"Bearer {TOKEN}"}
    assert post("/api/v1/jobs", json={"name": "a", "task": "t"}).status_code == 401
    assert post("/api/v1/jobs", json={"name": "a", "task": "t"}, headers=bearer).status_code == 200
    browser.post("/login", {"secret": TOKEN})
    assert post("/api/v1/jobs", json={"name": "b", "task": "t"}).status_code == 403
    shown = {"x-csrf-token": browser.csrf("/")}
    assert post("/api/v1/jobs", json={"name": "b", "task": "t"}, headers=shown).status_code == 200
