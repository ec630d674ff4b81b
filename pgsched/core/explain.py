"""Explain what happened to one slot of a job, in particular why it did not run.

Pure: `SlotFacts` is all that the database knows about the slot at one moment.

Invariant: every slot has exactly one answer, the first one that the facts support.

`pgsched.explain` in SQL (migrations/1002_surface/51_explain.sql) cannot compute slots. Where no answer needs that, it
says the same in the same words. Change both or neither; tests compare them (tests/support/db/explaining.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pgsched.core.explanations import (
    Answer,
    RunContext,
    answer_before_revival,
    answer_from_row,
    answer_of,
    describe_stretch,
    format_instant,
    format_timedelta,
)
from pgsched.core.leader_absence import absences
from pgsched.core.planning.plan import SHADOW, is_shadow

Row = Mapping[str, Any]
LATE = timedelta(seconds=5)
# Answers whose rows are always made later than their slots.
NOT_LATE = ("paused", "excluded", "after_end", "max_runs")


@dataclass(frozen=True, slots=True)
class SlotFacts:
    """What the database knows about one slot of a job.

    `asked`: the instant that was asked about.
    `nearest`: the slots before and after `asked`; None where `asked` is a slot.
    `passed_over`: a stretch that an edit or a resume passed over, and that has no row yet.
    `behind_last`: the undecided slots before this one use up all runs that `max_runs` leaves.
    """

    now: datetime
    job: Row
    slot: datetime
    asked: datetime | None = None
    nearest: tuple[datetime | None, datetime | None] | None = None
    run: Row | None = None  # the slot's own row, else the row of the stretch that contains it
    around: RunContext = field(default_factory=RunContext)
    terms: Sequence[Row] = ()
    passed_over: Row | None = None
    excluded: str | None = None
    behind_last: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """What happened to a slot and why.

    `slot`: None where the job has no slot.
    `nearest`: the slots before and after `asked`; None where `asked` is a slot.
    `answer`: one word for programs. `text`: sentences for people.
    `run_id`: the row that the answer comes from.
    """

    job: str
    asked: datetime | None
    slot: datetime | None
    is_slot: bool
    nearest: tuple[datetime | None, datetime | None] | None
    answer: str
    text: str
    run_id: int | None
    details: dict[str, Any]


def explain(facts: SlotFacts) -> Explanation:
    """Return the answer for one slot."""
    found = by_row(facts) if facts.run is not None else without_row(facts)
    text = f"{describe_nearest_slots(facts)}Slot {format_instant(facts.slot)} of job {facts.job['name']}: {found.text}."
    run_id = None if facts.run is None else facts.run["id"]
    return Explanation(facts.job["name"], facts.asked, facts.slot, facts.nearest is None, facts.nearest, found.answer,
                       text, run_id, found.details)  # fmt: skip


def without_slot(job: Row, asked: datetime | None) -> Explanation:
    """Return the answer for a job in error whose schedule gives no slots, for example because it never fires."""
    text = f"Job {job['name']} has no slot to tell of: it {in_error(job)}."
    return Explanation(job["name"], asked, None, False, None, "job_in_error", text, None, {})


def in_error(job: Row) -> str:
    """Return since when the job has been in error, and why."""
    return f"has been in error since {format_instant(job['error_at'])}: {job['error']}"


def describe_nearest_slots(facts: SlotFacts) -> str:
    """Return a sentence that the instant asked about is no slot; empty where it is one."""
    if facts.nearest is None or facts.asked is None:
        return ""
    job, slots = facts.job, [slot for slot in facts.nearest if slot is not None]
    whose = f"{job['schedule']} ({job['timezone']})" if job["schedule"] else f"job {job['name']}"
    nearest = f"the nearest {'is' if len(slots) == 1 else 'are'} {' and '.join(format_instant(slot) for slot in slots)}"
    asked = format_instant(facts.asked) if not facts.asked.microsecond else f"{facts.asked:%Y-%m-%d %H:%M:%S.%f} UTC"
    return f"{asked} is not a slot of {whose}; {nearest}. "


def by_row(facts: SlotFacts) -> Answer:
    """Return the answer that the slot's row gives, and how the row was made."""
    run = facts.run
    assert run is not None
    if run["scheduled_at"] == facts.slot:
        found = answer_from_row(run, facts.around)
        origin = describe_origin(facts, run, found.answer) + describe_shift(run)
        return Answer(found.answer, f"run {run['id']}: {found.text}{origin}",
                      found.details | details(run, gaps_before(facts, run)))  # fmt: skip
    revived = run["covers_state"] is not None
    row = (
        {**run, "state": run["covers_state"], "reason": run["covers_reason"], "origin": "schedule"} if revived else run
    )
    found = answer_before_revival(run) if revived else answer_from_row({**run, "covers_from": None}, facts.around)
    answer = found.answer if row["state"] in ("skipped", "missed") else "coalesced"
    one_row = f"one row, that of slot {format_instant(run['scheduled_at'])}, run {run['id']}"
    where = f"it lies in a stretch of {describe_stretch(run)}, which has {one_row}"
    if begins := describe_later_schedule(facts):
        where = f"{begins}; of the one before, {describe_stretch(run)} have {one_row}"
    text = f"{where}: {found.text}{describe_origin(facts, row, answer)}"
    if revived:
        text += f". Later run {run['id']} was revived, for slot {format_instant(run['scheduled_at'])} alone"
    return Answer(answer, text, found.details | details(row, gaps_before(facts, run)))


def describe_later_schedule(facts: SlotFacts) -> str:
    """Return since when the present schedule applies, if the slot lies before that; otherwise an empty string.

    Stretches before that instant need not contain slots of this schedule.
    """
    if facts.job["schedule"] is None or facts.slot >= facts.job["anchor_at"]:
        return ""
    return f"the schedule of today begins at {format_instant(facts.job['anchor_at'])}"


def gaps_before(facts: SlotFacts, run: Row) -> list[tuple[datetime, datetime]]:
    """Return the times without a leader from the slot until its row was made."""
    return absences(facts.terms, facts.slot, run["created_at"])


def describe_origin(facts: SlotFacts, run: Row, answer: str) -> str:
    """Describe what asked for the run (a person or a backfill), or why it was decided late."""
    if run["origin"] == "manual":
        return ". It was asked for by hand"
    if run["origin"] != "schedule":
        return f". Backfill {run['backfill_id']} asked for it"
    by = run["created_at"] - facts.slot
    late = "" if by <= LATE or answer in NOT_LATE else f". It was decided {format_timedelta(by)} late"
    return late + describe_absences(gaps_before(facts, run), facts.slot) if late else ""


def describe_shift(run: Row) -> str:
    """Describe from where a calendar has moved the slot of a run; an empty text where none has."""
    nominal = run.get("nominal_at")
    return "" if nominal is None else f". A calendar moved it there from {format_instant(nominal)}"


def details(run: Row, gaps: Sequence[tuple[datetime, datetime]]) -> dict[str, Any]:
    """Return the facts of a row that programs may want."""
    names = ("state", "origin", "attempt", "max_attempts", "scheduled_at", "available_at", "created_at", "started_at")
    more = ("finished_at", "worker", "reason", "error", "covers_from", "covers_until", "covers_count")
    return {name: run[name] for name in (*names, *more)} | {"no_leader": [list(gap) for gap in gaps]}


def describe_absences(gaps: Sequence[tuple[datetime, datetime]], slot: datetime) -> str:
    """Return `, because no process led from A to B`, the reason why a slot was decided late.

    If a process led when the slot came, the gap is not the reason, but still a fact: `; meanwhile ...`.
    """
    if not gaps:
        return ""
    absent = "no process led " + " and ".join(f"from {format_instant(a)} to {format_instant(b)}" for a, b in gaps)
    return f", because {absent}" if gaps[0][0] - slot <= LATE else f"; meanwhile {absent}"


def without_row(facts: SlotFacts) -> Answer:
    """Return the answer of the first rule that fits a slot without a row."""
    for rule in RULES:
        if (found := rule(facts)) is not None:
            return found
    decided = format_instant(facts.job["decided_until"])
    why = "history is pruned after a while, or it was deleted"
    return Answer(
        "forgotten", f"it was decided, as all slots until {decided} are, but its row is no longer kept: {why}"
    )


def describe_obstacles(facts: SlotFacts) -> tuple[list[str], list[str]]:
    """Return what keeps an undecided slot from being decided: words for programs, and texts for people."""
    job, found = facts.job, []
    if job["error"] is not None:
        found.append(("job_in_error", f"the job {in_error(job)}"))
    if job["paused"]:
        why = f": {job['paused_reason']}" if job["paused_reason"] else ""
        found.append(
            ("paused", f"the job has been paused since {format_instant(job['paused_at'])} by {job['paused_by']}{why}")
        )
    gaps = absences(facts.terms, facts.now - 2 * LATE, facts.now)
    if gaps and gaps[-1][1] == facts.now:
        found.append(("no_leader", "no process leads now (start a pgsched worker)"))
    return [word for word, _ in found], [text for _, text in found]


def answer_future(facts: SlotFacts) -> Answer | None:
    """Answer for a slot in the future."""
    mark = facts.job["decided_until"]
    if facts.slot <= facts.now or answer_after_end(facts) or answer_max_runs(facts) or answer_before_start(facts):
        return None
    if mark is not None and facts.slot <= mark:
        why = f"all slots until {format_instant(mark)} are: the clock has stepped back, or the mark was moved"
        return answer_passed_over(facts) or Answer("decided_ahead", f"it is ahead of the clock, but decided: {why}")
    if facts.behind_last:
        unless = "unless slots before it are skipped or missed"
        return Answer("max_runs", f"it lies behind the last run, {unless}: {describe_runs_left(facts)}")
    words, texts = describe_obstacles(facts)
    skipped = facts.excluded or (SHADOW if is_shadow(facts.job) else None)
    if skipped is not None:
        words, texts = [*words, "excluded" if facts.excluded else SHADOW], [*texts, f"it will be skipped: {skipped}"]
    text = f"it is still to come, in {format_timedelta(facts.slot - facts.now)}"
    return Answer("future", "; but ".join([text, "; and ".join(texts)] if texts else [text]), {"held_up_by": words})


def answer_before_start(facts: SlotFacts) -> Answer | None:
    """Answer for a slot before the schedule began."""
    job, slot = facts.job, facts.slot
    if job["schedule"] is None:
        return None
    if slot <= job["created_at"]:
        return Answer("before_creation", f"the job was created later, at {format_instant(job['created_at'])}; "
                                         "pgsched backfill can run earlier slots")  # fmt: skip
    if job["starts_at"] is not None and slot < job["starts_at"]:
        return Answer("before_start", f"the job starts later: its starts_at is {format_instant(job['starts_at'])}")
    if slot < job["anchor_at"] or slot == job["anchor_at"] != job["starts_at"]:
        return Answer(
            "before_edit", f"the schedule was edited later, at {format_instant(job['anchor_at'])}, and begins there"
        )
    return None


def answer_after_end(facts: SlotFacts) -> Answer | None:
    """Answer for a slot after the job's end."""
    ends_at = facts.job["ends_at"]
    if ends_at is None or facts.slot <= ends_at:
        return None
    return Answer("after_end", f"it lies behind the end of the job: its ends_at is {format_instant(ends_at)}")


def answer_max_runs(facts: SlotFacts) -> Answer | None:
    """Answer for a slot of a job that has had all its runs."""
    most, mark = facts.job["max_runs"], facts.job["decided_until"]
    if most is None or facts.job["run_count"] < most or (mark is not None and facts.slot <= mark):
        return None
    return Answer("max_runs", f"the job has had all its runs: its max_runs is {most}")


def describe_runs_left(facts: SlotFacts) -> str:
    """Return how many runs the job may still have."""
    most = facts.job["max_runs"]
    runs = most - facts.job["run_count"]
    return f"its max_runs is {most}, and {runs} run{' is' if runs == 1 else 's are'} left for the slots until then"


def answer_passed_over(facts: SlotFacts) -> Answer | None:
    """Answer for a slot that an edit or a resume passed over a moment ago."""
    if facts.passed_over is None:
        return None
    reason = facts.passed_over["reason"]
    begins = describe_later_schedule(facts)
    what = f"{begins}; slots of the one before" if begins else "it"
    text = f"{what} did not run: {reason}. The leader has not recorded it yet"
    return Answer(answer_of(facts.passed_over["state"], reason), text)


def answer_undecided(facts: SlotFacts) -> Answer | None:
    """Answer for a slot that is due and not decided yet."""
    mark = facts.job["decided_until"]
    if mark is not None and facts.slot <= mark:
        return None
    words, texts = describe_obstacles(facts)
    early = words[:1] == ["paused"] and facts.slot < facts.job["paused_at"]
    gaps = absences(facts.terms, facts.slot, facts.job["paused_at"] if early else facts.now)
    more = {"held_up_by": words, "no_leader": [list(gap) for gap in gaps]}
    if early:
        return Answer("no_leader" if gaps else "undecided", before_the_pause(facts, texts[0], gaps), more)
    if texts and words[0] != "no_leader":
        return Answer(words[0], f"it is not decided, because {'; and because '.join(texts)}", more)
    if gaps:
        leaderless = ": no process leads now (start a pgsched worker)" if texts else ""
        return Answer("no_leader", "it is not decided yet" + describe_absences(gaps, facts.slot) + leaderless, more)
    since = format_timedelta(facts.now - facts.slot)
    return Answer("undecided", f"it has been due for {since}, and the leader is about to decide it", more)


def before_the_pause(facts: SlotFacts, pause: str, gaps: Sequence[tuple[datetime, datetime]]) -> str:
    """Explain a slot that was due before the job was paused: the pause alone is not the reason."""
    by = format_timedelta(facts.job["paused_at"] - facts.slot)
    return (
        f"it was due {by} before the pause, and was not decided until then"
        f"{describe_absences(gaps, facts.slot)}. Now {pause}; on resuming it is recorded as missed,"
        " or left to the catch-up policy with --from pause"
    )


RULES: tuple[Callable[[SlotFacts], Answer | None], ...] = (
    answer_future,
    answer_after_end,
    answer_passed_over,
    answer_before_start,
    answer_max_runs,
    answer_undecided,
)
