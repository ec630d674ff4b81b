"""Invented data for the pages of `pgsched top`: statuses, rows, charts and screens."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from pgsched.cli.top.control import press
from pgsched.cli.top.frame import frame
from pgsched.cli.top.state import State
from pgsched.core.facts import JobCounts, JobError, Leader, LiveWorker, Paused, Queue
from pgsched.core.problems import Problem
from pgsched.services.charts import Stretch
from pgsched.services.status_model import Attention, Finished, NextFire, Status
from pgsched.services.top import Look, Page

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)
Row = dict[str, Any]


def before(**time: float) -> datetime:
    return NOW - timedelta(**time)


def stretches() -> tuple[Stretch, ...]:
    """Return a chart of 15 minutes in stretches of 15 seconds, with a gap in the waiting times."""
    made = []
    for n in range(60):
        at = NOW - timedelta(seconds=15 * (60 - n))
        wait = None if 20 <= n < 25 else (n % 10) / 10
        late = 2.0 if n == 57 else None
        dead, sampled = float(n == 50), n == 59
        until = at + timedelta(seconds=15)
        made.append(Stretch(at, until, float(n), dead, 0.0, 0.0, wait, wait, late, late, late, sampled))
    return tuple(made)


def problem(text: str, kind: str = "job") -> Problem:
    return Problem(kind, text, "mend it")


def status(**more: Any) -> Status:
    """Return an unhealthy status in which every list but `unroutable` has an entry."""
    leader = Leader(3, "web-1:77", "web-1", 77, before(hours=1), 0.5, False, 1, True)
    worker = LiveWorker(
        1, "web-1:77", "web-1", 77, "0.1.0", "shop", 8, 3, 0, ["task", "sql"], None, 4, before(hours=2), 1.0, False
    )
    values: dict[str, Any] = {
        "findings": [problem("job broken is in error: schedule: never fires")], "leader": leader,
        "workers": [worker], "queues": [Queue("default", 1234, 3, 5, 7, 61.0), Queue("mail", 2, 0, 0, 0, 1.0)],
        "jobs": JobCounts(4, 1, 1, 2, None), "finished": Finished(738, 3000, 9000, 1),
        "attention": Attention(2, 1, 0, 0),
        "unroutable": [], "next_fires": [NextFire("nightly", NOW + timedelta(minutes=2), 120.0, "0 2 * * *", "UTC")],
        "errors": [JobError("broken", "schedule: never fires", before(hours=1))],
        "paused": [Paused("queue", "mail", before(minutes=5), "eve", "provider is down", None, 300.0, None)],
    }  # fmt: skip
    return Status(**values | more)


def progress(done: float, total: float | None = None, note: str = "") -> Row:
    return {"attempt": 1, "done": done, "total": total, "note": note}


def run(run_id: int, state: str = "running", **more: Any) -> Row:
    """Return a row of a run with all columns that the lists of runs use."""
    values = {
        "id": run_id, "state": state, "job": "nightly", "task": "reports.build", "kind": "task", "queue": "default",
        "priority": 5, "origin": "schedule", "attempt": 1, "max_attempts": 3, "available_at": before(minutes=3),
        "scheduled_at": before(minutes=3), "created_at": before(minutes=3), "started_at": before(minutes=2),
        "finished_at": None if state in ("running", "queued", "scheduled") else before(minutes=1), "worker": "web-1:77",
        "cancel_asked": False, "cancel_requested_at": None, "cancel_reason": None, "progress": None, "reason": None,
        "error": None, "result": None, "why": None, "args": {"days": 1}, "held": None, "attempts": [], "now": NOW,
    }  # fmt: skip
    return values | more


def job(name: str, state: str = "active", **more: Any) -> Row:
    values = {
        "id": 1, "name": name, "state": state, "schedule": "0 2 * * *", "timezone": "UTC", "run_at": None,
        "queue": "default", "mode": "run",
        "kind": "task", "task": "reports.build", "args": {}, "error": None, "run_state": "succeeded", "late_s": 0.02,
        "took_s": 61.0, "next_at": NOW + timedelta(minutes=2), "next_allowed_at": NOW + timedelta(minutes=2),
        "now": NOW,
        "next_run_at": NOW + timedelta(minutes=2), "paused": state == "paused", "paused_at": before(minutes=9),
        "paused_by": "eve", "paused_reason": None, "overlap": "skip", "catch_up": "latest", "max_attempts": 3,
    }  # fmt: skip
    return values | more


def failed(attempt: int, error: str = "ValueError: it") -> Row:
    return {
        "attempt": attempt, "outcome": "failed", "started_at": before(minutes=2), "finished_at": before(minutes=1),
        "worker": "web-1:77", "error": error, "traceback": f"Traceback (most recent call last):\n  here\n{error}",
    }  # fmt: skip


DEAD = run(41, "dead", attempt=3, why="ConnectionError: bank.example: connection refused", error="ValueError: it")
ROWS: dict[str, dict[str, list[Row]]] = {
    "overview": {
        "alerts": [{"kind": "late", "job": "nightly", "opened_at": before(minutes=4), "now": NOW,
                    "details": "2m late"}],
        "running": [run(50, progress=progress(42, 100, "copying"))],
        "failures": [DEAD, run(40, "missed", why="too late")],
    },
    "running": {
        "running": [run(50, progress=progress(42, 100, "copying")), run(51, job=None, progress=progress(7)),
                    run(52, cancel_asked=True)],
    },
    "queues": {"queues": []},
    "jobs": {"jobs": [job("broken", "error", next_at=None), job("nightly"), job("weekly", "paused", next_at=None)]},
    "failures": {
        "failing": [run(45, "scheduled", available_at=NOW + timedelta(seconds=9), why="ValueError: it")],
        "failures": [DEAD, run(40, "missed", why="too late")],
    },
    "workers": {},
    "run": {"run": [run(50, progress=progress(42, 100, "copying"))],
            "log": [{"attempt": 1, "seq": 1, "stream": "stdout", "chunk": "line one\nline two\n"}]},
    "job": {"job": [job("nightly")], "runs": [run(50), DEAD]},
    "queue": {"runs": [run(50), run(60, "queued", started_at=None)]},
}  # fmt: skip


def look(
    name: str = "overview", key: int | str | None = None, rows: dict[str, list[Row]] | None = None, **more: Any
) -> Look:
    """Return what a page shows; `more` overrides fields of the status."""
    return Look(Page(name, key), NOW, "shop", status(**more), stretches(), ROWS[name] if rows is None else rows)


def state(name: str = "overview", width: int = 80, height: int = 24, **more: Any) -> State:
    """Return the state of a screen on a tab, or on the page of run 50, job nightly or queue default."""
    keys: dict[str, int | str] = {"run": 50, "job": "nightly", "queue": "default"}
    if name in keys:
        made = State(width, height, opened_targets=((name, keys[name]),), look=look(name, keys[name]))
    else:
        made = State(width, height, tab=name, look=look(name))
    return replace(made, **more)


def text(shown: State) -> str:
    return "\n".join(line.plain.rstrip() for line in frame(shown)) + "\n"


def typed(shown: State, *pressed: str) -> tuple[State, list[Any]]:
    """Return the state after these keys, and the commands that the keys ask for."""
    wanted = []
    for key in pressed:
        shown, one = press(shown, key)
        wanted += [] if one is None else [one]
    return shown, wanted
