"""The claim cursor is a hint: where scans begin, and when a scan from the start must follow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from pgsched.core.model import Claim
from pgsched.db.queries.runs.claims import FROM_THE_START
from pgsched.worker.claiming.cursor import EVERY_S, QUICK_S, RESCAN_S, SHARE, SHARE_AT_MOST, Cursor, Rescans

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def claimed(run_id: int, seconds: int = 0, priority: int = 5) -> Claim:
    at = f"{NOON + timedelta(seconds=seconds)}"
    return Claim(run_id, uuid4(), 1, 1, "default", priority, "task", "t", {}, available_at=at)


def test_the_cursor_begins_at_the_start() -> None:
    assert Cursor().after(0.0) is FROM_THE_START


def test_the_cursor_goes_on_after_the_last_claim_of_each_priority() -> None:
    cursor = Cursor()
    cursor.scanned([claimed(1, 0, 2), claimed(7, 1), claimed(8, 2)], 3, sent_at=0.0, now=0.01)
    after = cursor.after(0.5)
    assert after["after_ids"] == "{0,0,1,0,0,8,0,0,0,0}"
    assert after["after_ats"].count("-infinity") == 8
    assert '"2026-05-01 12:00:02+00:00"' in after["after_ats"]


def test_a_scan_from_the_start_is_due_every_second() -> None:
    cursor = Cursor()
    cursor.scanned([claimed(1)], 1, sent_at=0.09, now=0.1)
    assert cursor.after(0.1 + EVERY_S - 0.01) is not FROM_THE_START
    assert cursor.after(0.1 + EVERY_S) is FROM_THE_START


def test_scans_from_the_start_take_no_more_than_their_share_of_the_time() -> None:
    cursor = Cursor()
    cursor.scanned([claimed(1)], 5, sent_at=10.0, now=10.01)
    assert cursor.full_in(10.01) == pytest.approx(SHARE * 0.01)
    assert cursor.full_in(10.3) == 0.0
    now = 20.0
    for pause in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        cursor.scanned([claimed(1)], 5, sent_at=now, now=now + 0.5)
        now += 0.5
        assert cursor.full_in(now) == pytest.approx(pause), "one slow answer is no reason to look much less often"
        assert cursor.after(now + pause - 0.1) is not FROM_THE_START
        assert cursor.after(now + pause) is FROM_THE_START
        now += pause


@pytest.mark.parametrize(("took_s", "pause_s"), [(5.0, RESCAN_S), (20.0, SHARE_AT_MOST * 20.0)])
def test_a_very_slow_queue_is_rescanned_every_30_s_or_in_a_fifth_of_the_time(took_s: float, pause_s: float) -> None:
    assert (RESCAN_S, SHARE_AT_MOST) == (30.0, 4), "what README.md and docs/concepts/performance.md say"
    cursor, now = Cursor(), 10.0
    for _ in range(9):
        cursor.scanned([claimed(1)], 1, sent_at=now, now=now + took_s)
        now += took_s
        assert cursor.full_in(now) <= pause_s, "within this time it is due"
        assert cursor.after(now + pause_s) is FROM_THE_START
        now += cursor.full_in(now)
    assert cursor.after(now - 0.1) is not FROM_THE_START


def test_a_rescan_without_an_answer_is_paced_like_one_that_took_as_long() -> None:
    cursor = Cursor()
    cursor.scanned([claimed(1)], 1, sent_at=0.0, now=0.5)
    cursor.not_scanned(sent_at=2.0, now=32.0)
    assert cursor.full_in(32.0) == 2.0, "after one of half a second it was one"
    assert cursor.after(33.9) is not FROM_THE_START
    assert cursor.after(34.0) is FROM_THE_START


def test_a_full_scan_that_found_everything_does_not_move_the_cursor_back() -> None:
    cursor = Cursor()
    cursor.move([claimed(9, 9)])
    cursor.scanned([claimed(3, 3)], 5, sent_at=0.0, now=0.01)
    assert cursor.after(0.1)["after_ids"] == "{0,0,0,0,0,9,0,0,0,0}"


def test_a_full_scan_that_had_to_stop_moves_the_cursor_back_to_that_point() -> None:
    cursor = Cursor()
    cursor.move([claimed(9, 9)])
    cursor.scanned([claimed(3, 3)], 1, sent_at=0.0, now=0.01)
    assert cursor.after(0.1)["after_ids"] == "{0,0,0,0,0,3,0,0,0,0}", "more may lie between"


def test_where_scans_from_the_start_are_quick_there_is_no_cursor() -> None:
    """One statement then does the work of two: one after the cursor, and one for runs before it."""
    cursor = Cursor()
    cursor.scanned([claimed(1)], 5, sent_at=0.0, now=QUICK_S)
    assert cursor.after(QUICK_S) is FROM_THE_START
    cursor.scanned([claimed(2)], 5, sent_at=1.0, now=1.0 + 2 * QUICK_S)
    assert cursor.after(1.0 + 2 * QUICK_S) is not FROM_THE_START


def test_slow_scans_that_find_nothing_take_at_most_their_share_of_the_time() -> None:
    cursor, now = Cursor(), 10.0
    cursor.scanned([], 5, sent_at=now - 0.5, now=now)
    assert cursor.wait_s(now) == 0.0, "one slow answer delays nothing"
    for pause in (2.0, 4.0, 8.0, 10.0, 10.0):
        cursor.scanned([], 5, sent_at=now - 0.5, now=now)
        assert cursor.wait_s(now) == pytest.approx(pause)
        now += pause
        assert cursor.wait_s(now) == 0.0
    cursor.scanned([], 5, sent_at=now - 0.001, now=now)
    cursor.scanned([], 5, sent_at=now - 0.5, now=now)
    assert cursor.wait_s(now) == 0.0, "what was quick again is not put off"


def test_after_a_scan_that_claimed_a_run_the_next_one_follows_at_once() -> None:
    cursor, now = Cursor(), 10.0
    for claims in ([], [claimed(1)], [], [claimed(2)], []):
        cursor.scanned(claims, 5, sent_at=now - 0.5, now=now)
        assert cursor.wait_s(now) == 0.0


def test_slow_scans_from_the_start_do_not_delay_those_after_the_cursor() -> None:
    """While a session pins xmin, new runs are still claimed quickly by scans after the cursor."""
    cursor, now = Cursor(), 10.0
    cursor.scanned([claimed(1)], 5, sent_at=now - 0.5, now=now)
    for _ in range(3):
        cursor.scanned([], 5, sent_at=now - 0.5, now=now)
        assert cursor.wait_s(now) == 0.0


@pytest.mark.few(3)
@pytest.mark.parametrize(("queues", "took_s"), [(1, 2.0), (10, 2.0), (15, 2.0), (5, 7.5), (40, 0.1)])
def test_the_rescans_of_all_slow_queues_take_at_most_30_percent_of_the_time(queues: int, took_s: float) -> None:
    """The queues share one connection: those that are due are scanned one after the other."""
    rescans = Rescans()
    cursors = [Cursor(rescans) for _ in range(queues)]
    now, spent_s = 0.0, 0.0
    for cursor in cursors:
        cursor.scanned([claimed(1)], 1, sent_at=now, now=(now := now + took_s))
    begin = now = now + 60.0  # the first pauses are short, because a server may have been busy just once
    while now < begin + 400.0:
        due = next((cursor for cursor in cursors if cursor.after(now) is FROM_THE_START), None)
        if due is None:
            now += 0.1
            continue
        due.scanned([claimed(1)], 1, sent_at=now, now=(now := now + took_s))
        spent_s += took_s
    assert 0 < spent_s / (now - begin) <= 0.3


def test_a_scan_that_fails_at_once_does_not_make_the_next_one_come_sooner() -> None:
    cursor = Cursor()
    for sent_at in range(0, 400, 40):
        cursor.scanned([claimed(1)], 1, sent_at=float(sent_at), now=sent_at + 2.0)
    pause_s = cursor.full_in(362.0)
    cursor.not_scanned(400.0, 400.001)
    assert cursor.full_in(400.001) >= pause_s > 20
    assert cursor.after(400.1) is not FROM_THE_START


def test_a_queue_that_is_quick_again_holds_up_no_other() -> None:
    rescans = Rescans()
    slow, other = Cursor(rescans), Cursor(rescans)
    slow.scanned([claimed(1)], 1, sent_at=0.0, now=9.0)
    slow.scanned([claimed(2)], 1, sent_at=60.0, now=60.001)
    other.scanned([claimed(1)], 1, sent_at=100.0, now=100.1)
    assert other.full_in(100.1) <= EVERY_S


def test_a_slow_queue_whose_scan_failed_still_holds_up_the_others() -> None:
    rescans = Rescans()
    slow, other = Cursor(rescans), Cursor(rescans)
    slow.scanned([claimed(1)], 1, sent_at=0.0, now=9.0)
    slow.not_scanned(60.0, 60.001)
    other.scanned([claimed(1)], 1, sent_at=100.0, now=100.1)
    assert other.full_in(100.1) >= SHARE_AT_MOST * 9 - EVERY_S
