"""Requests that no client of the console would send break nothing, and lead nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

pytest.importorskip("starlette", reason="the console's extra is not installed: pip install 'pgsched[web]'")

from psycopg.types.json import Jsonb
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from pgsched.contrib.starlette import mount_console
from pgsched.web.app import make_console
from pgsched.web.settings import Settings

JSON = {"content-type": "application/json"}
BAD = ("\0", "\ud800", "x" * 2000, "")
BODIES = (
    *(json.dumps({"task": text}) for text in BAD),
    *(json.dumps({"task": "t", name: text}) for name in ("queue", "unique_key", "concurrency_key") for text in BAD[:2]),
    *(json.dumps({"task": "t", "tags": [text]}) for text in BAD),
    *(json.dumps({"task": "t", "args": {text: text}}) for text in BAD[:2]),
    '{"task": "t", "args": {"a": NaN}}', '{"task": "t", "args": {"a": Infinity}}', '{"task": "t", "args": null}',
    '{"task": "t", "delay": 1e999}', '{"task": "t", "delay": -1}', '{"task": "t", "timeout": 1e300}',
    '{"task": "t", "priority": 99999999999999999999999}', '{"task": "t", "priority": true}',
    '{"task": "t", "at": "9999-99-99"}', '{"task": "t", "at": "0001-01-01T00:00:00+14:00"}',
    '{"task": "t", "after": [0]}', '{"task": "t", "after": [99999999999999999999]}', '{"task": "t", "after": {}}',
    '{"task": "t", "unique_key": "u", "unique_scope": "bucket(1000000000w)"}',
    '{"task": "t", "unique_key": "u", "unique_scope": "bucket(0s)"}',
    '{"task": "t", "kind": "shell"}', '{"task": "t", "owner": "postgres"}', '{"task": "t", "idempotency_key": "k"}',
    '{"task": "t", "wait_for_room": 600}', '{"task": "t", "args": ' + "[" * 200_000 + "}", "[" * 200_000,
    '{"task": "t", "args": [1' + "0" * 5000 + "]}", '{"task": {"task": "t"}}', "", "null", "[]", '"t"', "\xff",
)  # fmt: skip


@pytest.fixture
def client(dsn: str) -> Iterator[TestClient]:
    with TestClient(make_console(Settings(dsn)), base_url="http://localhost") as opened:
        yield opened


def test_no_odd_body_makes_a_run_or_breaks_the_console(client: TestClient, db: psycopg.Connection[Any]) -> None:
    for body in BODIES:
        answer = client.post("/api/v1/runs", content=body.encode("utf-8", "surrogatepass"), headers=JSON)
        assert answer.status_code in (404, 413, 422), (body[:100], answer.status_code, answer.text[:300])
        assert answer.json()["error"]["message"], body[:100]
    assert db.execute("SELECT count(*) FROM pgsched.runs").fetchone() == (0,)


@pytest.mark.parametrize("key", ["", " ", "x" * 501, '"', '""', "\x80\xff", "a\tb"])
def test_odd_keys_break_nothing(client: TestClient, key: str) -> None:
    headers = [("content-type", "application/json"), ("idempotency-key", key.encode("latin-1"))]
    answer = client.post("/api/v1/runs", content=b'{"task": "t"}', headers=headers)  # type: ignore[arg-type]
    assert answer.status_code in (201, 422), answer.text


@pytest.mark.parametrize("wait", ["1e3", "NaN", "-0", "9" * 30, "0x1", " 1", "1&wait=2", "%00"])
def test_odd_times_to_wait_are_refused(client: TestClient, db: psycopg.Connection[Any], wait: str) -> None:
    db.execute("INSERT INTO pgsched.runs (task) VALUES ('t')")
    answer = client.get(f"/api/v1/runs/1?wait={wait}")
    assert answer.status_code in (200, 422) and (answer.status_code == 422 or wait == "-0")


SCRIPT = "<script>alert(1)</script>\"'>"
SCHEMAS = (
    {"type": "object", "properties": {SCRIPT: {"type": "string", "default": SCRIPT}}, "required": [SCRIPT]},
    {"type": "object", "properties": {SCRIPT: {"enum": [SCRIPT]}}, "required": [{"x": 1}]},
    {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
    {"type": "object", "properties": {"a": {"anyOf": "x"}, "b": {"enum": {"x": 1}}, "c": []}, "required": "ab"},
    {"type": "object", "properties": {str(n): {} for n in range(500)}},
    {"type": "object", "properties": {"csrf": {"type": "string"}, "task": {"type": "string"}, "args": {}}},
    {"type": ["object"], "properties": []}, [], "x", 7, True,
)  # fmt: skip


@pytest.mark.parametrize("schema", SCHEMAS, ids=[str(n) for n in range(len(SCHEMAS))])
def test_a_schema_that_a_worker_made_up_is_no_script_in_a_form(
    client: TestClient, db: psycopg.Connection[Any], schema: Any
) -> None:
    db.execute(
        "INSERT INTO pgsched.tasks (app, task, release, options, schema, owner)"
        " VALUES ('a', 't', '1', '{}', %s, 'eve')",
        [Jsonb(schema)],
    )
    page = client.get("/runs/new?task=t")
    assert page.status_code == 200 and "<script>alert" not in page.text and "\"'>" not in page.text
    token = page.text.partition('name="csrf" content="')[2].partition('"')[0]
    form = {"csrf": token, "task": "t", "arg.csrf": "x", "arg.task": "other", f"arg.{SCRIPT}": SCRIPT}
    answer = client.post("/runs/new", data=form, headers={"origin": "http://localhost"})
    assert answer.status_code in (200, 422) and "<script>alert" not in answer.text
    assert db.execute("SELECT count(*) FROM pgsched.runs WHERE task <> 't'").fetchone() == (0,)


PATHS = ("//evil.example", "//evil.example/", "/%2fevil.example/", "/\\evil.example/", "/%5cevil.example/", "/.//evil/",
         "/..%2f..%2fevil/", "/%0d%0aLocation:%20evil/", "/runs//", "/runs/%2e%2e/")  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("prefix", ["", "/jobs"], ids=["root", "below"])
def test_no_path_redirects_to_another_host(dsn: str, path: str, prefix: str) -> None:
    console = TestClient(make_console(Settings(dsn, root_path=prefix)), base_url="http://localhost")
    answer = console.request("GET", prefix + path, follow_redirects=False)
    place = answer.headers.get("location", prefix + "/")
    assert answer.status_code < 500
    assert place.startswith(f"{prefix}/") and not place.startswith(("//", "/\\")) and "\r" not in place


@pytest.mark.parametrize("tenant", ["/evil.example", '"><script>alert(1)</script>', "ä ö", "..", "a;b=c", "a\\b"])
def test_a_prefix_that_a_visitor_writes_is_no_script_and_no_other_host(dsn: str, tenant: str) -> None:
    """The application around may take a part of the prefix from the path: then the visitor writes it."""
    inner = Starlette()
    mount_console(inner, "/jobs", database=dsn, auth=lambda request: "ada")
    outer = TestClient(Starlette(routes=[Mount("/{tenant:path}/in", inner)]), base_url="http://localhost")
    answer = outer.get(f"/{quote(tenant)}/in/jobs/runs")
    assert answer.status_code in (200, 404)
    assert "<script>alert" not in answer.text and 'href="//' not in answer.text
    assert "\n" not in answer.headers.get("set-cookie", "") and "path=/;" not in answer.headers.get("set-cookie", "")


def test_headers_of_a_visitor_let_nobody_in(dsn: str) -> None:
    application = Starlette()
    mount_console(application, "/jobs", database=dsn, auth=lambda request: None)
    client = TestClient(application, base_url="http://localhost")
    for name in ("x-user", "x-forwarded-user", "remote-user", "x-forwarded-prefix", "x-forwarded-for", "x-csrf-token"):
        assert client.get("/jobs/api/v1/status", headers={name: "admin"}).status_code == 403
