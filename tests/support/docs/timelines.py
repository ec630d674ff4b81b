"""Draw the timelines of docs/concepts/policies.md from rows of the real tick, admission, claim and settlement.

Invariant: only the time is simulated. All instants are moved (tests/support/db/passing.py), by two minutes in each
step. The duration of a run is counted in steps. One character is one minute.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import psycopg

from pgsched.core.model import Claim, Result
from pgsched.db.queries.leader import ticks
from pgsched.leader.dependents import decide_dependencies
from tests.support.db.passing import lead, pass_time
from tests.support.db.setting import done, take
from tests.support.db.settling import settle

STEP = 2
BEGIN = 10  # the job is created at 9:50, and its first slot is at 10:00
STOPS = 4  # minutes that a run takes to stop after a cancel request
LABEL = 10
Hours = tuple[int, int]  # from and until, in minutes after the job was created


@dataclass(frozen=True)
class Scene:
    """A job that is due every ten minutes, and what happens to it.

    `columns`: its policies.
    `takes`: minutes that each run takes.
    `until`: the last minute.
    `nobody`: when there is neither a leader nor a worker.
    `no_worker`: when there is a leader, but no worker.
    `paused`: when the job is paused.
    `resume`: what is set together with `paused = false`.
    """

    columns: Mapping[str, Any]
    takes: int
    until: int
    nobody: Hours = (0, 0)
    no_worker: Hours = (0, 0)
    paused: Hours = (0, 0)
    resume: str = ""


SCENES = {
    **{
        f"overlap = {policy}": Scene({"overlap": policy}, 24, 66)
        for policy in ("skip", "allow", "buffer_one", "buffer_all", "replace", "terminate")
    },
    "overlap = skip, retry_within = 8 minutes": Scene({"overlap": "skip", "retry_within": "8 minutes"}, 24, 66),
    **{
        f"catch_up = {policy}": Scene({"catch_up": policy}, 4, 76, nobody=(16, 46))
        for policy in ("latest", "skip", "earliest", "all")
    },
    "start_deadline = 16 minutes": Scene(
        {"overlap": "allow", "start_deadline": "16 minutes"}, 4, 56, no_worker=(6, 42)
    ),
    "paused at 10:06, resumed at 10:36": Scene({}, 4, 66, paused=(16, 46)),
    "paused at 10:06, resumed at 10:36 with resume_from = pause": Scene(
        {}, 4, 66, paused=(16, 46), resume=", resume_from = 'pause'"
    ),
}


def draw(db: psycopg.Connection[Any], dsn: str, scene: Scene) -> str:
    """Play the scene; return its picture."""
    names = ", ".join(scene.columns)
    db.execute(
        f"INSERT INTO pgsched.jobs (name, schedule, task{names and ', ' + names})"
        f" VALUES ('a', '@every 10m', 't'{', %s' * len(scene.columns)})".encode(), [*scene.columns.values()],
    )  # fmt: skip
    running: dict[int, Running] = {}
    bars: dict[int, str] = {}
    for minute in range(0, scene.until + 1, STEP):
        if minute in scene.paused and scene.paused != (0, 0):
            pause(db, scene, minute)
        if not within(minute, scene.nobody):
            for _ in range(2):  # a run that ends may let another one begin in the same minute
                end(db, dsn, running, minute, scene.takes)
                round_of_the_leader(db)
                if not within(minute, scene.no_worker):
                    running |= {claim.id: Running(claim, minute) for claim in take(db, 10)}
        for run_id, _, finished in standing(db):
            mark = "" if finished else "#" if run_id in running else "."
            bars[run_id] = bars.get(run_id, " " * (minute - BEGIN)) + mark * STEP
        pass_time(db, STEP * 60)
    return picture(db, scene, bars)


@dataclass
class Running:
    claim: Claim
    since: int
    asked: int | None = None  # the minute in which it was asked to stop


def within(minute: int, hours: Hours) -> bool:
    return hours[0] <= minute < hours[1]


def pause(db: psycopg.Connection[Any], scene: Scene, minute: int) -> None:
    begins = minute == scene.paused[0]
    db.execute(f"UPDATE pgsched.jobs SET paused = {begins}{'' if begins else scene.resume}".encode())


def end(db: psycopg.Connection[Any], dsn: str, running: dict[int, Running], minute: int, takes: int) -> None:
    """Settle the runs whose time is over, and those that were asked to stop; forget all runs that have ended.

    If another party ended a run, the settlement here is refused, because the claim is lost.
    """
    for run_id, run in running.items():
        asked = db.execute(
            "SELECT cancel_requested_at IS NOT NULL FROM pgsched.runs WHERE id = %s", [run_id]
        ).fetchone()
        if run.asked is None and asked == (True,):
            run.asked = minute
        if run.asked is not None and run.asked + STOPS <= minute:
            settle(dsn, done(run.claim, Result.CANCELLED))
        elif run.since + takes <= minute:
            settle(dsn, done(run.claim))
    for (run_id,) in db.execute("SELECT id FROM pgsched.runs WHERE finished_at IS NOT NULL").fetchall():
        running.pop(run_id, None)


def round_of_the_leader(db: psycopg.Connection[Any]) -> None:
    lead(db)
    with db.transaction():
        decide_dependencies(db, 100)
        ticks.admit(db, 100)


def standing(db: psycopg.Connection[Any]) -> list[Any]:
    """Return for each row its id, the minute of its slot, and whether it has ended."""
    return db.execute(
        "SELECT r.id, round(extract(epoch FROM r.scheduled_at - j.anchor_at) / 60)::int, r.finished_at IS NOT NULL"
        " FROM pgsched.runs r JOIN pgsched.jobs j ON j.id = r.job_id ORDER BY r.scheduled_at"
    ).fetchall()


def picture(db: psycopg.Connection[Any], scene: Scene, bars: dict[int, str]) -> str:
    hours = range(BEGIN, scene.until, 10)
    lines = [" " * LABEL + "".join(f"{clock(minute):<10}" for minute in hours).rstrip()]
    for label, (begins, ends) in {
        "nobody": scene.nobody, "no worker": scene.no_worker, "paused": scene.paused
    }.items():  # fmt: skip
        if ends:
            first = max(begins, BEGIN)
            lines.append(f"{label:<{LABEL}}{' ' * (first - BEGIN)}{'~' * (ends - first)}")
    for run_id, minute, _ in standing(db):
        row = db.execute(
            "SELECT state, coalesce(reason, cancel_reason, ''), covers_count FROM pgsched.runs WHERE id = %s", [run_id]
        ).fetchone()
        assert row is not None
        bar = bars[run_id] if bars[run_id].strip() else bars[run_id] + "x"
        lines.append(f"{clock(minute):<{LABEL}}{bar} {told(*row)}".rstrip())
    return "\n".join(lines) + "\n"


def clock(minute: int) -> str:
    return f"{10 + (minute - BEGIN) // 60}:{(minute - BEGIN) % 60:02d}"


def told(state: str, reason: str, count: int | None) -> str:
    """Return the state and the reason of a row, without instants."""
    reason = re.sub(r"(: not started by|, nor by| since)? \S*\d{4}-\d\d-\d\d.*", "", reason)
    words = state if state not in ("succeeded", "running") else ""
    said = f"{words}{': ' if words and reason else ''}{reason}"
    return f"{said} (stands for {count} slots)".lstrip() if count else said
