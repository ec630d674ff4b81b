"""The app of `pgsched demo`: two tasks, the SQL of four jobs, and a check of what ran against their schedules.

Each job is a plain INSERT, as a client in any language would send it.
"""

from __future__ import annotations

import json
import os
import platform
from datetime import datetime
from pathlib import Path
from typing import Any

from pgsched import App, Run
from pgsched.core.schedule.cron import parse
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.reports import live

app = App("demo")

SAMPLE = "demo-sample"
STAMP = "demo-stamp"
FILL = "demo-fill"
RETRY = "demo-retry"
NAMES = (SAMPLE, STAMP, FILL, RETRY)

INSERTS = {
    SAMPLE: """INSERT INTO pgsched.jobs (name, schedule, task, overlap)
VALUES ('demo-sample', '* * * * * *', 'demo.sample', 'allow')""",
    STAMP: """INSERT INTO pgsched.jobs (name, schedule, kind, task, args, overlap)
VALUES ('demo-stamp', '*/5 * * * * *', 'command', 'sh',
        '["-c", "date -u \\"+%F %T run $PGSCHED_RUN_ID\\" >> \\"$0\\"", "{file}"]', 'allow')""",
    FILL: """INSERT INTO pgsched.jobs (name, schedule, kind, task, overlap)
VALUES ('demo-fill', '@every 2s', 'sql',
        'INSERT INTO pgsched.demo_readings (value) VALUES (random() * 100)', 'allow')""",
    RETRY: """INSERT INTO pgsched.jobs (name, task, max_attempts, backoff_base)
VALUES ('demo-retry', 'demo.third_time_lucky', 3, '1 second')""",
}
TABLE = """CREATE TABLE IF NOT EXISTS pgsched.demo_readings
    (at timestamptz NOT NULL DEFAULT now(), value double precision NOT NULL)"""
RETRY_NOW = "UPDATE pgsched.jobs SET run_at = clock_timestamp() WHERE name = 'demo-retry'"
RESUME = "UPDATE pgsched.jobs SET paused = false WHERE name LIKE 'demo-%' AND paused"
PAUSE = """UPDATE pgsched.jobs SET paused = true, paused_reason = 'the demo ended'
WHERE name LIKE 'demo-%' AND schedule IS NOT NULL"""


@app.task(name="demo.sample")
async def sample(run: Run) -> dict[str, Any]:
    """Return the load of the machine; the job runs this every second."""
    return {"load": round(os.getloadavg()[0], 2), "host": platform.node(), "attempt": run.attempt}


@app.task(name="demo.third_time_lucky")
def third_time_lucky(run: Run) -> str:
    """Fail on the first two attempts and succeed on the third."""
    if run.attempt < 3:
        raise ConnectionError(f"attempt {run.attempt}: the payment service did not answer")
    return f"paid on attempt {run.attempt}"


def statements(existing: set[str], file: Path) -> list[str]:
    """Return the SQL that starts the demo: a table, and the jobs that do not exist yet.

    Where jobs of an earlier demo exist, they are resumed, and the retry job is due again now.
    """
    path = json.dumps(str(file))[1:-1].replace("'", "''")
    wanted = [TABLE] if not existing else [RESUME]
    wanted += [text.replace("{file}", path) for name, text in INSERTS.items() if name not in existing]
    return [*wanted, RETRY_NOW] if RETRY in existing else wanted


def existing_names(conn: Connection[Any]) -> set[str]:
    """Return the names of the demo's jobs that an earlier demo created."""
    return {row["name"] for row in demo_jobs(conn)}


def expected_slots(job: dict[str, Any], start: datetime, end: datetime) -> set[datetime]:
    """Compute the slots of a demo job in (start, end] from its schedule, to check the database against."""
    if job["schedule"] is None:
        return {job["run_at"]} if start <= job["run_at"] <= end else set()
    begin = max(start, job["updated_at"])
    return set(parse(job["schedule"], job["timezone"], job["anchor_at"]).between(begin, end))


def count_due_slots(conn: Connection[Any], start: datetime, end: datetime) -> dict[str, int]:
    """Count the slots of each demo job that were due in (start, end]."""
    return {row["name"]: len(expected_slots(row, start, end)) for row in demo_jobs(conn)}


def demo_jobs(conn: Connection[Any]) -> list[dict[str, Any]]:
    """Return the rows of the demo's jobs."""
    return [row for row in jobs.list_jobs(conn) if row["name"] in NAMES]


def unfinished_slots(conn: Connection[Any], start: datetime, end: datetime) -> dict[str, list[datetime]]:
    """Return, by job, the slots due in (start, end] without a run that succeeded."""
    found: dict[str, list[datetime]] = {}
    for job in demo_jobs(conn):
        ran = set(live.succeeded_slots(conn, job["id"], start))
        missing = sorted(expected_slots(job, start, end) - ran)
        if missing:
            found[job["name"]] = missing
    return found


def count_demo_runs(conn: Connection[Any]) -> int:
    """Count the runs of the demo's jobs that have not ended."""
    return live.count_open_runs_of(conn, NAMES)
