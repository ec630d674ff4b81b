"""Sentry: errors of handlers as events, and check-ins of Sentry Crons from the columns of jobs.

    import sentry_sdk
    from pgsched.contrib import sentry

    sentry_sdk.init(...)
    sentry.install(app)

Invariant: no error of Sentry, and no delay of it, reaches a run. An event is handed to the SDK, which sends it from a
thread of its own. What a check-in needs from the database is read in a thread, too, and bounded.

Sources: https://docs.sentry.io/platforms/python/crons/ and https://develop.sentry.dev/sdk/telemetry/check-ins/.
"""

from __future__ import annotations

import hashlib
import math
import queue
import re
import threading
import time
from collections.abc import Mapping
from typing import Any
from uuid import UUID, uuid5

import sentry_sdk
from sentry_sdk.crons import capture_checkin

from pgsched import log
from pgsched.app.base import AppBase
from pgsched.app.run import Run
from pgsched.core.model import Claim, Kind, Outcome
from pgsched.db.connection.connect import Connection, connect
from pgsched.db.queries.jobs import jobs

__all__ = ["install", "monitor_of"]

logger = log.get("sentry")
RUNS = UUID("5a3f8f2a-3c0b-4d34-9d5e-1f6f0a3c9b77")  # the namespace of the ids of check-ins
MOST_WAITING = 1000
KEPT_S = 60.0  # how long a job's columns are not read again
MOST_KEPT = 1000
IDLE_S = 30.0  # a connection is kept for this long after the last look
CLOSE_S = 2.0
SLUG_CHARACTERS = 50
EVERY = re.compile(r"@every\s+(\d+)\s*(s|m|h|d|min|hours?|minutes?|seconds?|days?)")
SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
FIELD = r"(?:[0-9*/,\-]|[A-Za-z]{3})+"
CRON = re.compile(rf"{FIELD}(?: {FIELD}){{4}}|@(?:yearly|annually|monthly|weekly|daily|hourly)")


def install(app: AppBase, *, errors: bool = True, monitors: bool = True) -> None:
    """Report the failures of this app's workers to Sentry, which your program has set up by `sentry_sdk.init`.

    `errors`: attempts that fail become events, with the run's id, task, queue, job and attempt as tags.
    `monitors`: runs of jobs check in with Sentry Crons; each job is a monitor of its own (see `monitor_of`).
    """
    if errors:
        app.hooks.add("on_error", capture_error)
    app.hooks.job_listeners.append(lambda dsn: SentryListener(dsn, errors=errors, monitors=monitors))


def capture_error(run: Run, error: BaseException) -> None:
    """Send the error of an attempt as an event. Raises nothing."""
    try:
        with sentry_sdk.new_scope() as scope:
            scope.set_transaction_name(run.task)
            scope.set_tags(tags_of(run.id, run.job_id, run.task, run.queue, run.attempt))
            scope.set_context("pgsched", {
                "run": run.id, "attempt": run.attempt, "max_attempts": run.max_attempts, "task": run.task,
                "queue": run.queue, "job_id": run.job_id,
                "slot": None if run.scheduled_at is None else run.scheduled_at.isoformat(),
            })  # fmt: skip
            scope.capture_exception(error)
    except Exception:
        logger.warning("an error was not sent to sentry", run=run.id, exc_info=True)


def tags_of(run_id: int, job_id: int | None, task: str, queue_name: str, attempt: int) -> dict[str, str]:
    """Return the tags of an event."""
    found = {"pgsched.run": str(run_id), "pgsched.task": task[:200], "pgsched.queue": queue_name,
             "pgsched.attempt": str(attempt)}  # fmt: skip
    return found if job_id is None else found | {"pgsched.job_id": str(job_id)}


class SentryListener:
    """The listener of one worker: check-ins, and errors of programs, statements and requests, which have no exception.

    A thread reads the columns of jobs and hands the check-ins to the SDK.
    """

    def __init__(self, dsn: str, *, errors: bool, monitors: bool) -> None:
        self._dsn = dsn
        self._errors = errors
        self._monitors = monitors
        self._waiting: queue.Queue[tuple[Claim, str] | None] = queue.Queue(MOST_WAITING)
        self._thread: threading.Thread | None = None
        self._known: dict[int, tuple[float, Mapping[str, Any] | None]] = {}
        self._full_at = 0.0

    def wants(self, claim: Claim) -> bool:
        """Check whether the claim is of interest: any run of a job. Of others a worker tells no listener."""
        return claim.job_id is not None

    def begun(self, claim: Claim) -> None:
        """Check in: a run of a job begins. Further attempts belong to the same check-in."""
        if self._monitors and claim.attempt == 1:
            self._put(claim, "in_progress")

    def ended(self, claim: Claim, outcome: Outcome, state: str) -> None:
        """Check in: a run of a job has succeeded or is dead. Send the error of a run that has no exception."""
        if self._errors and claim.kind != Kind.TASK and outcome.error and state in ("dead", "scheduled"):
            with sentry_sdk.new_scope() as scope:
                scope.set_tags(tags_of(claim.id, claim.job_id, str(claim.kind), claim.queue, claim.attempt))
                scope.set_extra("output", (outcome.log_tail or "")[-4000:])
                scope.capture_message(outcome.error[:1000], level="error")
        if self._monitors and state in ("succeeded", "dead"):
            self._put(claim, "ok" if state == "succeeded" else "error")

    def close(self) -> None:
        """Send what waits, for at most CLOSE_S."""
        if self._thread is not None:
            try:
                self._waiting.put_nowait(None)
            except queue.Full:
                return
            self._thread.join(CLOSE_S)
            sentry_sdk.flush(CLOSE_S)

    def _put(self, claim: Claim, status: str) -> None:
        try:
            self._waiting.put_nowait((claim, status))
        except queue.Full:
            if time.monotonic() - self._full_at > 60.0:
                self._full_at = time.monotonic()
                logger.warning("check-ins are dropped: too many wait", waiting=MOST_WAITING)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._serve, name="pgsched-sentry", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        """Send check-ins until closed. Raises nothing."""
        conn: Connection[Any] | None = None
        while True:
            try:
                item = self._waiting.get(timeout=None if conn is None else IDLE_S)
            except queue.Empty:
                item = ()  # type: ignore[assignment]
            if not item:
                if conn is not None:
                    conn.close()
                    conn = None
                if item is None:
                    return
                continue
            claim, status = item
            try:
                if (job := self._look_up(claim.job_id)) is None:
                    conn = conn if conn is not None and not conn.closed else connect(self._dsn, purpose="sentry")
                    job = self._remember(claim.job_id or 0, jobs.monitored_job(conn, claim.job_id or 0))
                check_in(claim, job, status)
            except Exception as error:
                logger.warning("a check-in was not sent to sentry", run=claim.id, error=log.redact(str(error))[:300])
                if conn is not None:
                    conn.close()
                    conn = None

    def _look_up(self, job_id: int | None) -> Mapping[str, Any] | None:
        read_at, job = self._known.get(job_id or 0, (-math.inf, None))
        return job if time.monotonic() - read_at < KEPT_S else None

    def _remember(self, job_id: int, job: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        if len(self._known) >= MOST_KEPT:
            self._known.clear()
        self._known[job_id] = time.monotonic(), job
        return job


def check_in(claim: Claim, job: Mapping[str, Any] | None, status: str) -> None:
    """Hand a check-in to the SDK; nothing for a job that is gone or that Sentry cannot monitor."""
    monitor = None if job is None else monitor_of(job)
    if job is None or monitor is None:
        return
    check_in_id = uuid5(RUNS, f"{claim.job_id} {claim.id} {claim.scheduled_at}").hex
    capture_checkin(slug_of(job["name"]), check_in_id=check_in_id, status=status, monitor_config=monitor)  # type: ignore[arg-type]


def slug_of(name: str) -> str:
    """Return the slug of a job's monitor: its name where Sentry takes it, else with a digest that keeps it apart.

    Sentry takes no slug of digits alone (src/sentry/slug/patterns.py in github.com/getsentry/sentry).
    """
    plain = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:SLUG_CHARACTERS]
    if plain == name and not plain.isdigit():
        return plain
    return f"{plain[: SLUG_CHARACTERS - 9] or 'job'}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def monitor_of(job: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the configuration of a job's monitor, or None where Sentry has no schedule that is the same.

    It has none for a job with a calendar or excluded dates, and none that ends: it would miss a run there.

    The margin of a check-in is `max_lateness`, its longest run `max_duration` (else `timeout`, else `finish_by`), and
    the failures until an issue `alert_after_failures`. Sentry counts all of them in whole minutes.
    """
    if job["has_gaps_or_end"] or (schedule := schedule_of(job["schedule"] or "")) is None:
        return None
    found: dict[str, Any] = {"schedule": schedule, "timezone": job["timezone"]}
    if job["max_lateness_s"] is not None:
        found["checkin_margin"] = max(1, math.ceil(job["max_lateness_s"] / 60))
    if job["max_duration_s"] is not None:
        found["max_runtime"] = max(1, math.ceil(job["max_duration_s"] / 60))
    if job["alert_after_failures"] is not None:
        found |= {"failure_issue_threshold": job["alert_after_failures"], "recovery_threshold": 1}
    return found


def schedule_of(text: str) -> dict[str, Any] | None:
    """Return Sentry's schedule for one of ours: five cron fields, or whole minutes, hours or days."""
    plain = " ".join(text.split())
    if found := EVERY.fullmatch(plain):
        seconds = int(found[1]) * SECONDS[found[2][0]]
        for unit, length in (("day", 86_400), ("hour", 3600), ("minute", 60)):
            if seconds and seconds % length == 0:
                return {"type": "interval", "value": seconds // length, "unit": unit}
        return None
    return {"type": "crontab", "value": plain} if CRON.fullmatch(plain) else None
