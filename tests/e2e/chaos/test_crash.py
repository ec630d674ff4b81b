"""When a worker dies or freezes during a run, another worker runs it again, and it is settled once."""

from __future__ import annotations

import signal

import psycopg
import pytest

from tests.support.db.setting import row_of
from tests.support.fleet import (
    LEASE_S,
    QUICK,
    REAP_S,
    Fleet,
    clock,
    enqueue,
    events,
    one,
    open_gate,
    state,
    unaccounted,
    wait_for_leader,
)
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

ELECTION_S = 1.0
SLACK_S = 1.2  # for two busy cores


@pytest.mark.parametrize("leads", [False, True])
def test_a_run_of_a_killed_worker_is_claimed_again_in_time_and_settled_once(
    leads: bool, fleet: Fleet, db: psycopg.Connection
) -> None:
    (victim,) = fleet.start(1, *QUICK, *([] if leads else ["--no-leader"]))
    run = enqueue(db, "hold", gate="g")
    wait_until(lambda: events(db, run, "start"), what="the first start")
    fleet.start(1, *QUICK)
    assert (wait_for_leader(db) == victim.pid) is leads
    killed_at = clock(db)
    victim.kill()
    wait_until(lambda: len(events(db, run, "start")) == 2, LEASE_S + REAP_S + 5, "the second start")
    again = (one(db, "SELECT started_at FROM pgsched.runs WHERE id = %s", run) - killed_at).total_seconds()
    # A new leader begins to count leases at its election.
    bound = LEASE_S + (ELECTION_S if leads else REAP_S)
    print(f"claimed again after {again:.2f} s (lease {LEASE_S} s, reap every {REAP_S} s, leader killed: {leads})")
    assert again <= bound + SLACK_S
    open_gate(db, "g")
    wait_until(lambda: state(db, run) == "succeeded", what="the run to succeed")
    (_, (second, _)) = events(db, run, "start")
    assert [token for token, _ in events(db, run, "end")] == [second]
    evidence = db.execute("SELECT attempt, outcome, error FROM pgsched.attempts WHERE run_id = %s", [run]).fetchall()
    # A worker that is killed before its next heartbeat has not reported the start, so the attempt is not charged.
    assert [row[:2] for row in evidence] in ([(1, "crashed")], [(1, "interrupted")])
    assert "worker lost" in evidence[0][2]
    assert unaccounted(db) == []


def test_late_writes_of_a_frozen_worker_change_nothing(fleet: Fleet, db: psycopg.Connection) -> None:
    (victim,) = fleet.start(1, *QUICK, "--no-leader")
    runs = [enqueue(db, "hold", gate="g") for _ in range(3)]
    for run in runs:
        wait_until(lambda run=run: events(db, run, "start"), what="the first start")  # type: ignore[misc]
    victim.signal(signal.SIGSTOP)
    (other,) = fleet.start(1, *QUICK)
    for run in runs:
        wait_until(lambda run=run: len(events(db, run, "start")) == 2, 15, "the second start")  # type: ignore[misc]
    open_gate(db, "g")
    for run in runs:
        wait_until(lambda run=run: state(db, run) == "succeeded", what="the other worker to finish")  # type: ignore[misc]
    before = [row_of(db, run) for run in runs]
    evidence = db.execute("SELECT * FROM pgsched.attempts ORDER BY run_id, token").fetchall()

    victim.signal(signal.SIGCONT)
    late = "SELECT count(*) FROM ledger WHERE pid = %s AND event IN ('refused', 'stopped')"
    wait_until(lambda: one(db, late, victim.pid) == 3, what="the zombie's handlers to end")
    wait_until(lambda: victim.log.read_text().count("claim lost") >= 3, what="the zombie to notice")
    # The frozen worker makes its late writes before its next run: when that run has succeeded, they are over.
    other.signal(signal.SIGTERM)
    assert other.ended() == 0
    last = enqueue(db, "note")
    wait_until(lambda: state(db, last) == "succeeded", what="the former zombie to work on")
    assert [row_of(db, run) for run in runs] == before
    assert (
        db.execute("SELECT * FROM pgsched.attempts WHERE run_id <> %s ORDER BY run_id, token", [last]).fetchall()
        == evidence
    )
    ends = db.execute("SELECT pid FROM ledger WHERE event = 'end' AND run_id <> %s", [last]).fetchall()
    assert ends == [(other.pid,)] * 3
