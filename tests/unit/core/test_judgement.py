"""The judgement of health: each problem has its cause and cure, and a working system has no problem."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from pgsched.config import find_backlog_limits
from pgsched.core.facts import (
    AwaitedRelease,
    BindingLimit,
    Facts,
    Failing,
    FullQueue,
    JobCounts,
    JobError,
    Leader,
    LiveWorker,
    LostWorker,
    MarkedAhead,
    OpenAlert,
    OverdueRun,
    Paused,
    Queue,
    RunningTask,
    ShutQueue,
    Unroutable,
)
from pgsched.core.problems import KINDS, Patience, find_problems
from pgsched.errors import InputError

NOW = datetime(2026, 5, 1, 12, tzinfo=UTC)
LEADER = Leader(3, "a:1", "a", 1, NOW, 0.5, False, 1, True)
WORKER = LiveWorker(1, "a:1", "a", 1, "1", None, 8, 2, 0, ["task"], None, 4, NOW, 1.0, False)
WELL = Facts(LEADER, [WORKER], JobCounts(3, 0, 0, 3, None))
HUNG = RunningTask("default", "app.hang", 8, 70.0, 65.0, 8)
QUICK = RunningTask("default", "app.quick", 8, 70.0, 0.1, 0)
WAITS = Queue("default", queued=38, running=8, oldest_queued_s=70.0, oldest_offered_s=70.0)
HELD = Queue("default", waiting=19, running=2, limited=19, oldest_limited_s=400.0)


def paused(what: str, name: str = "", since_s: float = 400.0) -> Paused:
    return Paused(what, name, NOW, "eve", "provider is down", None, since_s, None)


def said(facts: Facts, patience: Patience | None = None, note: bool = False) -> list[str]:
    return [one.text for one in find_problems(facts, patience) if one.note == note]


@pytest.mark.parametrize(
    "facts",
    [
        WELL,
        replace(WELL, leader=None, workers=[], jobs=JobCounts(0, 0, 0, 0, None)),
        replace(WELL, queues=[WAITS]),  # two of eight places are busy, and 70 s is not too long
        replace(WELL, workers=[replace(WORKER, running=8)], running=[QUICK], queues=[WAITS]),
        replace(WELL, queues=[replace(HELD, oldest_limited_s=30.0)], running=[QUICK]),
        replace(WELL, queues=[Queue("default", queued=5, oldest_queued_s=900.0)], paused=[paused("all", since_s=20)]),
        replace(WELL, shut_queues=[ShutQueue("default", 4.0, (7,))]),
        replace(WELL, marked_ahead=[MarkedAhead("a", NOW, 30.0)]),
        replace(WELL, notify_usage=0.3),
        replace(WELL, releases=[AwaitedRelease("shop.send", 12, 20.0)]),  # its workers are just restarting
        replace(WELL, leader=replace(LEADER, failing=[Failing("pruning", 4.0)])),
    ],
)
def test_a_system_that_does_its_work_or_has_none_is_healthy(facts: Facts) -> None:
    assert said(facts) == []


PROBLEMS: list[tuple[Facts, str, str]] = [
    (replace(WELL, leader=None), "leader",
     "no live leader: no process has ever led; 3 jobs and 0 scheduled or waiting runs wait for one"),
    (replace(WELL, leader=replace(LEADER, alive=False, seen_s=6.0)), "leader", "a:1 was last seen 6 s ago"),
    (replace(WELL, jobs=JobCounts(3, 0, 0, 3, 11.0)), "leader", "11 s behind with due slots"),
    (replace(WELL, leader=replace(LEADER, terms_lately=7)), "leader", "7 terms began within a minute"),
    (replace(WELL, leader=replace(LEADER, failing=[Failing("pruning", 90.0)])), "duty",
     "the leader's duty pruning has failed for 1 minute 30 seconds"),
    (replace(WELL, releases=[AwaitedRelease("shop.send", 12, 90.0)]), "unroutable",
     "12 runs of task shop.send wait for its newest release, and no live worker has had it for 1 minute 30 seconds"),
    (replace(WELL, releases=[AwaitedRelease(f"t{n}", 1, 90.0) for n in range(7)]), "unroutable",
     "runs of 2 further tasks wait for a release that no live worker has"),
    (replace(WELL, workers=[], queues=[WAITS]), "worker", "no live worker, and 38 runs are queued"),
    (replace(WELL, workers=[replace(WORKER, abandoned=3)]), "worker", "worker a:1: 3 abandoned handlers"),
    (replace(WELL, workers=[replace(WORKER, blocked_s=12.0, blocked_by="app.f (run 1)")]), "worker",
     "blocked for 12 s by app.f (run 1)"),
    (replace(WELL, unroutable=[Unroutable("default", "task", "touch", 4, 1.0)]), "unroutable",
     "no live worker offers task touch on queue default (4 queued)"),
    (replace(WELL, workers=[replace(WORKER, running=8)], running=[HUNG], queues=[WAITS]), "backlog",
     "queue default: 38 runs wait, the oldest for 1 minute 10 seconds; all 8 places are busy (8 x app.hang; the longest"
     " for 1 minute 10 seconds, without a timeout)"),
    (replace(WELL, workers=[replace(WORKER, running=8)], running=[QUICK],
             queues=[replace(WAITS, oldest_offered_s=400.0)]), "backlog",
     "all 8 places are busy (8 x app.quick; the longest for 1 minute 10 seconds)"),
    (replace(WELL, queues=[replace(WAITS, oldest_offered_s=400.0)]), "backlog", "2 of 8 places are busy"),
    (replace(WELL, queues=[replace(WAITS, oldest_offered_s=400.0)], paused=[paused("task", "app.t")]), "backlog",
     "paused tasks: app.t"),
    (replace(WELL, queues=[replace(WAITS, oldest_queued_s=500.0)], paused=[paused("queue", "default")]), "pause",
     "the queue has been paused for 6 minutes 40 seconds by eve: provider is down"),
    (replace(WELL, queues=[HELD], running=[HUNG], limits=[BindingLimit("queue default", 2, 19, True, 2)]), "limit",
     "queue default: 19 runs wait, the oldest for 6 minutes 40 seconds, for the limit of queue default, 2 at once"
     " (8 x app.hang"),
    (replace(WELL, queues=[HELD], limits=[BindingLimit("key api", 2, 19, True, None)]), "limit",
     "for the limit of key api"),
    (replace(WELL, queues=[HELD]), "limit", "for the limits of their jobs"),
    (replace(WELL, queues=[replace(HELD, oldest_limited_s=1.0)],
             limits=[BindingLimit("queue default", 0, 19, True, 0)]),
     "limit", "limit 0 on queue default: nothing of it starts, 19 runs wait"),
    (replace(WELL, shut_queues=[ShutQueue("default", 60.0, (7, 8))]), "limit",
     "queue default has been shut for 1 minute for its first limit: it waits for transactions of pid 7, 8"),
    (replace(WELL, full_queues=[FullQueue("default", 9, 9, "reject")]), "full",
     "queue default is full: 9 runs wait, 9 may"),
    (replace(WELL, jobs=JobCounts(3, 0, 2, 1, None), errors=[JobError("a", "never fires", NOW)]), "job",
     "job a is in error: never fires"),
    (replace(WELL, marked_ahead=[MarkedAhead("a", NOW, 86400.0 * 364)]), "mark", "364 days ahead of the clock"),
    (replace(WELL, unpruned=OverdueRun(12, 10_800.0, 1.0)), "pruning",
     "run 12 ended 3 hours ago and is kept for 1 second"),
    (replace(WELL, notify_usage=0.63), "notify", "the notification queue is 63% full"),
    (replace(WELL, alerts=[OpenAlert(4, "backup", "failures", "3 in a row", 24.0)]), "alert",
     "alert 4, open for 24 seconds: job backup, failures: 3 in a row"),
]  # fmt: skip


@pytest.mark.parametrize(("facts", "kind", "text"), PROBLEMS)
def test_each_problem_names_its_cause_and_a_cure(facts: Facts, kind: str, text: str) -> None:
    found = find_problems(facts)
    assert [one.kind for one in found if text in one.text] == [kind], found
    assert all(one.cure and not one.note and one.kind in KINDS for one in found)


def test_names_are_quoted_as_one_word_in_the_commands_of_a_cure() -> None:
    """People copy the command into a shell, and anyone who may create jobs or enqueue runs chooses the name."""
    name = "a b; reboot $(id) '"
    facts = replace(
        WELL,
        jobs=JobCounts(3, 0, 1, 1, None),
        errors=[JobError(name, "never fires", NOW)],
        marked_ahead=[MarkedAhead(name, NOW, 86400.0)],
        alerts=[OpenAlert(4, name, "failures", "3 in a row", 24.0)],
        releases=[AwaitedRelease(name, 12, 90.0)],
        limits=[BindingLimit(f"key {name}", 0, 19, True, 0)],
    )
    commands = [part for one in find_problems(facts) for part in one.cure.split("`")[1::2]]
    assert [name in shlex.split(command) for command in commands] == [True] * len(commands)
    assert len(commands) == 6


def test_every_kind_of_problem_is_tested_here() -> None:
    assert {kind for _, kind, _ in PROBLEMS} == set(KINDS)


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        (
            replace(WELL, lost_workers=[LostWorker("b:2", 28.0, 4, None)]),
            "worker b:2 was lost 28 seconds ago; it held 4 runs",
        ),
        (replace(WELL, lost_workers=[LostWorker("b:2", 28.0, 4, {"x": 1, "y": 3})]), "it held 3 x y, 1 x x"),
        (Facts(None, [], JobCounts(0, 0, 0, 0, None)), "no process works"),
    ],
)
def test_notes_leave_the_system_healthy(facts: Facts, text: str) -> None:
    assert said(facts) == []
    assert text in " ".join(said(facts, note=True))


def test_patience_can_be_set_for_all_queues_and_for_one() -> None:
    waits = replace(WELL, queues=[replace(WAITS, oldest_offered_s=100.0)])
    assert said(waits) == []
    assert said(waits, Patience(90.0)) != []
    assert said(waits, Patience(90.0, {"default": 200.0})) == []
    busy = replace(waits, workers=[replace(WORKER, running=8)], running=[HUNG])
    assert said(busy, Patience(1000.0)) != [], "what stands still is said after a minute"


def test_patience_is_read_from_the_environment() -> None:
    assert find_backlog_limits({}) == (300.0, {})
    assert find_backlog_limits({"PGSCHED_BACKLOG_S": "60, batch=7200,a=b=5"}) == (60.0, {"batch": 7200.0, "a=b": 5.0})
    for wrong in ("x", "0", "a=", "nan"):
        with pytest.raises(InputError, match="PGSCHED_BACKLOG_S"):
            find_backlog_limits({"PGSCHED_BACKLOG_S": wrong})


def test_long_lists_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    many: list[Any] = [OpenAlert(n, None, "failures", "x", 1.0) for n in range(9)]
    assert said(replace(WELL, alerts=many))[-1] == "4 further alerts are open"
