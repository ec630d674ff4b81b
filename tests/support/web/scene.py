"""A database as it looks on an ordinary day, for pictures: a month of history, present work and some trouble.

`app` is the app that its worker runs.
"""

from __future__ import annotations

import random
import time
from typing import Any

import psycopg

from pgsched import App, Run
from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.preview import next_slots
from tests.support.db.pruning import count

app = App("shop")
FULL = 120  # how many past slots each job has


@app.task(name="mail.send")
def send(to: int) -> str:
    time.sleep(random.uniform(0.02, 0.2))
    if to % 61 == 0:
        raise ConnectionError("smtp.shop.example refused: 451 4.7.1 greylisted, try again")
    return f"sent to {to}"


@app.task(name="orders.import")
def load(files: int = 240, *, run: Run) -> dict[str, int]:
    for n in range(1, files + 1):
        run.progress(n, files, f"orders-{n:04}.csv")
        run.log(f"orders-{n:04}.csv: {random.randint(80, 900)} orders")
        time.sleep(0.6)
    return {"files": files}


@app.task(name="ledger.close")
def close(month: str = "") -> None:
    raise ValueError("account 4711: debit 1,204.50 and credit 1,204.05 differ")


@app.task(name="noop")
def nothing() -> None:
    time.sleep(random.uniform(0.05, 0.5))


# Name, schedule, time zone, task, typical duration in seconds, more columns.
JOBS: list[tuple[str, str, str, str, float, dict[str, Any]]] = [
    ("orders-import", "*/15 6-22 * * *", "Europe/Berlin", "orders.import", 48, {"timeout": "20 min"}),
    ("nightly-ledger", "30 2 * * *", "Europe/Berlin", "noop", 900,
     {"max_lateness": "10 min", "expect_every": "26 hours", "description": "Books the day. Finance waits for it."}),
    ("backup", "0 3 * * *", "UTC", "noop", 2600,
     {"queue": "heavy", "keep": psycopg.types.json.Jsonb({"any": "90 days"})}),
    ("thumbnails", "@every 2s", "UTC", "noop", 0.3, {}),
    ("exchange-rates", "5 * * * *", "UTC", "noop", 3, {"max_attempts": 5}),
    ("mail-digest", "0 8 * * mon-fri", "America/New_York", "noop", 62, {"queue": "mail"}),
    ("close-the-month", "*/20 * * * *", "Europe/Berlin", "ledger.close", 12,
     {"alert_after_failures": 2, "max_attempts": 1}),
    ("geo-index", "40 1 * * sun", "UTC", "noop", 5400, {"queue": "heavy"}),
    ("cleanup", "*/30 * * * *", "UTC", "noop", 20, {"priority": 9}),
    ("report", "30 2 * * *", "Europe/Berlin", "noop", 75, {"tags": ["finance"]}),
]  # fmt: skip
SLOT = """
INSERT INTO pgsched.runs (job_id, scheduled_at, available_at, created_at, started_at, finished_at, attempt, state, task,
    queue, origin, error, reason)
SELECT %(job)s, at, at, at, at + %(late)s::float8 * interval '1 s',
    at + (coalesce(%(late)s::float8, 0) + %(took)s) * interval '1 s', %(attempt)s, %(state)s, %(task)s, %(queue)s,
    'schedule', %(error)s, %(reason)s FROM (SELECT %(slot)s::timestamptz AS at) x
"""
MAILS = """
INSERT INTO pgsched.runs (available_at, created_at, started_at, finished_at, attempt, state, task, queue, args)
SELECT at, at, at + wait, at + wait + took, CASE WHEN n % 97 = 0 THEN 2 ELSE 1 END,
    CASE WHEN n % 1301 = 0 THEN 'dead' ELSE 'succeeded' END, 'mail.send', 'mail', jsonb_build_object('to', n)
FROM (SELECT n, now() - interval '2 min' - n * interval '9 s' * (1 + 0.8 * sin(n / 2000.0)) AS at,
             (0.02 + 0.3 * random() * random()) * interval '1 s' AS wait,
             (0.03 + 0.2 * random()) * interval '1 s' AS took
      FROM generate_series(1, 40000) n) x
"""


def build(db: psycopg.Connection[Any]) -> None:
    """Write the whole scene; `db` is in autocommit mode."""
    random.seed(8)
    for name, schedule, zone, task, _, more in JOBS:
        columns = {"name": name, "schedule": schedule, "timezone": zone, "task": task} | more
        text = f"INSERT INTO pgsched.jobs ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"
        db.execute(text.encode(), list(columns.values()))
    db.execute("SET session_replication_role = replica")
    for one in JOBS:
        past(db, *one)
    db.execute(MAILS)
    db.execute("RESET session_replication_role")
    db.execute("ANALYZE pgsched.runs")
    people(db)
    trouble(db)
    graph(db)
    count(db)


def past(db: psycopg.Connection[Any], name: str, schedule: str, zone: str, task: str, took: float, more: Any) -> None:
    """Write the past slots of a job."""
    row = db.execute(
        "SELECT id, now() - interval '30 days', now() FROM pgsched.jobs WHERE name = %s", [name]
    ).fetchone()
    assert row is not None
    job, since, now = row
    for slot in [fire.at for fire in next_slots(parse(schedule, zone, since), since, 3000) if fire.at < now][-FULL:]:
        chance = random.random()
        late = random.uniform(0.01, 0.4) if chance > 0.04 else random.uniform(80, 400)
        ends = {"state": "succeeded", "error": None, "reason": None, "attempt": 1 if chance < 0.9 else 2}
        if name == "close-the-month" and now - slot < 3 * (now - since) / 720:
            ends |= {"state": "dead", "error": "ValueError: account 4711: debit 1,204.50 and credit 1,204.05 differ"}
        elif 0.04 < chance < 0.07:
            ends |= {"state": "dead", "attempt": 3, "error": "TimeoutError: db-3 did not answer within 30 s"}
        elif 0.07 < chance < 0.11:
            ends |= {"state": "skipped", "reason": "overlap: the run of the slot before was running still"}
        gone = ends["state"] == "skipped"
        spent = took * (0.6 + 0.5 * random.random() + 0.4 * (slot - since) / (now - since))
        values = {"job": job, "slot": slot, "late": None if gone else late, "took": 0 if gone else spent, "task": task,
                  "queue": more.get("queue", "default")} | ends  # fmt: skip
        db.execute(SLOT, values)


def people(db: psycopg.Connection[Any]) -> None:
    """Write what people have set."""
    for text in (
        "UPDATE pgsched.jobs SET after_jobs = ARRAY[(SELECT id FROM pgsched.jobs WHERE name = 'nightly-ledger')]"
        " WHERE name = 'report'",
        "UPDATE pgsched.jobs SET paused = true, paused_reason = 'disk of db-3' WHERE name = 'cleanup'",
        "UPDATE pgsched.jobs SET timeout = '90 min', max_attempts = 5 WHERE name = 'backup'",
        "INSERT INTO pgsched.job_calendars (job_id, from_date, until_date, reason) SELECT id, d, d + 2, 'stocktaking'"
        " FROM pgsched.jobs, (SELECT current_date + 3 AS d) x WHERE name = 'nightly-ledger'",
        "INSERT INTO pgsched.queues (name, concurrency_limit, rate, rate_period, keep)"
        " VALUES ('mail', 20, 600, '1 min', '{\"any\": \"2 days\"}'), ('heavy', 2, NULL, NULL, NULL)",
        "INSERT INTO pgsched.limits (name, concurrency) VALUES ('customer', 2)",
        "INSERT INTO pgsched.pauses (what, name, reason, paused_by)"
        " VALUES ('task', 'geo.rebuild', 'disk of db-3', 'alice')",
        'UPDATE pgsched.retention SET keep = \'{"any": "30 days", "dead": "90 days"}\'',
    ):
        db.execute(text.encode())


def trouble(db: psycopg.Connection[Any]) -> None:
    """Write an incident that is over."""
    db.execute(
        "INSERT INTO pgsched.alerts (job_id, job, kind, opened_at, closed_at, details, recovery)"
        " SELECT id, name, 'lateness', now() - interval '3 days', now() - interval '3 days' + interval '50 min',"
        " 'the slot of 02:30 has not started for 10m', 'a slot started in time'"
        " FROM pgsched.jobs WHERE name = 'nightly-ledger'"
    )


def graph(db: psycopg.Connection[Any]) -> None:
    """Write four runs, of which three wait for others."""
    made: list[int] = []
    for n, (task, after) in enumerate((("orders.import", ()), ("noop", (0,)), ("noop", (0,)), ("mail.send", (1, 2)))):
        args = '{"files": 40}' if n == 0 else '{"to": 5}' if n == 3 else "{}"
        row = db.execute(
            "INSERT INTO pgsched.runs (task, args) VALUES (%s, %s::jsonb) RETURNING id", [task, args]
        ).fetchone()
        assert row is not None
        made.append(row[0])
        for one in after:
            db.execute("INSERT INTO pgsched.dependencies (run_id, parent_id) VALUES (%s, %s)", [row[0], made[one]])
