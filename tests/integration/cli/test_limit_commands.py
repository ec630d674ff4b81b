"""`pgsched limit`, `queue`, `pause` and `resume`, and what `status` and `run show` print about them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from pgsched.db.queries.jobs.queues import list_queues


def test_a_limit_is_set_changed_listed_and_removed(pgsched: Callable[..., Any], db: psycopg.Connection) -> None:
    assert pgsched("limit", "set", "customer", "--concurrency", "2", "--rate", "100/m").out == (
        "limit customer: 2 at once, 100 in 1m, burst 10\n"
    )
    assert pgsched("limit", "set", "customer", "--rate", "none", "--ordered").out == (
        "limit customer: 2 at once, in order\n"
    )
    db.execute("INSERT INTO pgsched.runs (task, concurrency_key) VALUES ('t', 'customer:1'), ('t', 'customer:2')")
    (row,) = json.loads(pgsched("limit", "list", "--json").out)
    assert (row["name"], row["concurrency"], row["keys"], row["waiting"]) == ("customer", 2, 2, 2)
    assert pgsched("limit", "remove", "customer").code == 0
    gone = pgsched("limit", "remove", "customer")
    assert (gone.code, "no limit named" in gone.err) == (8, True)
    assert pgsched("limit", "list").out == "no limits\n"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("limit", "set", "x"), "give --concurrency"),
        (("limit", "set", "x", "--concurrency", "-1"), ""),
        (("limit", "set", "x", "--concurrency", "many"), "concurrency: "),
        (("limit", "set", "x", "--rate", "100"), "rate: "),
        (("limit", "set", "x", "--rate", "0/s"), "rate: "),
        (("limit", "set", "x", "--burst", "3"), "burst: needs a rate"),
        (("limit", "set", "job:1", "--concurrency", "3"), "name: job is kept"),
        (("queue", "set", "x"), "queue set: "),
        (("queue", "set", "x", "--on-full", "explode"), "on-full: "),
        (("queue", "set", "x", "--ageing", "often"), "ageing: "),
        (("pause",), "give one of"),
        (("pause", "--all", "--queue", "q"), "give one of"),
        (("pause", "--all", "--for", "soon"), "for: "),
    ],
)
def test_bad_input_gives_one_line(args: tuple[str, ...], said: str, pgsched: Callable[..., Any]) -> None:
    found = pgsched(*args)
    assert (found.code, found.out) == (2, "")
    assert said in found.err


def test_a_queue_is_set_paused_and_listed(pgsched: Callable[..., Any], db: psycopg.Connection) -> None:
    said = pgsched("queue", "set", "emails", "--concurrency", "5", "--fair", "--max-depth", "9", "--ageing", "10m").out
    assert said == "queue emails: 5 at once, keys take turns, priorities rise every 10m, at most 9 wait, then reject\n"
    db.execute("INSERT INTO pgsched.runs (task, queue) VALUES ('t', 'emails')")
    assert (
        pgsched("pause", "--queue", "emails", "--reason", "down", "--for", "1h").out
        == "queue emails is paused for 1h\n"
    )
    (row,) = json.loads(pgsched("queue", "list", "--json").out)
    assert (row["depth"], row["paused_reason"], row["max_depth"]) == (1, "down", 9)
    assert "paused" in pgsched("queue", "list").out
    assert pgsched("resume", "--queue", "emails").out.startswith("queue emails goes on")


def test_status_and_run_show_say_what_holds_a_run(pgsched: Callable[..., Any], db: psycopg.Connection) -> None:
    pgsched("limit", "set", "customer", "--concurrency", "1")
    pgsched("queue", "set", "tiny", "--max-depth", "1")
    db.execute("INSERT INTO pgsched.runs (task, concurrency_key) VALUES ('t', 'customer:1')")
    db.execute("UPDATE pgsched.runs SET state = 'queued'")
    db.execute("INSERT INTO pgsched.runs (task, concurrency_key) VALUES ('t', 'customer:1')")
    db.execute("INSERT INTO pgsched.runs (task, queue) VALUES ('t', 'tiny'), ('t', 'boundless')")
    pgsched("pause", "--all", "--reason", "incident")
    found = json.loads(pgsched("status", "--json").out)
    assert found["paused"][0]["reason"] == "incident"
    held = {"name": "key customer", "admitted": 1, "waiting": 1, "applied": False, "concurrency": 1}
    assert found["limits"] == [held]
    assert found["full"][0]["name"] == "tiny"
    assert any("queue tiny is full" in problem for problem in found["problems"])
    assert "incident" in pgsched("status").out
    held = json.loads(pgsched("run", "show", "2", "--json").out)["held_by"]
    assert "everything is paused" in held
    assert "1 of key customer:1 at once, 1 are queued or running" in held


def test_status_counts_the_queues_that_have_a_limit(pgsched: Callable[..., Any], db: psycopg.Connection) -> None:
    pgsched("queue", "set", "narrow", "--concurrency", "1")
    pgsched("queue", "set", "slow", "--rate", "1/h")
    db.execute("INSERT INTO pgsched.runs (task, queue) SELECT 't', q FROM unnest('{narrow,slow,boundless}'::text[]) q,"
               " generate_series(1, 2)")  # fmt: skip
    limits = json.loads(pgsched("status", "--json").out)["limits"]
    assert {(one["name"], one["waiting"]) for one in limits} == {("queue narrow", 2), ("queue slow", 2)}
    assert {row["name"] for row in list_queues(db, bounded=True)} == {"narrow", "slow"}
    assert {row["name"] for row in list_queues(db)} == {"narrow", "slow", "boundless"}


def test_explain_says_that_a_slot_waits_for_its_limits(pgsched: Callable[..., Any], db: psycopg.Connection) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task, overlap, concurrency_limit)"
               " VALUES ('j', '@every 1h', 't', 'allow', 0)")  # fmt: skip
    db.execute("SELECT pgsched.trigger('j')")
    at = db.execute("SELECT to_char(scheduled_at, 'YYYY-MM-DD\"T\"HH24:MI:SS.US+00') FROM pgsched.runs").fetchone()
    assert at is not None
    found = json.loads(pgsched("explain", "j", at[0], "--json").out)
    assert found["answer"] == "limited"
    assert "limit j: 0 of key job:1 at once" in found["text"]


def test_a_queue_is_listed_if_it_has_queued_or_limited_runs(
    pgsched: Callable[..., Any], db: psycopg.Connection
) -> None:
    put = "INSERT INTO pgsched.runs (task, queue, state, available_at, ready_at)"
    now, later = "clock_timestamp()", "clock_timestamp() + interval '1 hour'"
    db.execute(
        f"{put} VALUES ('t', 'standing', 'queued', {now}, NULL), ('t', 'limited', 'waiting', {now}, {now}),"
        f" ('t', 'later', 'scheduled', {later}, NULL), ('t', 'behind', 'waiting', {now}, NULL)".encode()
    )
    assert [row["name"] for row in pgsched("queue", "list", "--json").json] == ["limited", "standing"]
