"""The difference: what is added, changed, removed, adopted and refused, and what is left to operators."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pgsched.core.jobs_file.difference import Action, Difference, compare, shown_columns
from pgsched.core.jobs_file.model.columns import What
from pgsched.core.jobs_file.model.entries import Key, State
from pgsched.core.jobs_file.model.spans import read_span
from pgsched.errors import InputError
from tests.support.files.jobs_files import NOW, file_of, state_of

EMPTY = State(NOW, {}, {})
NIGHTLY = (What.JOB, "n")


def stored(text: str, owner: str | None = "ops", **facts: Any) -> State:
    return state_of(file_of(text), owner, **facts)


def difference(text: str, state: State, owner: str = "ops", **options: bool) -> Difference:
    return compare(file_of(text), state, owner, **options)


def actions(found: Difference) -> list[tuple[str, str, str]]:
    return [(str(one.action), str(one.key[0]), one.key[1]) for one in found.changes]


def test_what_is_new_changed_and_gone_is_found() -> None:
    state = stored("jobs: {a: {task: t}, b: {task: t, timeout: 5s}, c: {task: t}}\nqueues: {q: {fair: true}}")
    text = "jobs: {b: {task: t, timeout: 90s}, a: {task: t}, d: {task: t, schedule: '@daily'}}"
    found = difference(text, state)
    assert actions(found) == [("change", "job", "b"), ("add", "job", "d")]
    assert shown_columns(found.changes[0]) == {"timeout": ("5 seconds", "90 seconds")}
    assert found.left == ((What.JOB, "c"), (What.QUEUE, "q"))
    pruned = difference(text, state, prune=True)
    assert actions(pruned)[2:] == [("remove", "job", "c"), ("remove", "queue", "q")]
    assert (pruned.left, found.unowned) == ((), ())


def test_a_default_that_the_file_does_not_say_is_put_back() -> None:
    found = difference("jobs: {n: {task: t}}", stored("jobs: {n: {task: t, overlap: allow, tags: [a]}}"))
    assert shown_columns(found.changes[0]) == {"tags": (["a"], None), "overlap": ("allow", "skip")}


def test_what_is_not_its_own_is_refused_unless_adopted() -> None:
    for owner, reason in ((None, "no file declares it"), ("dev", 'the file of owner "dev"')):
        state = stored("jobs: {n: {task: t}}", owner)
        (change,) = difference("jobs: {n: {task: u}}", state).changes
        assert change.action is Action.REFUSE
        assert reason in str(change.reason)
        (change,) = difference("jobs: {n: {task: u}}", state, adopt=True).changes
        assert (change.action, change.adopts) == (Action.CHANGE, True)


def test_what_is_as_the_file_says_is_no_change_and_not_its_own() -> None:
    state = stored("jobs: {n: {task: t}}", None)
    found = difference("jobs: {n: {task: t}}", state)
    assert (found.changes, found.unowned) == ((), (NIGHTLY,))
    assert actions(difference("jobs: {n: {task: t}}", state, adopt=True)) == [("adopt", "job", "n")]


def test_what_code_declares_is_never_taken() -> None:
    state = stored("jobs: {n: {task: t}}", None)
    one = replace(state.stored[NIGHTLY], declared_by="shop")
    (change,) = difference("jobs: {n: {task: u}}", replace(state, stored={NIGHTLY: one}), adopt=True).changes
    assert (change.action, change.reason) == (
        Action.REFUSE, "the code of shop declares it: take it out of the code first")  # fmt: skip


def test_what_code_declares_by_now_is_neither_changed_nor_removed() -> None:
    state = stored("jobs: {n: {task: t}}")
    state = replace(state, stored={NIGHTLY: replace(state.stored[NIGHTLY], declared_by="shop")})
    (change,) = difference("jobs: {n: {task: u}}", state).changes
    assert change.action is Action.REFUSE
    assert difference("jobs: {n: {task: t}}", state, adopt=True).changes == ()
    found = difference("jobs: {}", state, prune=True)
    assert (found.changes, found.gone) == ((), (("job", "n"),))
    assert found.remarks == ("not in the file any more, and declared by code, which keeps it: job n",)


def test_an_entry_of_another_file_keeps_the_name_of_what_is_gone() -> None:
    state = State(NOW, {}, {NIGHTLY: "dev"})
    assert actions(difference("jobs: {n: {task: t}}", state)) == [("refuse", "job", "n")]
    assert actions(difference("jobs: {n: {task: t}}", state, adopt=True)) == [("add", "job", "n")]


@pytest.mark.parametrize(
    ("text", "before", "differs"),
    [
        ("{task: t}", "{task: t, paused: true, paused_reason: r}", []),
        ("{task: t, paused: true}", "{task: t, paused: true, paused_reason: r, paused_by: p}", []),
        ("{task: t, paused: false, paused_reason: r, resume_from: pause}", "{task: t}", []),
        ("{task: t, paused: false}", "{task: t, paused: true, paused_reason: r}", ["paused"]),
        ("{task: t, paused: true, paused_reason: s}", "{task: t, paused: true, paused_reason: r}", ["paused_reason"]),
        ("{task: t}", "{task: t, run_at: 2027-01-01 00:00Z}", []),
        ("{task: t, run_at: 2027-01-02 00:00Z}", "{task: t, run_at: 2027-01-01 00:00Z}", ["run_at"]),
        ("{task: t, args: {a: 1}}", "{task: t, args: {a: 1.0}}", []),
        ("{task: t, args: {a: 1}}", "{task: t, args: {a: true}}", ["args"]),
        ("{task: t, timeout: 60s}", "{task: t, timeout: 1 minute}", []),
        ("{task: t, keep: 1 month}", "{task: t, keep: {any: 30 days}}", []),
        ("{task: t, success_codes: [0]}", "{task: t}", []),
    ],
)
def test_what_is_left_to_operators_and_what_means_the_same_is_no_difference(
    text: str, before: str, differs: list[str]
) -> None:
    found = difference(f"jobs: {{n: {text}}}", stored(f"jobs: {{n: {before}}}"))
    assert [column for change in found.changes for column in shown_columns(change)] == differs


def test_a_paused_job_whose_file_does_not_say_so_is_remarked() -> None:
    found = difference("jobs: {n: {task: t}}", stored("jobs: {n: {task: t, paused: true}}"))
    assert found.remarks == (
        "paused, and the file does not say so (`paused: false` would resume it): job n",)  # fmt: skip


def test_the_mode_that_a_file_does_not_name_is_left_and_remarked_in_one_line() -> None:
    jobs = ", ".join(f"n{n}: {{task: t, mode: shadow}}" for n in range(7))
    found = difference(f"jobs: {{{jobs.replace(', mode: shadow', '')}}}", stored(f"jobs: {{{jobs}}}"))
    assert found.changes == ()
    assert found.remarks == ("in mode shadow, and the file does not say so (`mode: run` would let it run): job n0,"
                             " job n1, job n2, job n3, job n4 and 2 more",)  # fmt: skip
    (change,) = difference("jobs: {n: {task: t, mode: run}}", stored("jobs: {n: {task: t, mode: shadow}}")).changes
    assert shown_columns(change) == {"mode": ("shadow", "run")}


def test_what_a_file_says_about_mode_pause_and_time_is_remembered() -> None:
    text = "jobs: {n: {task: t, mode: run}, m: {task: t, run_at: 2027-01-01 00:00Z}, k: {task: t}}"
    found = difference(text, stored(text))
    assert [(one.name, one.remembered.decides) for one in found.declared] == [("n", ("mode",)), ("m", ())]
    kept = {entry.key: entry.remembered for entry in found.declared}
    assert difference(text, replace(stored(text), remembered=kept)).declared == ()


def test_what_is_over_is_not_made_again() -> None:
    once = "jobs: {n: {task: t, run_at: 2026-01-01 00:00Z, delete_after_run: true}}"
    assert actions(difference(once, EMPTY)) == [("add", "job", "n")]
    done = State(NOW, {}, {}, done={"n": datetime(2026, 1, 1, tzinfo=UTC)})
    found = difference(once, done)
    assert (actions(found), len(found.remarks)) == ([], 1)
    assert "has run and deleted itself" in found.remarks[0] and found.remarks[0].endswith(": job n")
    assert actions(difference(once.replace("2026-01", "2027-01"), done)) == [("add", "job", "n")]
    assert difference("jobs: {}", done, prune=True).gone == (("done", "n"),)
    # somebody has made another job of that name
    other = stored("jobs: {n: {task: u}}", None)
    assert actions(difference(once, replace(other, done=done.done))) == [("refuse", "job", "n")]
    pause = f"pauses: [{{what: all, resume_at: '{NOW - timedelta(hours=1)}'}}]"
    assert actions(difference(pause, EMPTY)) == []
    assert actions(difference(pause.replace("09:00", "11:00"), EMPTY)) == [("add", "pause", "all")]


def test_retention_with_its_defaults_belongs_to_nobody() -> None:
    defaults = stored("retention: {}", None)
    assert actions(difference("retention: {archive: true}", defaults)) == [("change", "retention", "everything")]
    changed = stored("retention: {archive: true}", None)
    assert actions(difference("retention: {keep: 3d}", changed)) == [("refuse", "retention", "everything")]
    owned = stored("retention: {archive: true, keep: 3d}")
    (change,) = difference("jobs: {}", owned, prune=True).changes
    assert (change.action, shown_columns(change)) == (
        Action.REMOVE, {"keep": ({"any": "3 days"}, {"any": "7 days"}), "archive": (True, False)})  # fmt: skip
    assert difference("jobs: {}", stored("retention: {}"), prune=True).changes == ()


def test_the_defaults_of_alerts_are_one_object() -> None:
    defaults, key = stored("alerts: {}", None), (What.ALERTS, "everything")
    (change,) = difference("alerts: {finish_by: 12 hours, dead_runs: 20}", defaults).changes
    assert (change.action, change.key, change.adopts) == (Action.CHANGE, key, True)
    assert shown_columns(change) == {"finish_by": (None, "12 hours"), "dead_runs": (None, 20)}
    changed = stored("alerts: {alert_to: [mail]}", None)
    assert actions(difference("alerts: {dead_runs: 20}", changed)) == [("refuse", "alerts", "everything")]
    owned = stored("alerts: {alert_to: [mail], dead_runs: 20, dead_runs_within: 5m}")
    (change,) = difference("alerts: {dead_runs: 21}", owned).changes
    assert shown_columns(change) == {
        "alert_to": (["mail"], None), "dead_runs": (20, 21), "dead_runs_within": ("5 minutes", "1 hour")}  # fmt: skip
    assert difference("jobs: {}", owned).left == (key,)
    (change,) = difference("jobs: {}", owned, prune=True).changes
    assert (change.action, [one.new for one in change.columns]) == (Action.REMOVE, [None, None, read_span("1 hour")])
    assert difference("jobs: {}", stored("alerts: {}"), prune=True).changes == ()


def test_entries_whose_objects_are_gone_are_forgotten_with_prune() -> None:
    gone: Key = (What.QUEUE, "q")
    state = State(NOW, {}, {gone: "ops"})
    assert difference("jobs: {}", state).gone == ()
    assert difference("jobs: {}", state, prune=True).gone == (("queue", "q"),)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("jobs:\n  n: {task: t, after: [lod]}\n  load: {task: t}",
         'jobs.yaml:2: jobs.n.after: there is no job named "lod"; did you mean load?'),
        ("jobs:\n  n: {task: t, calendar: x}", 'jobs.yaml:2: jobs.n.calendar: there is no calendar named "x"'),
        ("jobs:\n  n: {task: t, after: [old]}", 'jobs.n.after: job "old" is not in the file any more, and is removed'),
        ("jobs: {a: {task: t, after: [b]}, b: {task: t, after: [c]}, c: {task: t, after: [a]}}",
         "the jobs wait for each other: a -> b -> c -> a"),
        ("jobs: {top: {task: t, after: [mid]}}", "the jobs wait for each other: "),
    ],
)  # fmt: skip
def test_names_of_other_objects_are_checked(text: str, problem: str) -> None:
    state = stored("jobs: {old: {task: t}}")
    others = stored("jobs: {top: {task: t}, mid: {task: t, after: [top]}}", None)
    state = replace(state, stored={**state.stored, **others.stored})
    with pytest.raises(InputError) as refusal:
        difference(text, state, prune=True, adopt=True)
    assert problem in str(refusal.value)


def test_a_long_chain_of_jobs_is_no_circle() -> None:
    text = "jobs:\n  j0: {task: t}\n" + "".join(f"  j{n}: {{task: t, after: [j{n - 1}]}}\n" for n in range(1, 3000))
    assert len(difference(text, EMPTY).changes) == 3000
