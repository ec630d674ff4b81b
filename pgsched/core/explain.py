"""Why did it not run? The rule: every slot has exactly one answer, and it is the first that the facts bear out.

Pure: `Facts` is all that the database knows about one slot of one job at one moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pgsched.core.absence import absences
from pgsched.core.told import Answer, Around, at, span, stretch, told

Row = Mapping[str, Any]
LATE = timedelta(seconds=5)


@dataclass(frozen=True, slots=True)
class Facts:
    """One slot of a job. `asked`: the instant of the question; `nearest`: the slots next to it where it is none."""

    now: datetime
    job: Row
    slot: datetime
    asked: datetime | None = None
    nearest: tuple[datetime | None, datetime | None] | None = None
    run: Row | None = None  # the slot's own row, else that of the stretch that it lies in
    around: Around = field(default_factory=Around)
    terms: Sequence[Row] = ()
    passed_over: Row | None = None  # a stretch that is about to get its row
    excluded: str | None = None
    newest: datetime | None = None  # the newest slot with a row


@dataclass(frozen=True, slots=True)
class Explanation:
    """What happened to a slot and why. `run_id`: the row that tells of it."""

    job: str
    asked: datetime | None
    slot: datetime
    is_slot: bool
    nearest: tuple[datetime | None, datetime | None] | None
    answer: str
    text: str
    run_id: int | None
    details: dict[str, Any]


def explain(facts: Facts) -> Explanation:
    """The answer for one slot."""
    found = by_row(facts) if facts.run is not None else without_row(facts)
    text = f"{preface(facts)}Slot {at(facts.slot)} of job {facts.job['name']}: {found.text}."
    run_id = None if facts.run is None else facts.run["id"]
    return Explanation(facts.job["name"], facts.asked, facts.slot, facts.nearest is None, facts.nearest, found.answer,
                       text, run_id, found.details)  # fmt: skip


def preface(facts: Facts) -> str:
    """That the instant of the question is no slot."""
    if facts.nearest is None or facts.asked is None:
        return ""
    names = " and ".join(at(slot) for slot in facts.nearest if slot is not None)
    schedule = f"{facts.job['schedule']} ({facts.job['timezone']})"
    return f"{at(facts.asked)} is not a slot of {schedule}; the nearest are {names}. "


def by_row(facts: Facts) -> Answer:
    """What the row says, and why it was decided late."""
    run = facts.run
    assert run is not None
    found = told(run, facts.around)
    text, answer = f"run {run['id']}: {found.text}", found.answer
    if run["scheduled_at"] != facts.slot:
        text = (
            f"it lies in a stretch of {stretch(run)}, whose one row is that of slot {at(run['scheduled_at'])}: {text}"
        )
        answer = answer if run["state"] in ("skipped", "missed") else "coalesced"
    gaps = absences(facts.terms, facts.slot, run["created_at"])
    if run["origin"] == "schedule" and run["created_at"] - facts.slot > LATE and answer not in ("paused", "excluded"):
        text += f". It was decided {span(run['created_at'] - facts.slot)} late" + because(gaps)
    elif run["origin"] != "schedule":
        text += (
            ". It was asked for by hand"
            if run["origin"] == "manual"
            else f". Backfill {run['backfill_id']} asked for it"
        )
    return Answer(answer, text, found.details | details(run, gaps))


def details(run: Row, gaps: Sequence[tuple[datetime, datetime]]) -> dict[str, Any]:
    """The facts of a row that programs may want."""
    names = ("state", "origin", "attempt", "max_attempts", "scheduled_at", "available_at", "created_at", "started_at")
    more = ("finished_at", "worker", "reason", "error", "covers_from", "covers_until", "covers_count")
    return {name: run[name] for name in (*names, *more)} | {"no_leader": [list(gap) for gap in gaps]}


def because(gaps: Sequence[tuple[datetime, datetime]]) -> str:
    """`, because nobody led from A to B`"""
    return ", because nobody led " + " and ".join(f"from {at(a)} to {at(b)}" for a, b in gaps) if gaps else ""


def without_row(facts: Facts) -> Answer:
    """The first rule that fits a slot without a row."""
    for rule in RULES:
        if (found := rule(facts)) is not None:
            return found
    decided = at(facts.job["decided_until"])
    why = "history is pruned after a while, or somebody deleted it"
    return Answer(
        "forgotten", f"it was decided, as all slots until {decided} are, but its row is no longer kept: {why}"
    )


def held_up(facts: Facts) -> tuple[list[str], list[str]]:
    """What keeps a slot that is not decided from being decided: words for programs, and for people."""
    job, found = facts.job, []
    if job["error"] is not None:
        found.append(("job_in_error", f"the job is in error since {at(job['error_at'])}: {job['error']}"))
    if job["paused"]:
        why = f": {job['paused_reason']}" if job["paused_reason"] else ""
        found.append(("paused", f"the job is paused since {at(job['paused_at'])} by {job['paused_by']}{why}"))
    gaps = absences(facts.terms, facts.now - 2 * LATE, facts.now)
    if gaps and gaps[-1][1] == facts.now:
        found.append(("no_leader", "nobody leads now (start a pgsched worker)"))
    return [word for word, _ in found], [text for _, text in found]


def to_come(facts: Facts) -> Answer | None:
    """It is in the future."""
    if facts.slot <= facts.now or ended(facts) or used_up(facts):
        return None
    words, texts = held_up(facts)
    if facts.excluded is not None:
        words, texts = [*words, "excluded"], [*texts, f"it will be skipped: {facts.excluded}"]
    text = f"it is still to come, in {span(facts.slot - facts.now)}"
    return Answer("future", "; but ".join([text, " and ".join(texts)] if texts else [text]), {"held_up_by": words})


def before(facts: Facts) -> Answer | None:
    """It lies before the schedule began."""
    job, slot = facts.job, facts.slot
    if job["schedule"] is None:
        return None
    if slot <= job["created_at"]:
        return Answer("before_creation", f"the job was created later, at {at(job['created_at'])}; "
                                         "pgsched backfill can run earlier slots")  # fmt: skip
    if job["starts_at"] is not None and slot < job["starts_at"]:
        return Answer("before_start", f"the job starts later: its starts_at is {at(job['starts_at'])}")
    if slot <= job["anchor_at"]:
        return Answer("before_edit", f"the schedule was edited later, at {at(job['anchor_at'])}, and begins there")
    return None


def ended(facts: Facts) -> Answer | None:
    """It lies behind the end."""
    ends_at = facts.job["ends_at"]
    if ends_at is None or facts.slot <= ends_at:
        return None
    return Answer("after_end", f"the job's last slot is before it: its ends_at is {at(ends_at)}")


def used_up(facts: Facts) -> Answer | None:
    """The job has had all its runs."""
    most = facts.job["max_runs"]
    if most is None or facts.job["run_count"] < most or (facts.newest is not None and facts.slot < facts.newest):
        return None
    return Answer("max_runs", f"the job has had all its runs: its max_runs is {most}")


def noted(facts: Facts) -> Answer | None:
    """An edit or a resume passed over it a moment ago."""
    if facts.passed_over is None:
        return None
    reason = facts.passed_over["reason"]
    answer = "paused" if facts.passed_over["state"] == "skipped" else "edited"
    return Answer(answer, f"it did not run: {reason}. The leader has not recorded it yet")


def undecided(facts: Facts) -> Answer | None:
    """It is due, and nobody has decided it."""
    mark = facts.job["decided_until"]
    if mark is not None and facts.slot <= mark:
        return None
    words, texts = held_up(facts)
    gaps = absences(facts.terms, facts.slot, facts.now)
    more = {"held_up_by": words, "no_leader": [list(gap) for gap in gaps]}
    if texts and words[0] != "no_leader":
        return Answer(words[0], f"it is not decided, because {' and '.join(texts)}", more)
    if gaps:
        return Answer("no_leader", "it is not decided yet" + because(gaps)
                      + (": nobody leads now (start a pgsched worker)" if texts else ""), more)  # fmt: skip
    return Answer(
        "undecided", f"it is due since {span(facts.now - facts.slot)}, and the leader is about to decide it", more
    )


RULES: tuple[Callable[[Facts], Answer | None], ...] = (to_come, ended, noted, before, used_up, undecided)
