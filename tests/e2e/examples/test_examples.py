"""Each program in sql/examples runs unchanged, does what it says, and prints the same in every language."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from pgsched import App
from tests.support.db.passing import keep_next_slots, lead, pass_time
from tests.support.docs.languages import EXAMPLES, LANGUAGES, Programs, said
from tests.support.waiting import wait_until
from tests.support.working import all_ended, work

PROGRAMS = ("jobs", "enqueue", "wait", "dead", "cancel", "explain", "read", "errors", "lock", "store", "items")
SUFFIX = {"psql": ".sql", "node": ".mjs", "ruby": ".rb"}

DB = psycopg.Connection[Any]


@pytest.fixture(params=LANGUAGES)
def programs(request: pytest.FixtureRequest, dsn: str, db: DB, tmp_path: Path) -> Programs:
    db.execute("CREATE TABLE orders (id bigint PRIMARY KEY, cents bigint NOT NULL)")
    return Programs(request.param, dsn, tmp_path)


def shop(dsn: str, declined: list[str]) -> App:
    """Return the app of the workers. Its task cards.charge fails while `declined` holds a reason."""
    app = App("shop", dsn=dsn)

    @app.task(name="orders.total")
    def total(order: int) -> dict[str, int]:
        return {"total": order * 100}

    @app.task(name="cards.charge")
    def charge(order: int) -> str:
        if declined:
            raise ValueError(declined[0])
        return f"order {order} is paid"

    return app


def enqueue(db: DB, task: str, **more: object) -> int:
    named = "".join(f", {name} => %s" for name in more)
    row = db.execute(
        f"""SELECT pgsched.enqueue(%s, '{{"order": 7}}'{named})""".encode(), [task, *more.values()]
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_language_has_every_program(language: str) -> None:
    assert {path.name for path in (EXAMPLES / language).iterdir() if path.is_file()} == {
        name + SUFFIX[language] for name in PROGRAMS
    }


def test_a_job_is_made_changed_triggered_paused_resumed_and_deleted(programs: Programs, db: DB) -> None:
    assert programs.run("jobs") == [
        "created 0 2 * * *",
        "changed 0 3 * * *",
        "triggered queued",
        "paused the books are being closed",
        "resumed",
        "deleted nightly totals",
    ]
    assert db.execute("SELECT count(*) FROM pgsched.jobs").fetchone() == (0,)
    edits = db.execute("SELECT action, change FROM pgsched.audit WHERE what = 'job' ORDER BY id").fetchall()
    changed = [set(change) for action, change in edits if action not in ("created", "deleted", "triggered")]
    assert [{"schedule", "max_attempts"} <= columns for columns in changed] == [True, False, False], edits
    assert ["paused" in columns for columns in changed] == [False, True, True]


def test_runs_are_enqueued_once_and_with_the_transaction(programs: Programs, db: DB) -> None:
    assert programs.run("enqueue") == [
        "committed queued",
        "rolled back 0",
        "delayed scheduled",
        "unique created",
        "unique existing",
        "unique replaced",
        "idempotent created",
        "idempotent repeated",
        "first result queued",
    ]
    made = db.execute("SELECT task, args FROM pgsched.runs ORDER BY task").fetchall()
    assert made == [
        ("cards.charge", {"order": 7}),
        ("orders.remind", {"order": 7}),
        ("orders.total", {"order": 7}),
        ("shop.index", {"shop": 3, "all": True}),
    ]
    assert db.execute("SELECT id, cents FROM orders").fetchall() == [(7, 1200)]


def test_a_program_waits_for_the_result_of_a_run(programs: Programs, dsn: str, db: DB) -> None:
    waiting = programs.start("wait", run=enqueue(db, "orders.total"))
    work(dsn, shop(dsn, []), lambda: waiting.poll() is not None, timeout=30)
    assert said(waiting) == ['succeeded {"total": 700}']


@pytest.mark.few(2)
def test_a_dead_run_says_why_and_is_tried_again(programs: Programs, dsn: str, db: DB) -> None:
    declined = ["card 4 was declined"]
    run = enqueue(db, "cards.charge", max_attempts=1)
    work(dsn, shop(dsn, declined), lambda: all_ended(db), timeout=30)
    assert programs.run("dead", run=run) == [
        "dead ValueError: card 4 was declined",
        "attempt 1 failed ValueError: card 4 was declined",
        "retried queued",
    ]
    declined.clear()
    waiting = programs.start("wait", run=run)
    work(dsn, shop(dsn, declined), lambda: waiting.poll() is not None, timeout=30)
    assert said(waiting) == ['succeeded "order 7 is paid"']


def test_a_run_is_cancelled(programs: Programs, db: DB) -> None:
    run = enqueue(db, "orders.total", delay="1 hour")
    who = db.info.user
    told = [f"cancelled cancelled by {who}: ordered by mistake"]
    assert programs.run("cancel", run=run) == ["cancelled", *told]
    assert programs.run("cancel", run=run) == ["cancelled", *told], "a second time it tells what it has been"
    assert programs.run("cancel", run=run + 1) == ["no such run"]


def test_a_slot_is_explained(programs: Programs, dsn: str, db: DB) -> None:
    db.execute(
        """INSERT INTO pgsched.jobs (name, run_at, task, args) VALUES
           ('late', '2026-03-29 03:30 Europe/Berlin', 'orders.total', '{"order": 7}'),
           ('on time', clock_timestamp(), 'orders.total', '{"order": 7}')"""
    )
    lead(db)
    work(dsn, shop(dsn, []), lambda: all_ended(db), timeout=30)
    (line,) = programs.run("explain", job="late", at="2026-03-29 03:30 Europe/Berlin")
    assert re.match(r"missed .*catch_up_window", line), line
    row = db.execute("SELECT run_at::text FROM pgsched.jobs WHERE name = 'on time'").fetchone()
    assert row is not None
    assert programs.run("explain", job="on time", at=row[0]) == ["succeeded"]
    assert programs.run("explain", job="on time", at="2020-01-01") == []


def test_a_slot_of_a_stretch_is_explained_by_the_row_that_stands_for_it(programs: Programs, db: DB) -> None:
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('hourly', '@hourly', 'orders.total')")
    pass_time(db, 10 * 86400)
    lead(db)
    row = db.execute(
        "SELECT (covers_from + interval '5 hours')::text, reason FROM pgsched.runs"
        " WHERE state = 'missed' AND covers_count > 6"
    ).fetchone()
    assert row is not None
    assert programs.run("explain", job="hourly", at=row[0]) == [f"missed {row[1]}"]


def test_a_job_is_read_with_its_slots_and_runs(programs: Programs, db: DB) -> None:
    db.execute(
        "INSERT INTO pgsched.jobs (name, schedule, timezone, task, overlap)"
        " VALUES ('hourly', '@hourly', 'Asia/Tokyo', 't', 'allow')"
    )
    pass_time(db, 10 * 86400)
    lead(db)
    keep_next_slots(db)
    row = db.execute(
        "SELECT covers_from::text, reason, covers_count FROM pgsched.runs WHERE state = 'missed' AND covers_count > 6"
    ).fetchone()
    assert row is not None
    at, reason, count = row
    lines = programs.run("read", job="hourly", at=at)
    assert lines[0] == "active t queued  0 1 0"
    assert [re.search(r" \w{3} [-0-9]{10} [0-9]{2}:00:00 \+09:00", line) is not None for line in lines[1:4]] == [
        True
    ] * 3
    assert " queued" in lines[4] and " missed" in lines[5]
    (missed,) = [line for line in lines[6:-1] if f" {count} missed {reason}" in line]
    assert missed.startswith(at)
    assert f" of job hourly: it lies in a stretch of {count} slots from " in lines[-1]
    assert reason in lines[-1]


def test_each_refusal_has_its_own_error_code(programs: Programs, request: pytest.FixtureRequest, db: DB) -> None:
    db.execute("INSERT INTO pgsched.queues (name, max_depth) VALUES ('narrow', 1)")
    enqueue(db, "orders.total", queue="narrow")
    lines = programs.run("errors")
    meanings = {"wrong minute": "23514", "there is one already": "23505", "no such job": "P0002",
                "the queue is full, try later": "PS429", "cannot be read": "22007"}  # fmt: skip
    assert [line.split()[0] for line in lines] == list(meanings.values()), lines
    texts = ("minute: 99", "unique_key: run .* has", "weekly totals", "narrow is full", "soon")
    assert all(re.search(text, line) for text, line in zip(texts, lines, strict=True)), lines
    if "psql" not in request.node.name:
        assert [line.split(": ")[0].split(" ", 1)[1] for line in lines] == list(meanings), lines


def test_a_lock_is_taken_in_line_renewed_and_written_under(programs: Programs, db: DB) -> None:
    db.execute("CREATE TABLE totals (day date, cents bigint)")
    holder = uuid4()
    db.execute("SELECT pgsched.lock_acquire('totals', %s)", [holder])
    waiting = programs.start("lock")
    line = "SELECT note FROM pgsched.lock_line('totals') WHERE fence IS NULL"
    wait_until(lambda: db.execute(line).fetchall(), 30, "the program to wait in line")
    db.execute("SELECT pgsched.lock_release('totals', %s)", [holder])
    *lines, refusal, last = said(waiting)
    assert lines == ["granted", "renewed", "written 1200", "given back"]
    assert re.match(r"PS410 .*\"totals\" is not held with fence \d+", refusal), refusal
    assert last == "lost"
    assert db.execute("SELECT cents FROM totals").fetchall() == [(1200,)]
    assert db.execute("SELECT FROM pgsched.lock_line('totals')").fetchall() == []
    assert db.execute("SELECT FROM pgsched.sessions").fetchall() == [], "its own session ends with the lock"


def test_values_are_shared_with_versions(programs: Programs) -> None:
    assert programs.run("store") == [
        "read 1.1",
        "changed",
        "too late",
        "counted 2",
        "listed rates/EUR 1.12",
        "listed rates/reads 2",
        "change rates/EUR 1.12",
        "change rates/reads 2",
        "deleted",
    ]


def test_an_item_is_waited_for_and_consumed_with_what_is_written(programs: Programs, db: DB) -> None:
    db.execute("CREATE TABLE images (id bigint, thumbnail boolean)")
    db.execute("INSERT INTO images VALUES (1, false)")
    consumer = programs.start("items")
    line = "SELECT FROM pgsched.item_consumers WHERE waiting_since IS NOT NULL"
    wait_until(lambda: db.execute(line).fetchall(), 30, "the program to wait")
    db.execute("""SELECT pgsched.item_put('thumbnails', '{"image": 1}')""")
    assert said(consumer) == [
        "got 1",
        "consumed",
        "counts 2 1 0",
        "got 8",
        "extended",
        "given back",
        "lost",
        "counts 1 2 0",
    ]
    assert db.execute("SELECT id, thumbnail FROM images").fetchall() == [(1, True)]
    rest = db.execute("SELECT value ->> 'image', attempt, error FROM pgsched.items ORDER BY 1").fetchall()
    assert rest == [("7", 0, None), ("8", 1, "no such image"), ("9", 0, None)]
    assert db.execute("SELECT FROM pgsched.sessions WHERE ended_at IS NULL").fetchall() == []
