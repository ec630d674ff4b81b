"""The checker finds nothing in a sound history, and in each broken history the check that was violated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pgsched.chaos.checker import CHECKS, find_violations
from pgsched.chaos.checks.slots import nominal_slots
from pgsched.chaos.history import (
    Ack,
    Change,
    Event,
    Figure,
    History,
    Job,
    Leak,
    Mark,
    Outage,
    Process,
    Term,
    Trouble,
    load_histories,
)
from tests.support.made_up import AT_REST, FIRST, SECOND, THIRD, T, sound

Wound = Callable[[History], Any]


def put(rows: list[Any], place: int, **values: Any) -> None:
    rows[place] = replace(rows[place], **values)


def change(history: History, seq: int, /, **values: Any) -> None:
    place = next(n for n, one in enumerate(history.changes) if one.seq == seq)
    put(history.changes, place, **values)


def drop(rows: list[Any], wanted: Callable[[Any], bool]) -> None:
    rows[:] = [row for row in rows if not wanted(row)]


def lose_a_run(h: History) -> None:
    """Remove the run of the first slot, without a record that it was pruned."""
    drop(h.runs, lambda run: run.id == 1)


def lose_all_of_a_run(h: History) -> None:
    """Remove every trace of the first slot, as if it had never been decided."""
    drop(h.changes, lambda one: one.run_id == 1)
    drop(h.runs, lambda run: run.id == 1)
    drop(h.ledger, lambda event: event.run_id == 1)


def claim_with_a_used_token(h: History) -> None:
    """Let the second owner of run 3 claim with the token of the first."""
    change(h, 41, token=SECOND)
    change(h, 45, token=SECOND)
    put(h.runs, 2, token=SECOND)


def shrink_the_stretch(h: History) -> None:
    change(h, 35, covers_from=T + 3)


def make_again_after_pruning(h: History) -> None:
    """Prune run 1, and then make a second row for its slot."""
    drop(h.runs, lambda run: run.id == 1)
    h.changes.append(Change(60, T + 20, "delete", 1, "succeeded", FIRST, 1, None, 1, T + 1))
    h.changes.append(Change(61, T + 21, "insert", 9, "skipped", None, 0, None, 1, T + 1))


def steal(h: History) -> None:
    """Let the second owner claim run 3 while the first one still owns it."""
    drop(h.changes, lambda one: one.seq == 40)


def two_settle(h: History) -> None:
    """Let run 3 be claimed again after its success, and succeed a second time."""
    h.changes.append(Change(46, T + 8, "update", 3, "running", "token-4", 3, T + 11))
    h.changes.append(Change(47, T + 8, "update", 3, "succeeded", "token-4", 3, T + 11))
    put(h.runs, 2, token="token-4")
    h.ledger += [Event(46, 3, "token-4", "start", T + 8, 11), Event(46, 3, "token-4", "end", T + 8, 11)]


def zombie_settles(h: History) -> None:
    """Let run 3 end with the token of its first owner, although a second one has claimed it since."""
    change(h, 45, token=SECOND)
    put(h.runs, 2, token=SECOND)
    h.ledger.append(Event(23, 3, SECOND, "end", T + 2, 10))


def limit_exceeded(h: History) -> None:
    """Start run 4 while run 3, of the same key, is still running."""
    change(h, 52, seq=44)
    h.ledger[:] = [replace(e, seq=45) if e.seq == 53 else e for e in h.ledger]
    drop(h.changes, lambda one: one.seq == 51)


WOUNDS: list[tuple[str, Wound]] = [
    ("fault", lambda h: h.troubles.append(Trouble("waited 10 s for a leader"))),
    ("figures", lambda h: h.figures.append(Figure("another leads after", 12.5, 12.0))),
    ("slots-lost", lose_all_of_a_run),
    ("slots-lost", lose_a_run),
    ("slots-lost", shrink_the_stretch),
    ("slots-lost", lambda h: put(h.jobs, 1, ends=T + 4.3, decided=T + 4.25)),
    ("slots-twice", lambda h: h.changes.append(Change(60, T + 20, "insert", 9, "skipped", None, 0, None, 1, T + 1))),
    ("slots-twice", make_again_after_pruning),
    ("slots-invented", lambda h: h.changes.append(Change(60, T, "insert", 9, "skipped", None, 0, None, 1, T + 1.5))),
    ("slots-invented", lambda h: h.changes.append(Change(60, T, "insert", 9, "skipped", None, 0, None, 1, T + 4))),
    ("one-owner", steal),
    ("one-owner", claim_with_a_used_token),
    ("taken-early", lambda h: change(h, 40, at=T + 3.9)),
    ("ended-once", two_settle),
    ("ended-once", lambda h: h.changes.append(Change(55, T + 9, "update", 4, "succeeded", SECOND))),
    ("events-by-owners", lambda h: h.ledger.append(Event(60, 3, "token-9", "start", T + 6, 12))),
    ("events-by-owners", lambda h: h.ledger.append(Event(44, 3, SECOND, "end", T + 6, 10))),
    ("settled-by-last", zombie_settles),
    ("settled-by-last", two_settle),
    ("acknowledged", lambda h: h.acknowledged.append(Ack("load-3", 77))),
    ("acknowledged", lambda h: put(h.runs, 3, state="queued")),
    ("all-ended", lambda h: put(h.runs, 4, state="running")),
    ("enqueued-once", lambda h: h.acknowledged.append(Ack("load-1", 4))),
    ("enqueued-once", lambda h: put(h.runs, 3, idempotency_key="load-1")),
    ("ran", lambda h: drop(h.ledger, lambda e: e.token == THIRD and e.event == "start")),
    ("ran", lambda h: drop(h.ledger, lambda e: e.token == FIRST and e.event == "end")),
    ("stuck", lambda h: change(h, 40, at=T + 9)),
    ("stuck", lambda h: drop(h.changes, lambda one: one.seq == 54)),
    ("marks-rise", lambda h: h.marks.append(Mark(34, T + 5, 1, T + 2, 200))),
    ("terms-rise", lambda h: h.terms.append(Term(60, T + 9, "insert", 2, 12, 300, False))),
    ("terms-overlap", lambda h: h.terms.append(Term(60, T + 9, "update", 1, 10, 100, False))),
    ("terms-overlap", lambda h: h.marks.append(Mark(60, T + 9, 1, T + 3, 100))),
    ("limits", limit_exceeded),
    ("fates", lambda h: put(h.processes, 1, fate="silent")),
    ("fates", lambda h: put(h.processes, 0, ended_by=None, code=0)),
    ("fates", lambda h: put(h.processes, 0, ended_by=None, code=-11)),
    ("stops", lambda h: put(h.processes, 1, code=1)),
    ("stops", lambda h: put(h.processes, 1, code=3)),
    ("stops", lambda h: put(h.processes, 1, stop_s=40.0)),
    ("leaks", lambda h: put(h.processes, 1, after=AT_REST | {"threads": 20})),
    ("leaks", lambda h: put(h.processes, 1, after=AT_REST | {"descriptors": 30})),
    ("leaks", lambda h: put(h.processes, 1, after=AT_REST | {"children": 1})),
    ("leaks", lambda h: h.leaks.append(Leak("lock", "123 advisory ExclusiveLock"))),
    ("leaks", lambda h: h.leaks.append(Leak("session", "123 pgsched claim idle"))),
    ("ran", lambda h: put(h.runs, 3, state="succeeded")),
]


def test_a_sound_history_breaks_no_promise() -> None:
    assert find_violations(sound()) == []


@pytest.mark.parametrize(("name", "wound"), WOUNDS, ids=[f"{n}-{name}" for n, (name, _) in enumerate(WOUNDS)])
def test_each_broken_history_is_found_by_its_check(name: str, wound: Wound) -> None:
    history = sound()
    wound(history)
    assert name in {violation.check for violation in find_violations(history)}


def test_every_check_is_proved_by_a_history_that_violates_it() -> None:
    assert {name for name, _ in WOUNDS} == set(CHECKS)


def test_a_saved_history_loads_with_the_same_violations(tmp_path: Path) -> None:
    history = sound()
    history.outages.append(Outage(T, T + 1, "the server was stopped"))
    history.notes.append("a note")
    make_again_after_pruning(history)
    history.save(tmp_path / "saved.jsonl")
    sound().save(tmp_path / "saved.jsonl", append=True)
    first, second = load_histories(tmp_path / "saved.jsonl")
    assert first == history
    assert find_violations(first) == find_violations(history) != []
    assert find_violations(second) == []


@pytest.mark.parametrize("line", ["", "[]", '{"what": "runs"}', '{"what": "settings"}\n{"what": "nothing"}', "x"])
def test_a_line_that_is_no_history_is_refused_with_its_number(line: str, tmp_path: Path) -> None:
    (tmp_path / "saved.jsonl").write_text(line + "\n")
    with pytest.raises(ValueError, match=r"saved\.jsonl:[12]: not a line"):
        load_histories(tmp_path / "saved.jsonl")


def test_an_outage_excuses_a_claim_that_no_leader_could_reap() -> None:
    history = sound()
    change(history, 40, at=T + 30)
    change(history, 41, at=T + 30, lease_until=T + 33)
    change(history, 45, at=T + 31)
    assert [violation.check for violation in find_violations(history)] == ["stuck"]
    history.outages.append(Outage(T + 4, T + 29, "the server was stopped"))
    assert find_violations(history) == []


def test_a_new_leader_may_reap_nothing_for_the_time_of_one_lease() -> None:
    history = sound()
    change(history, 40, at=T + 9)
    assert [violation.check for violation in find_violations(history)] == ["stuck"]
    history.terms.append(Term(38, T + 5, "insert", 3, 12, 300, False))
    assert find_violations(history) == []


def test_a_leader_delayed_by_the_database_may_reap_nothing_for_one_lease() -> None:
    history = sound()
    change(history, 40, at=T + 9)
    history.terms.append(Term(38, T + 7, "update", 2, 11, 200, False))
    assert find_violations(history) == []


@pytest.mark.parametrize(
    ("schedule", "slots"),
    [("* * * * * *", [1, 2, 3]), ("*/2 * * * * *", [2]), ("@every 1s", [1.5, 2.5]), ("@every 1m", [])],
)
def test_nominal_slots_are_those_after_the_beginning_and_up_to_the_end(schedule: str, slots: list[float]) -> None:
    job = Job(1, "j", schedule, "UTC", T + 0.5, T + 0.5, T + 3.0, T + 3.0)
    assert nominal_slots(job) == [round((T + slot) * 1_000_000) for slot in slots]


def test_a_worker_that_exits_with_an_error_code_breaks_no_promise() -> None:
    history = sound()
    history.processes.append(Process(12, "exited", 70, None, None, AT_REST, None))
    assert find_violations(history) == [], "one that ended with an exit code said so"
