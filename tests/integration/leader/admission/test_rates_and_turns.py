"""Each start costs a token of its rate, keys of a fair queue take turns, and the priority of a waiting run rises."""

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
    admission_state = admission.AdmissionState()
    assert admit(db, admission_state) == 8, "each key has its own bucket"
    assert admission_state.wait_s is not None
    claim_all(db)
    wait_until(lambda: admit(db, admission_state), what="the next token")
    assert states(db)["waiting"] >= 20


def test_an_admitted_run_that_has_not_started_holds_its_token(db: psycopg.Connection) -> None:
    limit(db, "api", rate=1000, rate_period="1 second", rate_burst=3)
    add(db, 50, "api")
    for _ in range(20):
        admit(db)
    assert states(db)["queued"] == 3, "or they would all start in one moment when a worker comes"


def test_a_released_claim_has_paid_its_token_already(db: psycopg.Connection, dsn: str) -> None:
    limit(db, "api", rate=1, rate_period="1 day", rate_burst=2)
    add(db, 3, "api")
    assert admit(db) == 2
    claims = take(db, 2)
    assert admit(db) == 0
    release(dsn, claims[0])
    wait_until(lambda: admit(db) == 1, what="its token, which lacks what the bucket may have lost since")
    assert claim_all(db) == [claims[0].id]
    assert admit(db) == 0


def test_claims_released_after_a_minute_do_not_all_start_again_at_once(db: psycopg.Connection, dsn: str) -> None:
    """Other runs may have used the tokens that came in since these runs were claimed."""
    limit(db, "api", rate=100, rate_period="1 second", rate_burst=1)
    add(db, 8, "api")
    admission_state, claims = admission.AdmissionState(), list[Claim]()
    while len(claims) < 8:
        admit(db, admission_state)
        claims += take(db, 8)
    db.execute("UPDATE pgsched.runs SET started_at = started_at - interval '1 minute'")
    for claim in claims:
        release(dsn, claim)
    started = 0

    def start_more() -> bool:
        nonlocal started
        admit(db, admission_state)
        started += len(take(db, 8))
        return started > 0

    wait_until(start_more, what="the first token")
    for _ in range(3):
        start_more()
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
    admission_state = admission.AdmissionState()
    admit(db, admission_state)
    ahead = states(db)["queued"]
    assert ahead <= gates.SMALLEST_WINDOW
    (small,) = add(db, 1, "small")
    claim_all(db)
    admit(db, admission_state)
    assert row_of(db, small)["state"] == "queued"


def test_keys_take_turns_even_if_one_run_goes_at_a_time(db: psycopg.Connection) -> None:
    limit_queue(db, fair=True, concurrency_limit=1)
    for key in ("a", "b", "c"):
        add(db, 3, key)
    admission_state, order = admission.AdmissionState(), []
    for _ in range(9):
        admit(db, admission_state)
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
