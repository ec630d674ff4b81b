"""Faults of a primary with a streaming standby: failover with and without loss, and the old primary's return."""

from __future__ import annotations

import time
from typing import Any
from uuid import UUID

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgsched.chaos.faults.clock import await_work_of
from pgsched.chaos.faults.server import FIRST_CLAIM, FIRST_SLOT, under_load
from pgsched.chaos.registry import fault
from pgsched.chaos.site.servers import Pair, PlainServer, dsn_of, dsn_of_all
from pgsched.chaos.stage import Stage
from pgsched.db.queries.runs.claims import heartbeat
from pgsched.db.queries.testing import settle

SYNCHRONOUS = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'"
STANDBYS = "SELECT count(*) FROM pg_stat_replication"
SESSIONS = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'pgsched %'"
KEYS = "SELECT idempotency_key, id, extract(epoch FROM available_at)::float8 FROM pgsched.runs WHERE job_id IS NULL"
TOKENS = "SELECT DISTINCT token::text FROM chaos.journal WHERE token IS NOT NULL"
NEWEST = "SELECT max(id) FROM pgsched.runs"
CLAIMS = "SELECT DISTINCT id, token FROM chaos.journal WHERE state = 'running' AND id = ANY (%s)"
AWAY = "SELECT count(*) FROM chaos.ledger WHERE run_id = %s AND pid = %s AND event IN ('stopped', 'refused')"
CUT_OFF = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE application_name LIKE 'pgsched %' AND pid <> pg_backend_pid()"""
WRITTEN = "SELECT count(*) FROM chaos.journal WHERE at > %s"
LEASE_S, AWAY_S = 3.0, 25.0

Database = psycopg.Connection[Any]


def connect_to(stage: Stage, server: PlainServer) -> Database:
    """Connect to the stage's database on this server, primary or standby."""
    name = conninfo_to_dict(stage.dsn)["dbname"]
    dsn = make_conninfo(dsn_of(server), dbname=name, application_name="chaos stage")
    return psycopg.connect(dsn, autocommit=True, connect_timeout=5)


def make_synchronous(stage: Stage) -> None:
    """Make each commit wait for the standby; return when this is in effect."""
    pair: Pair = stage.server
    pair.wait_for_standby()
    with pair.primary.connect() as db:
        stage.wait(lambda: db.execute(SYNCHRONOUS).fetchone() == (1,), 15, "the standby to be synchronous")


def fail_over(stage: Stage) -> None:
    """Crash the primary, promote the standby, and wait until work goes on there."""
    pair: Pair = stage.server
    with stage.outage("the primary is gone"):
        pair.stop("immediate")
        since = time.time()  # the servers are on this host
        pair.promote()
        stage.figure("promotion", time.time() - since)
    claim = stage.wait(lambda: stage.one(FIRST_CLAIM, since, since), 40, "a claim on the new primary")
    stage.figure("first claim after the primary's end", claim, bound=10)
    slot = stage.wait(lambda: stage.one(FIRST_SLOT, since, since), 40, "a slot on the new primary")
    stage.figure("first slot after the primary's end", slot, bound=12)
    under_load(stage, 40)


@fault("failover-synchronous", tier="full", needs=("standby",), server="standby", direct=True)
def synchronous(stage: Stage) -> None:
    """Crash the primary; its synchronous standby takes over: nothing that was acknowledged is lost."""
    make_synchronous(stage)
    under_load(stage)
    fail_over(stage)


@fault("synchronous-standby-lost", tier="full", needs=("standby",), server="standby", direct=True)
def standby_lost(stage: Stage) -> None:
    """Stop the standby that every commit waits for, for a while: all stands still, and goes on when it is back."""
    pair: Pair = stage.server
    make_synchronous(stage)
    under_load(stage)
    logged = {worker.pid: worker.log.stat().st_size for worker in stage.workers}
    with stage.outage("commits wait for the standby"):
        pair.standby.stop("immediate")
        time.sleep(AWAY_S)  # how long the standby is away is part of the fault
        with pair.primary.connect() as db:
            stage.figure("sessions meanwhile", (db.execute(SESSIONS).fetchone() or [0])[0], bound=60)
        silent = [one.pid for one in stage.workers if b"[warning" not in one.log.read_bytes()[logged[one.pid] :]]
        assert not silent, f"said nothing although nothing could be written: {silent}"
        since = time.time()
        pair.standby.start()
    claim = stage.wait(lambda: stage.one(FIRST_CLAIM, since, since), 60, "a claim after the standby's return")
    stage.figure("first claim after the standby's return", claim, bound=15)
    under_load(stage, 40)


@fault("standby-first", tier="quick", needs=("standby",), server="standby", direct=True)
def standby_first(stage: Stage) -> None:
    """Name the standby first in the DSN: workers find the primary, before and after a failover."""
    pair: Pair = stage.server
    swapped = make_conninfo(dsn_of_all(pair.standby, pair.primary), dbname=conninfo_to_dict(stage.dsn)["dbname"])
    member = stage.start_worker(dsn=swapped)
    await_work_of(stage, member)
    with pair.standby.connect() as db:
        assert db.execute(SESSIONS).fetchone() == (0,), "nobody stays on the standby"
    make_synchronous(stage)
    fail_over(stage)
    await_work_of(stage, member)


@fault("failover-asynchronous", tier="full", needs=("standby",), server="standby", direct=True, separate_ledger=True)
def asynchronous(stage: Stage) -> None:
    """Promote a standby that lags: only what it lacked is lost; no former owner settles a run id given again."""
    pair: Pair = stage.server
    under_load(stage)
    cut_at = stage.clock()
    pair.cut_stream()
    with pair.primary.connect() as db:
        stage.wait(lambda: db.execute(STANDBYS).fetchone() == (0,), 15, "the stream to end")
    under_load(stage, 100)  # a standby's sequences are up to 32 numbers ahead of its rows
    zombies = [stage.enqueue("hold", gate="lost") for _ in range(6)]
    stage.wait(lambda: all(stage.events(run) for run in zombies), 20, "runs that will be lost")
    owners = {run: stage.events(run)[-1] for run in zombies}
    frozen = stage.fleet.by_pid(owners[zombies[-1]])
    assert frozen is not None
    frozen.freeze()
    fail_over(stage)
    stage.wait(lambda: stage.one(NEWEST) > max(zombies), 60, "the lost numbers to be given again")
    record_losses(stage, cut_at)
    frozen.thaw()
    stage.wait(
        lambda: all(has_noticed_loss(stage, run, pid) for run, pid in owners.items()), 20, "the zombies to be told"
    )
    stage.open_gate("lost")


def has_noticed_loss(stage: Stage, run: int, pid: int) -> bool:
    """Check whether the handler of a lost claim has noticed the loss."""
    return stage.ledger.execute(AWAY, [run, pid]).fetchone() != (0,)


def record_losses(stage: Stage, cut_at: float) -> None:
    """Find out what was lost, and record it: nothing from before the stream was cut may be missing.

    Claims that only the old primary had must not be accepted for runs of the same id on the new one.
    """
    pair: Pair = stage.server
    with connect_to(stage, pair.standby) as db:
        kept, known = {row[0] for row in db.execute(KEYS)}, {row[0] for row in db.execute(TOKENS)}
        numbers = {row[0] for row in db.execute("SELECT id FROM pgsched.runs")}
    with pair.look_back(), connect_to(stage, pair.primary) as old:
        lost = [row for row in old.execute(KEYS) if row[0] not in kept]
        tokens = {row[0] for row in old.execute(TOKENS)} - known
        again = [number for _, number, _ in lost if number in numbers]
        claims = old.execute(CLAIMS, [again]).fetchall()
    stage.findings.settings |= {"lost_keys": [key for key, _, _ in lost], "lost_tokens": sorted(tokens)}
    stage.figure("enqueues lost with the lag (runs)", len(lost))
    stage.figure("of these, from before the lag (runs)", sum(at < cut_at - 0.5 for _, _, at in lost), bound=0)
    stage.figure("numbers given again (runs)", len(again))
    claims = [(number, token) for number, token in claims if str(token) in tokens]
    assert lost and claims, "the standby lagged, and numbers were given again"
    stage.figure(
        "writes of zombies that were let in", sum(is_stale_claim_accepted(stage, *claim) for claim in claims), bound=0
    )
    stage.note(f"{len(claims)} lost claims of numbers that were given again")


def is_stale_claim_accepted(stage: Stage, number: int, token: UUID) -> bool:
    """Send what the owner of a lost claim would send: a settlement, a heartbeat and assert_claim.

    Return whether the server accepted any of these.
    """
    settled = settle(stage.db, [number], [token])
    beat = heartbeat(stage.db, -1, LEASE_S, [(number, token.int)])
    try:
        stage.db.execute("SELECT pgsched.assert_claim(%s, %s)", [number, token])
    except psycopg.errors.ObjectNotInPrerequisiteState:
        return bool(settled or beat.renewed or beat.unsure)
    return True


@fault("old-primary-returns", tier="full", needs=("standby",), server="standby", direct=True, separate_ledger=True)
def old_primary(stage: Stage) -> None:
    """Bring the old primary back writable and first in the DSN after a failover: no process writes there."""
    pair: Pair = stage.server
    make_synchronous(stage)
    under_load(stage)
    fail_over(stage)
    database = conninfo_to_dict(stage.dsn)["dbname"]
    stage.sessions.dsn = make_conninfo(dsn_of_all(pair.standby, pair.primary), dbname=database)
    pair.primary.set_offline(synchronous_standby_names="")
    pair.primary.start()
    with connect_to(stage, pair.primary) as stray:
        row = stray.execute("SELECT clock_timestamp(), NOT pg_is_in_recovery()").fetchone()
        assert row is not None and row[1], "the old primary takes writes"
        for _ in range(3):  # all processes have to connect again
            with connect_to(stage, pair.standby) as db:
                stage.note(f"{(db.execute(CUT_OFF).fetchone() or [0])[0]} sessions were cut off")
            newcomer = stage.start_worker()
            under_load(stage, 40)
            await_work_of(stage, newcomer)
        (written,) = stray.execute(WRITTEN, [row[0]]).fetchone() or (-1,)
        stage.figure("rows written on the old primary", written, bound=0)
    pair.stop()
