"""Turn a run's row into an answer about its slot: one word for programs, and text for people.

Invariant: there is an answer for every state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pgsched.core.model import Kind
from pgsched.core.planning.overlap import IN_TURN
from pgsched.core.units import format_elapsed
from pgsched.core.waiting_reasons import NEWEST_RELEASE

Row = Mapping[str, Any]
Seconds = timedelta | float
# The beginning of `reason` in rows that never ran, and the answer that it stands for.
REASONS = (
    ("paused since", "paused"),
    ("overlap:", "overlap"),
    ("shadow", "shadow"),
    ("excluded ", "excluded"),
    ("the schedule was edited", "edited"),
    ("run_at was edited", "edited"),
    ("the job was in error", "job_in_error"),
    ("the job had ended: its ends_at", "after_end"),
    ("the job had ended: its max_runs", "max_runs"),
)
# What a slot waits for, by jobs.after_match.
WAITED_FOR = {"latest": "the newest slot", "since_last": "a success"}


@dataclass(frozen=True, slots=True)
class Answer:
    """One word for programs, one or more sentences for people, and the facts in them."""

    answer: str
    text: str
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunContext:
    """Other facts that bear on a run.

    `others`: the job's other open runs.
    `live_workers`: how many live workers there are. `offering_workers`: how many of them would take the run.
    `held_by`: the pauses and limits that hold the run.
    `parents`: the runs that this run depends on; None: it has no dependencies.
    `earlier`: for a slot skipped by its overlap policy: why the earlier run is not finished; None: it is finished.
    `hint`: similar tasks that are offered.
    """

    others: Sequence[Row] = ()
    live_workers: int = 0
    offering_workers: int = 0
    held_by: str | None = None
    parents: Sequence[Row] | None = None
    earlier: str | None = None
    hint: str = ""


def format_instant(instant: datetime) -> str:
    """Format an instant: `2026-05-01 02:00:00 UTC`."""
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def format_timedelta(length: timedelta) -> str:
    """Format a length of time: `0.4 seconds`, `3 minutes`, `1 minute 41 seconds`."""
    seconds = length.total_seconds()
    return f"{round(max(seconds, 0), 3):g} seconds" if seconds < 1 else format_elapsed(length)


def answer_from_row(run: Row, around: RunContext) -> Answer:
    """Return the answer for a run's row (the columns of run_show, and its `attempts`)."""
    return ANSWERS[run["state"]](run, around)


def first_start(run: Row) -> datetime | None:
    """Return when the first attempt started."""
    starts = [attempt["started_at"] for attempt in run["attempts"]] + [run["started_at"]]
    return min((start for start in starts if start is not None), default=None)


def describe_attempts(run: Row) -> str:
    """Describe how many attempts there were, and the last error."""
    count = f"{run['attempt']} attempt{'' if run['attempt'] == 1 else 's'}"
    error = last_error(run)
    return f"{count}, the last error: {error}" if error else count


def last_error(run: Row) -> str | None:
    """Return the first line of the last error."""
    error = run["error"] or next((a["error"] for a in reversed(run["attempts"]) if a["error"]), None)
    return str(error).splitlines()[0] if error else None


def describe_lateness(run: Row) -> tuple[str, timedelta | None]:
    """Return how late the run started, in words and as a length of time."""
    start = first_start(run)
    if start is None:
        return "it never started", None
    by = start - run["scheduled_at"]
    return f"it started at {format_instant(start)}, {format_timedelta(by)} after the slot", by


def ran(run: Row, _: RunContext) -> Answer:
    """Answer for a run that succeeded."""
    words, by = describe_lateness(run)
    how = f"after {describe_attempts(run)}" if run["attempt"] > 1 else "at the first attempt"
    text = f"it ran: {words}, and succeeded at {format_instant(run['finished_at'])} {how}"
    return Answer("ran", text + describe_covered_slots(run), {"late_s": None if by is None else by.total_seconds()})


def describe_covered_slots(run: Row) -> str:
    """Name the other slots that the run stood for; a row revived for its own slot stood for none of them."""
    if run["origin"] != "schedule" or run["covers_state"] or run["covers_from"] in (None, run["covers_until"]):
        return ""
    return f"; it ran once for {describe_stretch(run)}"


def describe_stretch(run: Row) -> str:
    """Describe the stretch of slots that a row stands for."""
    count = f"{run['covers_count']} slots" if run["covers_count"] is not None else "the slots"
    return f"{count} from {format_instant(run['covers_from'])} to {format_instant(run['covers_until'])}"


def failed(run: Row, _: RunContext) -> Answer:
    """Answer for a dead run."""
    words, by = describe_lateness(run)
    text = (
        f"it failed: {words}, and was given up at {format_instant(run['finished_at'])} after {describe_attempts(run)}"
    )
    why = f" ({run['reason']})" if run["reason"] else ""
    return Answer("failed", text + why, {"late_s": None if by is None else by.total_seconds()})


def cancelled(run: Row, _: RunContext) -> Answer:
    """Answer for a cancelled run."""
    return Answer(
        "cancelled",
        f"it was cancelled at {format_instant(run['finished_at'])}: {run['reason'] or 'no reason was given'}",
    )


def answer_of(state: str, reason: str) -> str:
    """Return the answer for the reason why a row did not run."""
    otherwise = "skipped" if state == "skipped" else "too_late"
    return next((answer for start, answer in REASONS if reason.startswith(start)), otherwise)


def never_ran(run: Row, around: RunContext) -> Answer:
    """Answer for a skipped or missed slot, with the reason in its row."""
    reason = run["reason"] or "no reason was recorded"
    answer = answer_of(run["state"], reason)
    step = f"; {around.earlier}" if around.earlier else ""
    when = f"recorded as {run['state']} at {format_instant(run['finished_at'])}"
    return Answer(answer, f"it did not run, and was {when}: {reason}{step}")


def describe_unfinished(run: Row, around: RunContext) -> str:
    """Describe why an unfinished run is not finished, for a slot that was skipped because of it."""
    return f"run {run['id']} is not finished yet: {answer_from_row(run, around).text}"


def answer_before_revival(run: Row) -> Answer:
    """Answer for a stretch of slots whose row was later revived for one of them, from the row's former state."""
    state, reason = run["covers_state"], run["covers_reason"]
    if state in ("skipped", "missed"):
        return never_ran({**run, "state": state, "reason": reason, "finished_at": run["created_at"]}, RunContext())
    ended = {"succeeded": "succeeded", "cancelled": "was cancelled"}.get(state, "failed")
    why = f" ({reason})" if reason and state != "succeeded" else ""
    return Answer("coalesced", f"that run was for all of them, and {ended}{why}")


def queued(run: Row, around: RunContext) -> Answer:
    """Answer for a queued run."""
    since = f"it has been queued since {format_instant(run['available_at'])} on queue {run['queue']}"
    if run["attempt"]:
        since += f", to be tried again after {describe_attempts(run)}"
    if around.held_by is not None:
        return Answer("paused", f"{since}, and does not start: {around.held_by}")
    if waits_for_newest_release(run):
        return Answer("queued", f"{since}; it {run['reason']}")
    needs = f"task {run['task']}" if run["kind"] == Kind.TASK else f"kind {run['kind']}"
    if not around.live_workers:
        return Answer("unroutable", f"{since}, and there is no live worker")
    if not around.offering_workers:
        none = (
            "the one live worker does not offer"
            if around.live_workers == 1
            else f"none of {around.live_workers} live workers offers"
        )
        return Answer("unroutable", f"{since}, and {none} {needs} there{around.hint}")
    workers = (
        "the one worker that offers"
        if around.offering_workers == 1
        else f"one of {around.offering_workers} workers that offer"
    )
    return Answer("queued", f"{since}, and waits for {workers} {needs} to be free")


def running(run: Row, _: RunContext) -> Answer:
    """Answer for a running run."""
    words, by = describe_lateness(run)
    where = f"on worker {run['worker']}" if run["worker"] else "on a worker that is no longer known"
    attempt = f"attempt {run['attempt']} of {run['max_attempts']}"
    text = f"it has been running {where} since {format_instant(run['started_at'])} ({attempt}); {words}"
    if run["cancel_requested_at"] is not None:
        text += (
            f"; its worker was asked to stop it at {format_instant(run['cancel_requested_at'])}: {run['cancel_reason']}"
        )
    return Answer("running", text, {"late_s": None if by is None else by.total_seconds()})


def waiting(run: Row, around: RunContext) -> Answer:
    """Answer for a waiting run."""
    if around.held_by is not None:
        return Answer("limited", f"it waits for its limits since {format_instant(run['ready_at'])}: {around.held_by}")
    if around.parents is not None:
        return waiting_for_parents(around.parents)
    before = [other for other in around.others if other["id"] != run["id"]]
    names = ", ".join(
        f"run {other['id']} ({other['state']}, slot {format_instant(other['scheduled_at'])})" for other in before[:3]
    )
    whom = names + (f" and {len(before) - 3} more" if len(before) > 3 else "") if before else "the leader to release it"
    until = f", until {format_instant(run['held_until'])} at the latest" if run.get("held_until") else ""
    in_turn = run["reason"] == IN_TURN
    why = "late slots are caught up one after the other" if in_turn else "its overlap policy holds it back"
    return Answer("waiting", f"{why}: it waits for {whom}{until}", {"waits_for": [other["id"] for other in before]})


def waiting_for_parents(parents: Sequence[Row]) -> Answer:
    """Answer for a run that waits for the runs that it depends on."""
    names = [
        f"{WAITED_FOR.get(parent['match'], 'the same slot')} of {parent['job']}" if parent["id"] is None
        else f"run {parent['id']} ({', '.join(part for part in (parent['job'], parent['state']) if part)})"
        for parent in parents
    ]  # fmt: skip
    whom = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    ids = [parent["id"] for parent in parents if parent["id"] is not None]
    return Answer("waiting", f"it is to run after others: it waits for {whom or 'the leader to release it'}",
                  {"waits_for": ids})  # fmt: skip


def waits_for_newest_release(run: Row) -> bool:
    """Check whether the last worker that took the run gave it back to a newer release of its task."""
    return (run["reason"] or "").startswith(NEWEST_RELEASE)


def scheduled(run: Row, _: RunContext) -> Answer:
    """Answer for a scheduled run: it was put off by itself or for a release, is a retry, or was moved by jitter."""
    at = format_instant(run["available_at"])
    last = f"attempt {run['attempt']} of {run['max_attempts']} failed: {last_error(run) or 'no error was recorded'}"
    after = f"; {last}" if run["attempt"] else ""
    if waits_for_newest_release(run):
        return Answer("scheduled", f"it {run['reason']}; a worker looks again at {at}{after}")
    if run["reason"] and run["started_at"] is not None:
        return Answer("scheduled", f"it put itself off until {at}: {run['reason']}{after}")
    if run["attempt"]:
        return Answer("retrying", f"it is to be tried again at {at}{after}")
    by = run["available_at"] - run["scheduled_at"]
    if run["origin"] != "schedule" or by <= timedelta(0):
        return Answer("scheduled", f"it starts at {at}")
    return Answer("scheduled", f"it starts at {at}: the job's jitter moves it by {format_timedelta(by)}")


ANSWERS: dict[str, Callable[[Row, RunContext], Answer]] = {
    "succeeded": ran, "dead": failed, "cancelled": cancelled, "skipped": never_ran, "missed": never_ran,
    "queued": queued, "running": running, "waiting": waiting, "scheduled": scheduled,
}  # fmt: skip
