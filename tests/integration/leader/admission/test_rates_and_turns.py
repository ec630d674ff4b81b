"""Rates pay for starts, keys take turns, and what waits for long is not passed by for ever."""

from __future__ import annotations

import psycopg

from pgsched.core import admission as gates
from pgsched.core.model import Claim
from pgsched.leader import admission
from tests.support.db.limiting import add, admit, claim_all, end, limit, limit_queue, release, states
from tests.support.db.setting import row_of, take
from tests.support.fleet import one
from tests.support.waiting import wait_until


def test_a_rate_admits_a_burst_and_then_goes_at_its_pace(db: psycopg.Connection) -> None:
    limit(db, "api", rate=100, rate_period="100 seconds", rate_burst=4)
    add(db, 20, "api:1")
    add(db, 20, "api:2")
    standing = admission.AdmissionState()
    assert admit(db, standing) == 8, "each key has its own bucket"
    assert standing.wait_s is not None
    claim_all(db)
    wait_until(lambda: admit(db, standing), what="the next token")
    assert states(db)["waiting"] >= 20


def test_what_is_admitted_and_has_not_started_holds_its_token(db: psycopg.Connection) -> None:
    limit(db, "api", rate=1000, rate_period="1 second", rate_burst=3)
    add(db, 50, "api")
    for _ in range(20):
        admit(db)
    assert states(db)["queued"] == 3, "or they would all start in one moment when a worker comes"


def test_a_claim_that_is_given_back_unstarted_has_paid(db: psycopg.Connection, dsn: str) -> None:
    limit(db, "api", rate=1, rate_period="1 day", rate_burst=2)
    add(db, 3, "api")
    assert admit(db) == 2
    claims = take(db, 2)
    assert admit(db) == 0
    release(dsn, claims[0])
    wait_until(lambda: admit(db) == 1, what="its token, which lacks what the bucket may have lost since")
    assert claim_all(db) == [claims[0].id]
    assert admit(db) == 0


def test_many_claims_given_back_long_after_they_were_made_do_not_all_start_anew(
    db: psycopg.Connection, dsn: str
) -> None:
    """What came in since they were claimed others may have used."""
    limit(db, "api", rate=100, rate_period="1 second", rate_burst=1)
    add(db, 8, "api")
    standing, claims = admission.AdmissionState(), list[Claim]()
    while len(claims) < 8:
        admit(db, standing)
        claims += take(db, 8)
    db.execute("UPDATE pgsched.runs SET started_at = started_at - interval '1 minute'")
    for claim in claims:
        release(dsn, claim)
    started = 0
    for _ in range(3):
        admit(db, standing)
        started += len(take(db, 8))
    assert one(db, "SELECT count(*) FROM pgsched.refunds") == 0
    spread = "SELECT extract(epoch FROM max(started_at) - min(started_at))::float8 FROM pgsched.runs"
    assert started <= 1 + 100 * (one(db, spread) or 0.0) + 1e-6


def test_a_retry_costs_a_token(db: psycopg.Connection) -> None:
    limit(db, "api", rate=1, rate_period="1 day", rate_burst=1)
    (first,) = add(db, 1, "api")
    admit(db)
    claim_all(db)
    db.execute("UPDATE pgsched.runs SET state = 'scheduled', available_at = clock_timestamp() WHERE id = %s", [first])
    assert admit(db) == 0
    assert row_of(db, first)["state"] == "waiting"


def test_one_tenants_backlog_does_not_delay_anothers_first_run(db: psycopg.Connection) -> None:
    limit_queue(db, fair=True)
    add(db, 20_000, "big")
    standing = admission.AdmissionState()
    admit(db, standing)
    ahead = states(db)["queued"]
    assert ahead <= gates.SMALLEST_WINDOW
    (small,) = add(db, 1, "small")
    claim_all(db)
    admit(db, standing)
    assert row_of(db, small)["state"] == "queued"


def test_many_keys_take_turns_however_few_go_at_a_time(db: psycopg.Connection) -> None:
    limit_queue(db, fair=True, concurrency_limit=1)
    for key in ("a", "b", "c"):
        add(db, 3, key)
    standing, order = admission.AdmissionState(), []
    for _ in range(9):
        admit(db, standing)
        (run_id,) = claim_all(db)
        order.append(row_of(db, run_id)["concurrency_key"])
        end(db, run_id)
    assert order == ["a", "b", "c"] * 3


def test_a_low_priority_rises_with_age(db: psycopg.Connection) -> None:
    limit_queue(db, ageing="1 minute", concurrency_limit=1)
    (old,) = add(db, 1, priority=9)
    (new,) = add(db, 1, priority=6)
    db.execute("UPDATE pgsched.runs SET ready_at = ready_at - interval '4 minutes' WHERE id = %s", [old])
    admit(db)
    assert claim_all(db) == [old]
    assert row_of(db, old)["priority"] == 5
    assert row_of(db, new)["priority"] == 6
