"""What a claim cursor has passed: looked at in pieces, all of it in each round, and in a share of the time."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from pgsched.worker.claiming import backlog_pieces
from pgsched.worker.claiming.backlog_pieces import LINK_S, LOOK_S, ROUND_S, SHARE, SHARE_AT_MOST, Passed, Place, Places

NOTHING: Place = ("", 0)


def at(place: int) -> Place:
    return f"{place:09}", place


def covers(begin: Mapping[int, Place], end: Mapping[int, Place], priority: int, place: Place) -> bool:
    return begin.get(priority, NOTHING) < place <= end.get(priority, NOTHING)


def linked(links: int, took_s: float = 1.0, now: float = 0.0) -> tuple[Passed, Places]:
    """One that has so many links, and where its cursor is."""
    made, cursor = Passed(took_s, now), {}
    for link in range(1, links):
        cursor = {5: at(link)}
        made.moved(cursor, now + link * LINK_S)
    return made, {5: at(links)}


@pytest.mark.parametrize("seed", range(300))
def test_a_round_covers_all_that_the_cursor_had_passed_when_it_began_however_it_jumped(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backlog_pieces, "LINKS", 8)
    draw, cursor = random.Random(seed), {5: at(1)}
    looking, now = Passed(1.0, 0.0), 0.0
    for _ in range(6):
        wanted = {(priority, at(key)) for priority, end in cursor.items() for key in range(1, end[1] + 1)}
        for _ in range(1000):
            begin, end = map(dict, looking.next(cursor))
            for _ in range(draw.choice((0, 0, 1, 3, 12))):  # what is claimed while the look is on its way
                priority = draw.choice((2, 5, 5))
                jump = draw.randrange(1, 12) if draw.random() < 0.9 else -draw.randrange(1, 12)
                cursor[priority] = at(max(1, cursor.get(priority, at(0))[1] + jump))
                wanted -= {(p, k) for p, k in wanted if p == priority and k > cursor[p]}  # it will pass these again
                now += draw.choice((0.1, 1.0, 2.0)) * LINK_S
                looking.moved(cursor, now)
            if draw.random() < 0.2 and any(begin.get(p, NOTHING) < end[p] for p in end):  # it had to stop
                priority = draw.choice([p for p in end if begin.get(p, NOTHING) < end[p]])
                reached = {priority: at(begin.get(priority, NOTHING)[1] + 1)}
                wanted -= {(p, k) for p, k in wanted if p == priority and covers(begin, reached, p, k)}
                looking.stopped(reached, 0.1, now)
                continue
            if draw.random() < 0.1 and looking._links != 1:
                looking.failed(15.0, now)
                continue
            wanted -= {(p, k) for p, k in wanted if covers(begin, end, p, k)}
            if looking.ended(draw.choice((0.0, 0.1, 0.5)), now):
                break
        else:
            pytest.fail("it comes to no end")
        assert not wanted


def test_a_look_is_about_as_long_as_it_should_be() -> None:
    looking, cursor = linked(1000)
    sizes = []
    for _ in range(40):
        begin, end = looking.next(cursor)
        sizes.append(end[5][1] - begin.get(5, NOTHING)[1])
        assert not looking.ended(sizes[-1] * 0.01, now=0.0)
    assert sizes[:4] == [1, 2, 4, 8]
    assert all(LOOK_S / 2 <= size * 0.01 <= LOOK_S * 2 for size in sizes[4:])
    assert not looking.ended(0.5, now=0.0)
    begin, end = looking.next(cursor)
    assert end[5][1] - begin[5][1] == 4, "what became slow is looked at in smaller pieces"


def test_links_are_all_as_long_and_not_too_many() -> None:
    looking, cursor = Passed(1.0, 0.0), {}
    for second in range(1, 20_000):
        cursor = {5: at(second)}
        looking.moved(cursor, float(second))
    begins: list[int] = []
    ends: list[int] = []
    while not ends or not looking._ends_round:
        begin, end = looking.next(cursor)
        begins.append(begin.get(5, NOTHING)[1])
        ends.append(end[5][1])
        looking._links = 1
        looking.ended(LOOK_S, now=0.0)
    assert 400 < len(ends) <= 1001
    sizes = sorted(end - begin for begin, end in zip(begins, ends, strict=True))
    assert sizes[-1] <= 2 * sizes[len(sizes) // 2]


def test_a_cursor_that_stands_still_makes_no_links() -> None:
    looking, cursor = linked(4)
    for second in range(100, 5000):
        looking.moved(cursor, float(second))
    ends = []
    for _ in range(4):
        ends.append(looking.next(cursor)[1][5][1])
        looking.ended(LOOK_S, now=0.0)
    assert ends == [1, 2, 3, 4]
    assert looking._link_s == LINK_S


def test_links_that_were_looked_at_together_become_one() -> None:
    looking, cursor = linked(1000)
    rounds: list[list[tuple[int, int]]] = [[], []]
    for looks in rounds:
        ended = False
        while not ended:
            begin, end = looking.next(cursor)
            looks.append((begin.get(5, NOTHING)[1], end[5][1]))
            ended = looking.ended((looks[-1][1] - looks[-1][0]) * 0.01, now=0.0)
        assert [begin for begin, _ in looks] == [0, *(end for _, end in looks[:-1])]
        assert looks[-1][1] == 1000
    assert len(looking._places) < 100
    sizes = [end - begin for begin, end in rounds[1][:-1]]
    assert max(sizes) * 0.01 <= 4 * LOOK_S
    assert all(LOOK_S / 2 <= size * 0.01 <= LOOK_S * 2 for size in sizes[6:])


def test_what_took_next_to_nothing_does_not_make_what_follows_take_long() -> None:
    looking, cursor = linked(1000)
    while (begin := looking.next(cursor)[0].get(5, NOTHING)[1]) < 500:
        looking.ended(0.0001, now=0.0)
    end = looking.next(cursor)[1]
    assert end[5][1] - begin <= 32


def test_a_link_that_is_never_answered_keeps_no_round_from_the_others_and_the_first_begins_ever_fewer() -> None:
    looking, cursor = linked(4)
    ends = []
    for _ in range(18):
        _, end = looking.next(cursor)
        ends.append(end[5][1])
        looking.failed(15.0, now=0.0)
        assert looking.asked
    assert ends == [1, 2, 3, 4, *[2, 3, 4] * 1, 1, 2, 3, 4, *[2, 3, 4] * 2, 1]


def test_a_round_without_the_first_link_counts_as_one_with_it_and_an_answer_brings_it_back() -> None:
    looking, cursor = linked(3)
    looking.next(cursor)
    looking.failed(15.0, now=0.0)
    first, whole, paused = [], [], []
    for _ in range(4):
        first.append(looking.next(cursor)[0] == {})
        while not looking.ended(0.01, now=0.0):
            looking.next(cursor)
        whole.append(round(looking.whole_s))
        paused.append(looking.next_at)
    assert first == [False, False, True, True]
    assert whole == [15, 15, 0, 0], "or one would think that a scan of all takes that little"
    assert paused[2:] == pytest.approx([SHARE * 0.01] * 2), "what was not looked at makes no pause shorter"


def test_a_first_link_that_was_answered_begins_the_next_round_though_it_was_not_before() -> None:
    looking = Passed(1.0, 0.0)
    looking.next({5: at(1)})
    looking.failed(15.0, now=0.0)  # there is no other one that could begin the next round
    looking.next({5: at(1)})
    looking.moved({5: at(2)}, now=10.0)
    assert looking.ended(0.01, now=10.0)
    assert looking.next({5: at(3)})[0] == {}


def test_a_first_link_is_not_made_longer_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog_pieces, "LINKS", 8)
    looking, cursor = linked(100)
    ends = []
    while not ends or not looking._ends_round:
        ends.append(looking.next(cursor)[1][5][1])
        looking._links = 1
        looking.ended(LOOK_S, now=0.0)
    assert ends[0] == 1
    assert len(ends) <= 9


def test_what_the_server_did_not_answer_is_asked_for_in_the_smallest_piece() -> None:
    looking, cursor = linked(1000)
    for _ in range(5):
        looking.next(cursor)
        looking.ended(0.0, now=0.0)
    before, _ = looking.next(cursor)
    looking.failed(15.0, now=100.0)
    begin, end = looking.next(cursor)
    assert begin == before
    assert end[5][1] - begin[5][1] == 1


@pytest.mark.parametrize(
    ("round_s", "times"),
    [(0.2, SHARE), (1.5, SHARE), (3.0, ROUND_S / 3.0), (7.5, SHARE_AT_MOST), (60.0, SHARE_AT_MOST)],
)
def test_a_round_takes_a_twentieth_of_the_time_but_ends_in_half_a_minute_in_up_to_a_fifth_of_it(
    round_s: float, times: float
) -> None:
    looking, cursor = linked(100, took_s=round_s)
    for _ in range(3):
        looking.next(cursor)
        assert not looking.ended(0.01, now=7.0)
    assert looking.next_at == pytest.approx(7.0 + times * 0.01)


def test_a_pause_follows_a_slow_look_only_once_slow_looks_are_usual() -> None:
    looking, cursor = linked(100, took_s=0.2, now=1.0)
    assert looking.next_at == 2.0
    for pause_s in (2.0, 4.0, 8.0):
        looking.next(cursor)
        looking.ended(0.5, now=20.0)
        assert looking.next_at == 20.0 + pause_s


def test_the_next_round_is_paced_by_what_the_last_one_took() -> None:
    looking, cursor = linked(3, took_s=0.2)
    ended: list[bool] = []
    while not any(ended):
        looking.next(cursor)
        ended.append(looking.ended(2.0, now=0.0))
    assert looking.round_s == 2.0 * len(ended)
    begin, _ = looking.next(cursor)
    assert begin == {}


def test_what_was_asked_for_in_the_middle_of_a_round_is_asked_for_until_the_next_begins() -> None:
    looking, cursor = linked(3)
    looking.asked = True
    looking.next(cursor)
    assert not looking.asked, "this round sees it"
    looking.ended(1.0, now=0.0)
    looking.asked = True
    looking.next(cursor)
    while not looking.ended(1.0, now=0.0):
        looking.next(cursor)
    assert looking.asked
    looking.next(cursor)
    assert not looking.asked
