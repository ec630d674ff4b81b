"""How a claimer waits: who is busy is not to be notified, and who sleeps has said so before."""

from __future__ import annotations

import pytest

from pgsched.core.fair_turns import FEW
from pgsched.worker.claiming.polling import FIRST_LOOK_S, MANY, NAP_S, SELDOM, WINDOW_S, Polling, Rest


def waited(rest: Rest, now: float = 10.0) -> float:
    """How long it waits in vain."""
    wait_s = rest.wait_s(now)
    rest.waited()
    return wait_s


def test_after_work_it_naps_and_does_not_ask_to_be_woken() -> None:
    rest = Rest(1.0)
    rest.found(1, 10.0)
    assert not rest.must_ask(10.0)
    assert rest.wait_s(10.0) == NAP_S


def test_a_nap_that_brought_nothing_makes_it_ask_before_it_waits() -> None:
    rest = Rest(1.0)
    rest.found(0, 10.0)
    assert rest.must_ask(10.0)
    assert rest.wait_s(10.0) == 0.0


def test_it_looks_again_soon_after_asking_and_ever_later_because_a_transaction_may_not_have_seen_it() -> None:
    rest = Rest(60.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 120.0)
    waits = [waited(rest) for _ in range(7)]
    assert waits == pytest.approx([FIRST_LOOK_S, 0.1, 0.5, 2.5, 12.5, 60.0, 60.0])


def test_it_never_waits_longer_than_somebody_would_wake_it() -> None:
    rest = Rest(1.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 2.0)
    for _ in range(9):
        rest.waited()
    assert rest.wait_s(11.6) == pytest.approx(0.4)
    rest.found(1, 11.9)
    assert rest.wait_s(11.999) == NAP_S, "it had work: it looks by itself first"


def test_an_idle_worker_asks_again_before_the_time_is_over_and_looks_again_only_after_a_break() -> None:
    rest = Rest(1.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 2.5)
    for _ in range(9):
        rest.waited()
    assert not rest.must_ask(11.0)
    assert rest.must_ask(12.0)
    rest.asked(12.0, 2.5)
    assert rest.wait_s(12.0) == 1.0
    rest.asked(20.0, 2.5)
    assert rest.wait_s(20.0) == FIRST_LOOK_S


def test_after_a_lost_connection_it_asks_again() -> None:
    rest = Rest(1.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 2.5)
    rest.forget()
    assert rest.must_ask(10.1)
    assert rest.wait_s(10.1) == 0.0


def test_while_many_runs_come_in_an_empty_look_does_not_make_it_ask_to_be_woken() -> None:
    rest = Rest(1.0)
    for _ in range(3):
        rest.found(MANY // 2, 10.0)
    rest.found(0, 10.05)
    assert not rest.must_ask(10.05)
    assert rest.wait_s(10.05) == NAP_S
    rest.found(0, 10.0 + WINDOW_S)
    assert rest.must_ask(10.2), "it has been quiet for a while"


def test_few_runs_over_a_long_time_are_not_many() -> None:
    rest = Rest(1.0)
    for second in range(2 * MANY):
        rest.found(1, float(second))
    rest.found(0, 2.0 * MANY)
    assert rest.must_ask(2.0 * MANY)


def test_after_work_it_looks_again_soon_because_what_overlapped_was_not_announced() -> None:
    rest = Rest(60.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 120.0)
    for _ in range(9):
        rest.waited()
    rest.found(1, 11.0)
    assert [waited(rest, 11.0), waited(rest, 11.1)] == pytest.approx([NAP_S, 5 * NAP_S])


@pytest.mark.parametrize(
    ("kind", "at_most_s"),
    [pytest.param(Rest, 1.4, id="says again that it sleeps"), pytest.param(Polling, 60.0, id="polls")],
)
def test_it_does_not_wake_for_a_look_that_it_cannot_afford_yet(kind: type[Rest], at_most_s: float) -> None:
    rest = kind(60.0)
    rest.found(0, 10.0)
    rest.asked(10.0, 3.0)
    assert rest.wait_s(10.0, 11.5) == pytest.approx(1.5)
    rest.waited()
    assert rest.wait_s(11.5, 11.0) == pytest.approx(0.1)
    assert rest.wait_s(11.6, 80.0) == pytest.approx(at_most_s)
    rest.found(1, 12.0)
    assert rest.wait_s(12.0, 15.0) == NAP_S, "after work it tries again at once"


@pytest.mark.parametrize(("fellows", "period_s"), [(0, 2.0), (1, 2.0), (20, 2.0), (30, 4.0), (75, 10.0), (9999, 10.0)])
def test_idle_workers_that_do_the_same_look_in_turns(fellows: int, period_s: float) -> None:
    assert (FEW, SELDOM) == (20, 5.0), "what docs/performance.md says"
    rest = Rest(2.0)
    rest.share(fellows)
    rest.found(0, 10.0)
    rest.asked(10.0, 60.0)
    for _ in range(9):
        rest.waited()
    assert rest.wait_s(10.0) == rest.period_s == period_s
    assert 0.6 * rest.asleep_s >= period_s, "somebody wakes it for so long (0002/40_runs.sql: three fifths)"
    assert rest.must_ask(70.1 - period_s) and not rest.must_ask(69.9 - period_s)


@pytest.mark.parametrize("fellows", [21, 25, 50, 75])
def test_those_who_share_look_no_more_often_together_than_a_few_alone(fellows: int) -> None:
    def a_second(count: int) -> float:
        rest = Rest(1.0)
        rest.share(count)
        return count / (rest.period_s * (1 - rest.jitter / 2))

    assert 0.9 * a_second(FEW) < a_second(fellows) <= a_second(FEW)


def looks(rest: Rest, n: int, fellows: int) -> list[int]:
    """At which of so many looks of an idle worker it counts."""
    found = []
    for look in range(1, n + 1):
        rest.note_look()
        if rest.counts:
            found.append(look)
            rest.share(fellows)
    return found


def test_a_few_are_counted_ever_more_seldom_and_many_as_often_as_may_matter() -> None:
    rest = Rest(2.0)
    rest.found(0, 10.0)
    assert looks(rest, 5000, fellows=3) == [10, 20, 40, 80, 160, 320, 640, 1280, 2304, 3328, 4352]
    rest = Rest(2.0)
    rest.found(0, 10.0)
    assert looks(rest, 60, fellows=100) == [10, 12, 16, 24, 37, 50], "a look is worth five then: each 64 periods"


def test_one_with_work_does_not_count_and_looks_as_often_as_told_for_a_while() -> None:
    rest = Rest(1.0)
    rest.found(1, 10.0)
    assert looks(rest, 5000, fellows=100) == []
    rest.found(0, 11.0)
    assert looks(rest, 10, fellows=100) == [10]
    assert rest.period_s == 5.0
    rest.found(1, 12.0)
    assert rest.period_s == 1.0, "what overlapped with the run that came may have been announced to nobody"
    rest.found(0, 13.0)
    assert looks(rest, 9, fellows=100) == []


def test_after_a_lost_connection_it_relies_on_nobody() -> None:
    rest = Rest(1.0)
    rest.found(0, 10.0)
    rest.share(100)
    rest.forget()
    assert rest.period_s == 1.0
    assert looks(rest, 9, fellows=100) == []


def test_behind_a_pooler_where_nobody_is_woken_each_looks_for_itself() -> None:
    rest = Polling(1.0)
    rest.found(0, 10.0)
    assert looks(rest, 5000, fellows=100) == []
