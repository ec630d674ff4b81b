"""The data and the actions of `pgsched top`.

Invariant: besides the header, a look reads only the rows of its page, and every answer is bounded. The queries are
those of `status`, of the web console, and of sql/top.sql.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection, connect
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.leader import alerts
from pgsched.db.queries.reports import top
from pgsched.db.queries.reports.live import database_now
from pgsched.db.queries.runs import runs
from pgsched.db.schema.version import check_version
from pgsched.errors import NotFound, NotPermitted
from pgsched.services import charts, pauses, status
from pgsched.services.charts import Stretch
from pgsched.services.jobs import job_changes
from pgsched.services.pauses import Target
from pgsched.services.runs import changes
from pgsched.services.runs.waiting import explain_hold
from pgsched.services.status_model import Status

SPAN = "15m"
SAMPLE = 2500  # finished runs that are read at most
LISTED, DEEP, FRONTS, LATER = 200, 1000, 100, 5000  # rows of a page, and bounds of reading (see sql/top.sql)
LOG_ROWS, LOG_CHARACTERS = 60, 4000
TIMEOUT_S = 10.0
SETTINGS = {"enable_seqscan": "off", "jit": "off"}  # the statistics of a queue table are always stale


@dataclass(frozen=True, slots=True)
class Page:
    """The page that is asked for.

    `name`: name of the page.
    `key`: a run's id, or the name of a job or queue.
    `find`: a part of the names to be listed.
    """

    name: str = "overview"
    key: int | str | None = None
    find: str | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """One moment of the system, as one page shows it.

    `now`: the database's clock.
    `place`: name of the database.
    `rows`: the rows of the page.
    `refused`: the reason why there are none.
    """

    page: Page
    now: datetime
    place: str
    status: Status
    stretches: tuple[Stretch, ...]
    rows: dict[str, list[Row]] = field(default_factory=dict)
    refused: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the same for JSON."""
        lately = [{name: getattr(one, name) for name in Stretch.__slots__} for one in self.stretches]
        return {"now": self.now, "status": self.status.to_dict(), "stretches": lately, **self.rows}


def connect_for_top(dsn: str) -> Connection[Any]:
    """Open a connection to look and act through. Raises the PgschedError that explains why there is none."""
    conn = connect(dsn, purpose="top", timeout_s=TIMEOUT_S, settings=SETTINGS)
    try:
        check_version(conn)
    except BaseException:
        conn.close()
        raise
    return conn


class TopReader:
    """A reader of pages that remembers the stretches of time that have ended, because they do not change."""

    def __init__(self) -> None:
        self._recent = charts.Recent(SPAN)

    def look(self, conn: Connection[Any], page: Page) -> Look:
        """Read a page as of now."""
        found = status.read_status(conn, SAMPLE)
        now = database_now(conn)
        seen = Look(page, now, conn.info.dbname, found, tuple(self._recent.look(conn, now)))
        try:
            return replace(seen, rows=PAGES[page.name](conn, page))
        except (NotFound, NotPermitted) as error:
            return replace(seen, refused=str(error))


def overview(conn: Connection[Any], page: Page) -> dict[str, list[Row]]:
    """Return the rows of the overview: failures, running runs and open alerts."""
    found = {"failures": charts.list_failed_runs(conn, 20), **running(conn, page)}
    try:
        return found | {"alerts": alerts.list_alerts(conn, n=5)}
    except NotPermitted:  # a producer sees its own runs, and no alerts
        return found


def running(conn: Connection[Any], page: Page) -> dict[str, list[Row]]:
    """Return the runs that have run longest."""
    return {"running": top.running_longest(conn, LISTED, DEEP, FRONTS)}


def queues(conn: Connection[Any], page: Page) -> dict[str, list[Row]]:
    """Return the queues that have settings or a pause."""
    return {"queues": top.list_configured_queues(conn)}


def listed_jobs(conn: Connection[Any], page: Page) -> dict[str, list[Row]]:
    """Return the jobs that matter most now, or those with `find` in their names, each with its next slot."""
    found = top.list_urgent_jobs(conn, LISTED, page.find or None)
    return {"jobs": [row | {"next_at": next_at(row)} for row in found]}


def next_at(job: Row) -> datetime | None:
    """Return the job's next slot that will run; None unless the job is active."""
    return status.next_slot(job) if job["state"] == "active" else None


def failures(conn: Connection[Any], page: Page) -> dict[str, list[Row]]:
    """Return the runs that failed and will be tried again, and the newest runs that ended badly."""
    failing = top.failing(conn, LISTED, LATER)
    return {"failing": failing, "failures": charts.list_failed_runs(conn, LISTED)}


def workers(conn: Connection[Any], page: Page) -> dict[str, list[Row]]:
    """Return nothing: the status has the workers."""
    return {}  # status has them


def run_page(conn: Connection[Any], page: Page) -> dict[str, list[Row]]:
    """Return one run, why it is held, and the end of its output."""
    found = runs.show_run(conn, int(page.key or 0))
    why = explain_hold(conn, found)
    log = top.log_end(conn, found["id"], LOG_ROWS, LOG_CHARACTERS)
    return {"run": [found | {"held": why}], "log": log}


def job(conn: Connection[Any], page: Page) -> dict[str, list[Row]]:
    """Return one job and its newest runs."""
    found = jobs.show_job(conn, str(page.key))
    return {"job": [found], "runs": jobs.recent_runs(conn, found["id"], LISTED)}


def queue(conn: Connection[Any], page: Page) -> dict[str, list[Row]]:
    """Return the runs of a queue that come next or run."""
    return {"runs": top.runs_of_queue(conn, page.key, LISTED)}


PAGES: dict[str, Callable[[Connection[Any], Page], dict[str, list[Row]]]] = {
    "overview": overview, "running": running, "queues": queues, "jobs": listed_jobs, "failures": failures,
    "workers": workers, "run": run_page, "job": job, "queue": queue,
}  # fmt: skip


# ---- actions


@dataclass(frozen=True, slots=True)
class Change:
    """An action on a run, job or queue. `verb`: the action. `reason`: why, if it is given."""

    verb: str
    what: str
    key: int | str
    reason: str | None = None


def act(conn: Connection[Any], change: Change) -> str:
    """Do an action; return its result in one line. Raises PgschedError."""
    return ACTIONS[change.verb, change.what](conn, change)


def cancel(conn: Connection[Any], change: Change) -> str:
    """Cancel a run."""
    return f"run {change.key} {changes.cancel(conn, int(change.key), change.reason).words}"


def retry(conn: Connection[Any], change: Change) -> str:
    """Retry a run."""
    return f"run {change.key} {changes.retry(conn, int(change.key)).words}"


def pause_job(conn: Connection[Any], change: Change) -> str:
    """Pause a job."""
    job = job_changes.pause(conn, str(change.key), change.reason)
    return "; ".join([f"job {change.key} is paused by {job['paused_by']}", *job["notes"]])


def resume_job(conn: Connection[Any], change: Change) -> str:
    """Resume a job."""
    job = job_changes.resume(conn, str(change.key))
    return "; ".join([f"job {change.key} is active", *job["notes"]])


def pause_queue(conn: Connection[Any], change: Change) -> str:
    """Pause a queue."""
    pauses.pause(conn, Target("queue", str(change.key)), change.reason)
    return f"queue {change.key} is paused"


def resume_queue(conn: Connection[Any], change: Change) -> str:
    """Resume a queue."""
    pauses.resume(conn, Target("queue", str(change.key)))
    return f"queue {change.key} goes on"


ACTIONS: dict[tuple[str, str], Callable[[Connection[Any], Change], str]] = {
    ("cancel", "run"): cancel, ("retry", "run"): retry,
    ("pause", "job"): pause_job, ("resume", "job"): resume_job,
    ("pause", "queue"): pause_queue, ("resume", "queue"): resume_queue,
}  # fmt: skip
