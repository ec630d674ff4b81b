"""`POST /api/v1/runs` makes a run as `enqueue()` does, and says so when it finds one instead."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.types.json import Jsonb

from tests.support.web.console import TOKEN, Browser, one

PRODUCER = "a-token-of-the-shop-s-servers"
SCHEMA = {
    "type": "object",
    "properties": {
        "user": {"type": "integer"},
        "order": {"type": "object", "properties": {"lines": {"type": "array", "items": {"type": "integer"}}}},
    },
    "required": ["user"],
    "additionalProperties": False,
}


@pytest.fixture
def send(browser: Browser) -> Callable[..., Any]:
    """A function that posts a run and returns the answer."""
    return lambda body, **headers: browser.client.post("/api/v1/runs", json=body, headers=headers)


def register(db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO pgsched.tasks (app, task, release, options, schema, owner)"
        " VALUES ('shop', 'welcome', '1', '{}', %s, 'me')",
        [Jsonb(SCHEMA)],
    )


def test_a_run_is_made_and_its_address_is_in_the_answer(send: Any, browser: Browser) -> None:
    answer = send({"task": "welcome", "args": {"user": 7}, "queue": "mail", "priority": 2, "tags": ["new"]})
    made = answer.json()
    assert (answer.status_code, made["how"]) == (201, "created")
    assert answer.headers["location"] == f"/api/v1/runs/{made['id']}"
    run = browser.get(answer.headers["location"]).json()
    assert {name: run[name] for name in ("task", "args", "queue", "priority", "tags", "state")} == {
        "task": "welcome", "args": {"user": 7}, "queue": "mail", "priority": 2, "tags": ["new"], "state": "queued",
    }  # fmt: skip
    assert send({"task": "welcome", "args": [1, 2]}).status_code == 201
    assert send({"task": "welcome"}).status_code == 201


@pytest.mark.parametrize(
    ("option", "seconds"),
    [({"delay": "1h"}, 3600), ({"delay": 90}, 90), ({"delay": "2 m"}, 120)],
    ids=["text", "seconds", "with-a-space"],
)
def test_a_length_of_time_is_text_or_seconds(
    send: Any, db: psycopg.Connection, option: dict[str, Any], seconds: float
) -> None:
    run_id = send({"task": "t", **option}).json()["id"]
    left = one(
        db, "SELECT extract(epoch FROM available_at - created_at)::float8 FROM pgsched.runs WHERE id = %s", run_id
    )
    assert left == pytest.approx(seconds, abs=1)


def test_an_instant_decides_when_the_run_is_due(send: Any, db: psycopg.Connection) -> None:
    at = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
    run_id = send({"task": "t", "at": at.isoformat()}).json()["id"]
    assert one(db, "SELECT available_at FROM pgsched.runs WHERE id = %s", run_id) == at


@pytest.mark.parametrize("key", ["order 7", '"order 7"'], ids=["bare", "in-quotes"])
def test_the_same_request_with_the_same_key_gives_the_same_run(send: Any, db: psycopg.Connection, key: str) -> None:
    first = send({"task": "t", "args": {"a": 1.0}}, **{"Idempotency-Key": key})
    again = send({"task": "t", "args": {"a": 1}}, **{"Idempotency-Key": "order 7"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() | {"notes": []} == {"id": first.json()["id"], "how": "repeated", "notes": []}
    assert again.headers["location"] == first.headers["location"]
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 1


@pytest.mark.parametrize("other", [{"task": "u"}, {"args": {"a": 2}}], ids=["task", "arguments"])
def test_the_same_key_with_another_request_is_refused(send: Any, db: psycopg.Connection, other: Any) -> None:
    key = {"Idempotency-Key": "k"}
    first = send({"task": "t", "args": {"a": 1}}, **key).json()
    answer = send({"task": "t", "args": {"a": 1}} | other, **key)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["field"]) == (422, "idempotency_key_reused", "Idempotency-Key")
    assert f"run {first['id']}" in error["message"]
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 1


def test_a_repeated_request_is_known_although_another_replaced_the_arguments(send: Any) -> None:
    body = {"task": "t", "args": {"a": 1}, "unique_key": "u"}
    first = send(body, **{"Idempotency-Key": "k"})
    replaced = send(body | {"args": {"a": 2}, "on_conflict": "replace"})
    assert replaced.json()["how"] == "replaced"
    again = send(body, **{"Idempotency-Key": "k"})
    assert (again.status_code, again.json()["id"]) == (200, first.json()["id"])


@pytest.mark.parametrize("scope", ["while_active", "while_queued", "bucket(1h)", "sliding(1h)"])
@pytest.mark.parametrize("policy", ["replace", "merge"])
def test_a_repeated_request_is_known_in_each_unique_scope(send: Any, scope: str, policy: str) -> None:
    """Its own merge, or a later request, has changed the arguments of the run that it got."""
    body = {"task": "t", "unique_key": "u", "unique_scope": scope, "on_conflict": policy}
    first = send(body | {"args": {"ids": [1]}}, **{"Idempotency-Key": "k1"}).json()
    met = send(body | {"args": {"ids": [2]}}, **{"Idempotency-Key": "k2"}).json()
    assert met["id"] == first["id"]
    for key, ids in (("k1", [1]), ("k2", [2])):
        again = send(body | {"args": {"ids": ids}}, **{"Idempotency-Key": key})
        assert (again.status_code, again.json()["id"], again.json()["how"]) == (200, first["id"], "repeated")


def test_a_repeated_request_is_known_where_the_task_has_a_key(send: Any, db: psycopg.Connection) -> None:
    options = {"unique_by": ["user"], "unique_scope": "while_queued", "on_conflict": "merge"}
    db.execute(
        "INSERT INTO pgsched.tasks (app, task, release, options, schema, owner)"
        " VALUES ('shop', 'welcome', '1', %s, '{}', 'me')",
        [Jsonb(options)],
    )
    first, second = ({"task": "welcome", "args": {"user": 7, "ids": [n]}} for n in (1, 2))
    for key, body in (("k1", first), ("k2", second), ("k1", first), ("k2", second)):
        answer = send(body, **{"Idempotency-Key": key})
        assert answer.status_code in (200, 201), answer.text


def test_a_run_with_the_unique_key_is_returned_or_the_request_is_refused(send: Any) -> None:
    first = send({"task": "t", "unique_key": "u"})
    assert send({"task": "t", "unique_key": "u"}).json()["how"] == "existing"
    refused = send({"task": "t", "unique_key": "u", "on_conflict": "reject"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (409, "already_enqueued")
    assert refused.headers["location"] == first.headers["location"]


def test_a_bucket_is_a_unique_scope(send: Any) -> None:
    body = {"task": "t", "unique_key": "u", "unique_scope": "bucket(1h)"}
    assert [send(body).json()["how"] for _ in range(2)] == ["created", "existing"]
    for text in ("bag(1h)", "bucket(1h"):
        wrong = send(body | {"unique_scope": text})
        assert (wrong.status_code, wrong.json()["error"]["field"]) == (422, "unique_scope")
        known = "while_active, while_queued, bucket(1h), sliding(1h)"
        assert f'"{text}" is no scope; known are {known}' in wrong.json()["error"]["message"]


def test_a_wrong_text_is_told_from_a_wrong_type(send: Any) -> None:
    message = send({"task": "t", "delay": ""}).json()["error"]["message"]
    assert message == "delay: must have 1 to 100 characters"


def test_a_full_queue_says_when_to_try_again(send: Any, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.queues (name, max_depth) VALUES ('default', 1)")
    assert send({"task": "t"}).status_code == 201
    full = send({"task": "t"})
    assert (full.status_code, full.json()["error"]["code"], full.headers["retry-after"]) == (429, "queue_full", "5")


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ({"user": "x"}, "args.user"),
        ({}, "args.user"),
        ({"user": 1, "usre": 2}, "args.usre"),
        ({"user": 1, "order": {"lines": [1, "x"]}}, "args.order.lines[1]"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_their_path(
    send: Any, db: psycopg.Connection, args: Any, field: str
) -> None:
    register(db)
    answer = send({"task": "welcome", "args": args})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
    assert "task welcome does not take them" in answer.json()["error"]["message"]


def test_arguments_by_position_are_left_to_the_worker(send: Any, db: psycopg.Connection) -> None:
    register(db)
    assert send({"task": "welcome", "args": [7]}).status_code == 201


def test_a_job_runs_with_arguments_that_its_task_takes(browser: Browser, db: psycopg.Connection) -> None:
    register(db)
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('j', 'welcome', '0 2 * * *')")
    answers = [
        browser.client.post("/api/v1/jobs/j/run", json={"args": args}) for args in ({"user": "x"}, {"user": 7}, [7])
    ]
    assert [one.status_code for one in answers] == [422, 200, 200]
    assert answers[0].json()["error"]["field"] == "args.user"


def test_an_unknown_task_is_noted_with_one_that_may_be_meant(send: Any, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, task, schedule) VALUES ('j', 'shop.welcome', '0 2 * * *')")
    assert send({"task": "shop.welcome"}).json()["notes"] == []
    (note,) = send({"task": "shop.wellcome"}).json()["notes"]
    assert "did you mean shop.welcome?" in note


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "task"),
        ({"task": "t", "args": "x"}, "args"),
        ({"task": "t", "quene": "q"}, "quene"),
        ({"task": "t", "priority": 10}, "priority"),
        ({"task": "t", "delay": "soon"}, "delay"),
        ({"task": "t", "delay": -1}, "delay"),
        ({"task": "t", "at": "soon"}, "at"),
        ({"task": "t", "at": "2031-01-01T00:00:00Z", "delay": 1}, "delay"),
        ({"task": "t", "after": ["x"]}, "after"),
        ({"task": "t", "on_conflict": "explode"}, "on_conflict"),
        ({"task": "t", "idempotency_key": "k"}, "idempotency_key"),
    ],
)
def test_a_wrong_option_is_refused_by_name(send: Any, db: psycopg.Connection, body: Any, field: str) -> None:
    answer = send(body)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
    assert one(db, "SELECT count(*) FROM pgsched.runs") == 0


def test_two_idempotency_keys_are_refused(browser: Browser) -> None:
    headers = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    answer = browser.client.post("/api/v1/runs", json={"task": "t"}, headers=headers)
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "Idempotency-Key")


def test_a_run_waits_for_the_runs_that_are_named(send: Any, db: psycopg.Connection) -> None:
    first = send({"task": "t"}).json()["id"]
    second = send({"task": "t", "after": [first]}).json()["id"]
    assert one(db, "SELECT parent_id FROM pgsched.dependencies WHERE run_id = %s", second) == first


def test_a_run_is_changed_before_it_starts(send: Any, browser: Browser) -> None:
    place = send({"task": "t"}).headers["location"]
    tonight = browser.client.patch(place, json={"at": "22:00"}).json()["available_at"]
    assert datetime.now(UTC) < datetime.fromisoformat(tonight) <= datetime.now(UTC) + timedelta(days=1)
    answer = browser.client.patch(place, json={"priority": 1, "queue": "fast", "at": "2031-05-01T02:00:00Z"})
    run = answer.json()
    assert (answer.status_code, run["priority"], run["queue"], run["state"]) == (200, 1, "fast", "scheduled")
    assert run["available_at"] == "2031-05-01T02:00:00+00:00"
    assert browser.client.patch(place, json={}).status_code == 422
    browser.client.post(f"{place}/cancel", json={})
    ended = browser.client.patch(place, json={"priority": 2})
    assert ended.status_code == 422 and "cancelled" in ended.json()["error"]["message"]


# ---- tokens of producers


def test_a_producer_s_token_makes_and_reads_runs_and_nothing_else(console: Callable[..., Browser]) -> None:
    browser = console(token=TOKEN, producer_tokens=(("shop", PRODUCER),))
    shown = {"authorization": f"Bearer {PRODUCER}"}
    made = browser.client.post("/api/v1/runs", json={"task": "t"}, headers=shown)
    assert made.status_code == 201
    assert browser.get(made.headers["location"], headers=shown).status_code == 200
    for method, path in (
        ("GET", "/runs"), ("GET", "/tasks"), ("GET", "/status"), ("GET", "/audit"), ("POST", "/jobs"),
        ("POST", "/runs/cancel"), ("PATCH", "/runs/1"), ("POST", "/runs/1/cancel"), ("POST", "/pauses"),
    ):  # fmt: skip
        answer = browser.client.request(method, f"/api/v1{path}", headers=shown, json={} if method != "GET" else None)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "forbidden"), (method, path)
    for page in ("/", "/runs", "/runs/1"):
        assert browser.get(page, headers=shown).status_code == 403
    assert browser.post("/login", {"secret": PRODUCER}).status_code == 403


def test_a_producer_s_token_asks_what_a_task_takes(console: Callable[..., Browser], db: psycopg.Connection) -> None:
    register(db)
    browser = console(token=TOKEN, producer_tokens=(("shop", PRODUCER),))
    shown = {"authorization": f"Bearer {PRODUCER}"}
    (task,) = browser.get("/api/v1/tasks/welcome", headers=shown).json()["tasks"]
    assert (task["app"], task["release"], task["schema"]) == ("shop", "1", SCHEMA)
    unknown = browser.get("/api/v1/tasks/wellcome", headers=shown)
    assert unknown.status_code == 404 and "did you mean welcome?" in unknown.json()["error"]["message"]
    everything = browser.get("/api/v1/tasks", headers={"authorization": f"Bearer {TOKEN}"}).json()["tasks"]
    assert [one["task"] for one in everything] == ["welcome"]


def test_a_reader_makes_no_run(console: Callable[..., Browser]) -> None:
    browser = console(token=TOKEN, reader_token=PRODUCER)
    shown = {"authorization": f"Bearer {PRODUCER}"}
    assert browser.client.post("/api/v1/runs", json={"task": "t"}, headers=shown).status_code == 403
