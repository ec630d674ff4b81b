"""A queue's first limit waits at most five seconds for writers, and a pass of admission takes a bounded time."""

from __future__ import annotations

import psycopg
import pytest

from pgsched.chaos.checks import limits as checker
from pgsched.db.queries.leader import limits
from pgsched.leader import admission, changed_limits
from tests.support.db.limiting import add, admit, limit, limit_queue
from tests.support.db.setting import Open, take
from tests.support.fleet import one

SHUT = "SELECT waits_for, clock_timestamp() - paused_at < '1 minute' FROM pgsched.pauses WHERE what = 'limit'"


@pytest.fixture
def stranger(connect: Open) -> psycopg.Connection:
    """Return the session of an open transaction that has written a run into another queue."""
    found = connect(autocommit=False)
    add(found, 1, queue="other")
    return found


def times_up(admission_state: admission.AdmissionState) -> None:
    """Let the five seconds of waiting for writers pass."""
    for wait in admission_state.waits.values():
        wait.until -= changed_limits.WRITERS_TIMEOUT_S


def test_a_first_limit_waits_five_seconds_for_writers_and_names_one(
    db: psycopg.Connection, stranger: psycopg.Connection
) -> None:
    add(db, 3)
    limit_queue(db, concurrency_limit=2)
    admission_state = admission.AdmissionState(share=1.0)
    admit(db, admission_state)
    assert db.execute(SHUT).fetchall() == [(stranger.info.backend_pid, True)]
    assert take(db, 5) == []
    (wait,) = admission_state.waits.values()
    times_up(admission_state)
    admit(db, admission_state)
    assert db.execute(SHUT).fetchall() == []
    assert len(take(db, 5)) == 2
    assert one(db, "SELECT applied_at IS NOT NULL FROM pgsched.queues")
    assert wait.writers, "the stranger is there still"


def test_without_the_bound_a_first_limit_waits_for_ever(
    db: psycopg.Connection, stranger: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed_limits, "WRITERS_TIMEOUT_S", float("inf"))
    add(db, 3)
    limit_queue(db, concurrency_limit=2)
    admission_state = admission.AdmissionState()
    for _ in range(3):
        admit(db, admission_state)
    assert take(db, 5) == []


def test_runs_enqueued_after_a_limit_is_in_force_are_bound_by_it(db: psycopg.Connection, connect: Open) -> None:
    """Runs of an older transaction may exceed the limit, later runs never. The checker knows when it came in force."""
    older = connect(autocommit=False)
    add(older, 4)
    limit_queue(db, concurrency_limit=1)
    admission_state = admission.AdmissionState(share=1.0)
    admit(db, admission_state)
    times_up(admission_state)
    admit(db, admission_state)
    older.commit()
    assert len(take(db, 5)) == 4, "they did not know of it"
    add(db, 3)
    for _ in range(5):
        admit(db, admission_state)
        take(db, 5)
    history, since = checker.read_attempts(db), checker.limits_in_force_since(db)
    assert len(history) == 4, "nothing that is new began beside them"
    assert checker.find_limit_violations(history, queues={"default": 1}, since=since) == []
    assert len(checker.find_limit_violations(history, queues={"default": 1})) == 1, (
        "without that instant it would be a violation"
    )
    for number in range(2):  # as if the limit did not hold
        db.execute(
            "UPDATE pgsched.runs SET state = 'running', started_at = now(), token = gen_random_uuid(),"
            " lease_until = now() WHERE id = (SELECT max(id) - %s FROM pgsched.runs)",
            [number],
        )
    assert len(checker.find_limit_violations(checker.read_attempts(db), queues={"default": 1}, since=since)) == 1


def test_recording_the_awaited_writer_is_not_audited_and_wakes_no_leader(
    db: psycopg.Connection, stranger: psycopg.Connection, connect: Open
) -> None:
    limit_queue(db, concurrency_limit=2)
    before = one(db, "SELECT count(*) FROM pgsched.audit")
    listener = connect()
    listener.execute("LISTEN pgsched_leader")
    admission_state = admission.AdmissionState()
    admit(db, admission_state)
    admit(db, admission_state)
    assert one(db, "SELECT waits_for FROM pgsched.pauses") == stranger.info.backend_pid
    assert one(db, "SELECT count(*) FROM pgsched.audit") == before
    db.execute("NOTIFY pgsched_leader, 'end'")
    assert [note.payload for note in listener.notifies(timeout=10, stop_after=1)] == ["end"]


# ---- a pass of admission takes a bounded time


def test_a_pass_looks_at_a_share_of_the_keys_and_the_next_goes_on(db: psycopg.Connection) -> None:
    limit(db, "k", 1)
    for n in range(100):
        add(db, 2, f"k:{n:03}")
    admission_state = admission.AdmissionState(share=30 / admission.MAX_GROUPS)
    admitted = []
    for _ in range(4):
        admission_state.share = 30 / admission.MAX_GROUPS
        with db.transaction():
            admitted.append(admission.admit_limited_runs(db, admission_state))
    assert admitted == [30, 30, 30, 10]
    assert admission_state.last_group == ("", "")


def test_all_keys_of_a_limited_queue_are_looked_at_together(db: psycopg.Connection) -> None:
    """Which run of the queue is first depends on all of its keys."""
    limit_queue(db, "narrow", concurrency_limit=1)
    limit(db, "k", 1)
    admit(db)
    for n in range(40):
        add(db, 1, f"k:{n:03}", queue="narrow", priority=5 if n < 39 else 0)
    admission_state = admission.AdmissionState(share=10 / admission.MAX_GROUPS)
    with db.transaction():
        assert admission.admit_limited_runs(db, admission_state) == 1
    assert [claim.id for claim in take(db, 5)] == []
    assert one(db, "SELECT concurrency_key FROM pgsched.runs WHERE state = 'queued'") == "k:039"


def test_a_slow_pass_makes_the_next_one_smaller_and_a_quick_full_one_larger() -> None:
    admission_state = admission.AdmissionState(share=0.5)
    admission_state.adapt_share(0.5)
    assert admission_state.share == pytest.approx(0.05)
    admission_state.adapt_share(0.001)
    assert admission_state.share == pytest.approx(0.05), "there was no more to do"
    admission_state.more = True
    admission_state.adapt_share(0.001)
    assert admission_state.share == pytest.approx(0.1)
    for _ in range(20):
        admission_state.adapt_share(10.0)
    assert admission_state.share == admission.LEAST_SHARE


def test_writers_are_known_by_their_sessions(db: psycopg.Connection, stranger: psycopg.Connection) -> None:
    assert list(limits.list_writers(db).values()) == [stranger.info.backend_pid]
