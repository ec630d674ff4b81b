"""The claim cursor is a hint: where it begins, and when a scan from the start has to follow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from pgsched.core.model import Claim
from pgsched.db.queries.runs.claims import FROM_THE_START
from pgsched.worker.claiming.backlog_pieces import ROUND_S, SHARE, SHARE_AT_MOST
from pgsched.worker.claiming.cursor import ASIDE_S, EVERY_S, QUICK_S, Cursor

NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)


def claimed(run_id: int, seconds: int = 0, priority: int = 5) -> Claim:
    at = f"{NOON + timedelta(seconds=seconds)}"
    return Claim(run_id, uuid4(), 1, 1, "default", priority, "python", "t", {}, available_at=at)


def test_it_begins_at_the_start() -> None:
    assert Cursor().after(0.0) is FROM_THE_START


def test_it_goes_on_behind_the_last_claim_of_each_priority() -> None:
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
    for pause in (1.0, 10.0, 10.0):
        if cursor.aside:
            cursor.looked_aside([], 5, sent_at=now, now=now + 0.51)
        else:
            cursor.scanned([claimed(1)], 5, sent_at=now - 0.1, now=now + 0.51)
        now += 0.51
        assert cursor.full_in(now) == pytest.approx(pause, abs=0.02), "one slow answer is no reason to look less often"
        assert cursor.after(now + pause - 0.1) is not FROM_THE_START, "nor is one due sooner"
        assert cursor.passed(now + pause - 0.1) is None
        assert cursor.passed(now + pause + 0.02)
        now += pause


def test_a_full_scan_that_found_everything_does_not_move_it_back() -> None:
    cursor = Cursor()
    cursor.move([claimed(9, 9)], now=0.0)
    cursor.scanned([claimed(3, 3)], 5, sent_at=0.0, now=0.01)
    assert cursor.after(0.1)["after_ids"] == "{0,0,0,0,0,9,0,0,0,0}"


def test_a_full_scan_that_had_to_stop_moves_it_back_to_where_it_stopped() -> None:
    cursor = Cursor()
    cursor.move([claimed(9, 9)], now=0.0)
    cursor.scanned([claimed(3, 3)], 1, sent_at=0.0, now=0.01)
    assert cursor.after(0.1)["after_ids"] == "{0,0,0,0,0,3,0,0,0,0}", "more may lie between"


def test_where_scans_from_the_start_are_quick_there_is_no_cursor() -> None:
    """One statement then does what takes two otherwise: one behind the cursor, and one to see what lies before it."""
    cursor = Cursor()
    cursor.scanned([claimed(1)], 5, sent_at=0.0, now=QUICK_S)
    assert cursor.after(QUICK_S) is FROM_THE_START
    cursor.scanned([claimed(2)], 5, sent_at=1.0, now=1.0 + 2 * QUICK_S)
    assert cursor.after(1.0 + 2 * QUICK_S) is not FROM_THE_START


def test_looks_that_are_slow_and_in_vain_take_no_more_than_their_share_of_the_time() -> None:
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


def test_what_is_claimed_is_followed_by_the_next_look_at_once() -> None:
    cursor, now = Cursor(), 10.0
    for claims in ([], [claimed(1)], [], [claimed(2)], []):
        cursor.scanned(claims, 5, sent_at=now - 0.5, now=now)
        assert cursor.wait_s(now) == 0.0


def test_slow_scans_from_the_start_do_not_put_off_those_behind_the_cursor() -> None:
    """As while something pins xmin: what comes is claimed behind the cursor, quickly."""
    cursor, now = Cursor(), 10.0
    cursor.scanned([claimed(1)], 5, sent_at=now - 0.5, now=now)
    for _ in range(3):
        cursor.scanned([], 5, sent_at=now - 0.5, now=now)
        assert cursor.wait_s(now) == 0.0


def slow(now: float, *claims: Claim) -> Cursor:
    """A cursor that has passed these, in a queue that takes long to scan from its start."""
    cursor = Cursor()
    cursor.went_on([], sent_at=now - 1, now=now - 1)  # what a claim takes at least
    cursor.scanned(claims, len(claims), sent_at=now - 2 * ASIDE_S, now=now)
    return cursor


def test_where_a_scan_from_the_start_takes_long_claims_never_begin_there_again() -> None:
    cursor = slow(10.0, claimed(1, 0, 2), claimed(8, 1))
    assert cursor.aside
    for now in (10.0, 11.0, 100.0):
        assert cursor.after(now)["after_ids"] == "{0,0,1,0,0,8,0,0,0,0}"


def test_what_was_passed_is_then_claimed_from_as_often_as_that_is_cheap() -> None:
    cursor = slow(10.0, claimed(1, 0, 2), claimed(8, 1))
    assert cursor.passed(10.9) is None
    assert cursor.passed(11.1) == {
        "priorities": "{2,5}",
        "after_ats": '{"-infinity","-infinity"}',
        "after_ids": "{0,0}",
        "until_ats": '{"2026-05-01 12:00:00+00:00","2026-05-01 12:00:01+00:00"}',
        "until_ids": "{1,8}",
    }
    cursor.looked_aside([], 5, sent_at=12.0, now=12.0 + ASIDE_S * 1.1)
    assert cursor.aside
    assert cursor.passed(12.1 + 1.9) is None, "a twentieth of the time"
    assert cursor.passed(12.1 + 2.3)


def test_a_look_that_took_all_that_it_asked_for_is_gone_on_with_where_it_ended() -> None:
    cursor = slow(10.0, claimed(1, 0, 2), claimed(8, 8))
    front = cursor.after(11.0)
    cursor.looked_aside([claimed(3), claimed(4, 4)], 2, sent_at=12.0, now=12.0 + 0.75 * ASIDE_S)
    assert cursor.after(12.2) == front, "the other claims stay in front, and what is dead is not in their way"
    assert cursor.passed(12.0 + 1.4 * ASIDE_S) is None, "they have their turn first"
    going_on = cursor.passed(12.0 + 1.6 * ASIDE_S)
    assert going_on is not None
    assert (going_on["after_ids"], going_on["until_ids"]) == ("{0,4}", "{1,8}")
    assert going_on["after_ats"] == '{"-infinity","2026-05-01 12:00:04+00:00"}'
    cursor.looked_aside([], 2, sent_at=13.0, now=13.0 + 0.75 * ASIDE_S)
    assert cursor.aside, "its parts took long together"
    from_the_start = cursor.passed(99.0)
    assert from_the_start is not None
    assert from_the_start["after_ids"] == "{0,0}"


def test_what_is_more_urgent_is_claimed_first_beside_other_claims_too() -> None:
    given = slow(10.0, claimed(8, 1), claimed(1, 0, 2)).passed(99.0)
    assert given is not None
    assert (given["priorities"], given["until_ids"]) == ("{2,5}", "{1,8}")


def test_once_it_is_quick_again_or_cannot_be_asked_claims_begin_at_the_start() -> None:
    cursor = slow(10.0, claimed(8, 1))
    cursor.looked_aside([], 5, sent_at=12.0, now=12.0 + QUICK_S / 2)
    assert cursor.passed(99.0) is None
    assert cursor.after(12.1) is FROM_THE_START
    cursor = slow(10.0, claimed(8, 1))
    cursor.not_looked(0.0, 12.0)
    assert cursor.passed(99.0) is None
    assert cursor.after(12.1) is FROM_THE_START


def test_where_it_cannot_be_asked_once_its_pieces_are_kept() -> None:
    cursor = slow(10.0, claimed(1, 0))
    cursor.went_on([claimed(2, 1)], sent_at=19.99, now=20.0)
    cursor.went_on([claimed(3, 2)], sent_at=29.99, now=30.0)
    cursor.not_looked(0.0, 40.0)
    cursor.scanned([claimed(4, 3)], 1, sent_at=40.0, now=40.5)
    assert cursor.full_in(40.5) == pytest.approx(2.0), "it may be refused again, and scan again"
    first = cursor.passed(99.0)
    assert first is not None
    assert first["until_ids"] == "{2}"
    cursor.not_looked(0.0, 99.0)
    cursor.not_looked(0.0, 99.1)
    assert cursor.after(99.2) is FROM_THE_START
    cursor.not_scanned(130.0)
    assert cursor.after(130.0) is not FROM_THE_START, "what is too long for one statement is not tried again at once"
    again = cursor.passed(199.0)
    assert again is not None
    assert again["until_ids"] == "{2}"


def test_what_was_never_answered_does_not_count_as_quick() -> None:
    cursor = slow(10.0, claimed(1, 0))
    cursor.went_on([claimed(2, 1)], sent_at=19.99, now=20.0)
    assert cursor.passed(40.0)
    cursor.not_looked(15.0, 55.0)
    assert cursor.passed(999.0)
    assert cursor.looked_aside([], 1, sent_at=999.0, now=999.001), "what was not answered is asked for again"
    assert cursor.aside


def test_what_is_more_than_one_piece_is_said_to_be_left() -> None:
    cursor = slow(10.0, claimed(1, 0))
    cursor.went_on([claimed(2, 1)], sent_at=19.99, now=20.0)
    cursor.went_on([claimed(3, 2)], sent_at=29.99, now=30.0)
    assert cursor.passed(40.0)
    assert cursor.looked_aside([claimed(5)], 1, sent_at=40.0, now=40.2)
    assert cursor.passed(50.0)
    assert cursor.looked_aside([], 1, sent_at=50.0, now=50.2)
    cursor.hinted()
    assert cursor.passed(60.0)
    assert cursor.looked_aside([], 1, sent_at=60.0, now=60.2)
    assert cursor.passed(70.0)
    cursor.hinted()
    assert cursor.looked_aside([], 1, sent_at=70.0, now=70.2), "one round more for what came in its middle"
    for at in (80.0, 90.0, 100.0):
        assert cursor.passed(at)
        more = cursor.looked_aside([], 1, sent_at=at, now=at + 0.2)
    assert not more


def test_what_gets_no_answer_for_long_is_asked_again_later_and_no_claim_tries_the_same() -> None:
    cursor = slow(10.0, claimed(8, 1))
    cursor.not_looked(60.0, 72.0)
    assert cursor.passed(73.0) is None
    assert cursor.passed(72.0 + SHARE_AT_MOST * 60.0)
    assert cursor.after(72.0 + SHARE_AT_MOST * 60.0) is not FROM_THE_START


@pytest.mark.parametrize(("took_s", "pause_s"), [(5.0, ROUND_S), (20.0, SHARE_AT_MOST * 20.0)])
def test_what_takes_very_long_is_asked_beside_other_claims_every_half_minute_or_in_a_fifth_of_the_time(
    took_s: float, pause_s: float
) -> None:
    cursor, answered_at = slow(10.0, claimed(8, 1)), 10.0
    for _ in range(9):
        cursor.looked_aside([], 5, sent_at=answered_at + 100, now=answered_at + 100 + took_s)
        answered_at += 100 + took_s
    assert cursor.passed(answered_at + pause_s - 0.1) is None
    assert cursor.passed(answered_at + pause_s + 0.1)


def test_a_queue_of_which_nothing_was_claimed_has_no_cursor_to_look_beside() -> None:
    cursor = slow(10.0)
    assert cursor.passed(99.0) is None
    assert cursor.after(99.0) is FROM_THE_START


def test_a_server_that_is_far_away_is_not_taken_for_a_queue_that_takes_long() -> None:
    cursor = Cursor()
    cursor.scanned([claimed(1)], 1, sent_at=0.0, now=2 * ASIDE_S)
    assert not cursor.aside, "it is not known yet what the way takes"
    cursor.went_on([claimed(2)], sent_at=1.0, now=1.0 + 2 * ASIDE_S)
    cursor.scanned([claimed(3)], 1, sent_at=2.0, now=2.0 + 2.5 * ASIDE_S)
    assert not cursor.aside
    cursor.scanned([claimed(4)], 1, sent_at=4.0, now=4.0 + 3.5 * ASIDE_S)
    assert cursor.aside
    cursor.looked_aside([], 1, sent_at=9.0, now=9.0 + 3.5 * ASIDE_S)
    assert cursor.aside
    cursor.looked_aside([], 1, sent_at=99.0, now=99.0 + 2.9 * ASIDE_S)
    assert not cursor.aside, "what the way takes is not the scan's"


@pytest.mark.parametrize("guarded", [True, False])
def test_a_server_far_away_is_not_taken_for_a_slow_scan(guarded: bool) -> None:
    """After a failover, what the way to it takes is no longer what it was."""
    cursor, far_s = Cursor(), 2 * ASIDE_S
    cursor.scanned([claimed(1)], 1, sent_at=0.0, now=0.001)
    if guarded:
        cursor.reconnected()
    cursor.went_on([claimed(2, 1)], sent_at=1.0, now=1.0 + far_s)
    cursor.scanned([], 1, sent_at=2.0, now=2.0 + far_s)
    assert cursor.aside is not guarded
    cursor.looked_aside([], 1, sent_at=3.0, now=3.0 + far_s)
    assert cursor.aside is not guarded


def test_what_is_claimed_beside_is_no_quicker_for_a_reconnect() -> None:
    """The way to the server has not been measured again when that is answered: a scan of 40 s must not become one that
    all claims wait for."""
    cursor = Cursor()
    cursor.scanned([claimed(1)], 1, sent_at=0.0, now=0.001)
    cursor.scanned([claimed(2, 1)], 1, sent_at=1.0, now=31.0)
    assert cursor.aside
    cursor.reconnected()
    cursor.looked_aside([], 1, sent_at=40.0, now=80.0)
    assert cursor.aside and cursor.after(200.0) is not FROM_THE_START
