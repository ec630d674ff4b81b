"""No limit is exceeded under random load while workers and leaders are killed: the recorded history proves it.

`PGSCHED_CHAOS_S=60 pytest -m long` makes the load last a minute; in CI it is shorter.
"""

from __future__ import annotations

import os
import random
import signal
import time
from pathlib import Path

import psycopg
import pytest
from psycopg.types.json import Jsonb

from pgsched.chaos.checks.limits import find_limit_violations, read_attempts, save
from tests.support.fleet import Fleet, leader_pid, one
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

LOAD_S = float(os.environ.get("PGSCHED_CHAOS_S", "16"))
OPTIONS = ("--concurrency", "8", "--lease", "2", "--grace", "0.5")
KEYS, QUEUES = {"customer": 2, "account": 1, "lonely": 1}, {"narrow": 3}
KEY_RATES, QUEUE_RATES = {"api": (30, 2.0, 4)}, {"paced": (50, 1.0, 5)}
SETTINGS = """
INSERT INTO pgsched.limits (name, concurrency, ordered) VALUES ('customer', 2, false), ('account', 1, true);
INSERT INTO pgsched.limits (name, rate, rate_period, rate_burst) VALUES ('api', 30, '2 seconds', 4);
INSERT INTO pgsched.limits (name, concurrency) VALUES ('lonely', 1);
INSERT INTO pgsched.queues (name, concurrency_limit) VALUES ('narrow', 3);
INSERT INTO pgsched.queues (name, rate, rate_period, rate_burst) VALUES ('paced', 50, '1 second', 5);
INSERT INTO pgsched.queues (name, fair) VALUES ('fair', true);
"""
ADD = (
    "INSERT INTO pgsched.runs (task, args, queue, concurrency_key, priority, max_attempts, backoff, backoff_base)"
    " VALUES ('spend', %s, %s, %s, %s, 20, 'fixed', %s)"
)
PLACES = (
    ("default", "customer", 6), ("default", "account", 4), ("default", "api", 2), ("narrow", None, 1),
    ("narrow", "customer", 6), ("paced", None, 1), ("paced", "lonely", 2), ("fair", "tenant", 8), ("default", None, 1),
)  # fmt: skip


def add(db: psycopg.Connection, dice: random.Random, n: int) -> None:
    """Enqueue `n` random runs."""
    rows = []
    for _ in range(n):
        queue, prefix, keys = dice.choice(PLACES)
        key = None if prefix is None else f"{prefix}:{dice.randrange(keys)}"
        failures = 1 if dice.random() < 0.1 else 0
        seconds = dice.choice([0.0, 0.001, 0.01, 0.03])
        backoff = f"{dice.choice([0, 0.05, 0.3])} seconds"
        rows.append([Jsonb({"seconds": seconds, "failures": failures}), queue, key, dice.randrange(10), backoff])
    with db.transaction():
        db.cursor().executemany(ADD, rows)


def hurt(fleet: Fleet, db: psycopg.Connection, dice: random.Random) -> None:
    """Kill, stop or freeze a worker, in half of the cases the leader. A freeze may outlast a lease.

    A killed or stopped worker is replaced. With fewer than three live workers, only start another one.
    """
    alive = [member for member in fleet.members if member.alive]
    if len(alive) < 3:
        fleet.launch(*OPTIONS)
        return
    leader = leader_pid(db)
    victim = next((m for m in alive if m.pid == leader), None) if dice.random() < 0.5 else None
    victim = victim or dice.choice(alive)
    how = dice.choice(["kill", "kill", "stop", "freeze"])
    if how == "freeze":
        victim.signal(signal.SIGSTOP)
    else:
        victim.signal(signal.SIGKILL if how == "kill" else signal.SIGTERM)
        fleet.launch(*OPTIONS)


def thaw(fleet: Fleet) -> None:
    for member in fleet.members:
        if member.alive:
            member.signal(signal.SIGCONT)


@pytest.mark.timeout(300 + 6 * LOAD_S)
@pytest.mark.parametrize("load_s", [5.0, pytest.param(LOAD_S, marks=pytest.mark.long)], ids=["briefly", "long"])
def test_no_limit_is_exceeded_at_any_instant_nor_leaked(load_s: float, fleet: Fleet, db: psycopg.Connection) -> None:
    seed = random.randrange(1_000_000)
    dice = random.Random(seed)
    print(f"seed {seed}")
    for statement in SETTINGS.strip().split(";\n"):
        db.execute(statement.encode())
    fleet.start(4, *OPTIONS)
    ends, hurts = time.monotonic() + load_s, time.monotonic() + 1.5
    while time.monotonic() < ends:
        add(db, dice, dice.randrange(1, 25))
        if time.monotonic() > hurts:
            hurt(fleet, db, dice)
            hurts = time.monotonic() + dice.uniform(0.8, 3.0)
            if dice.random() < 0.6:
                thaw(fleet)
        time.sleep(0.2 * dice.random())
    thaw(fleet)
    fleet.start(1, *OPTIONS)
    open_runs = "SELECT count(*) FROM pgsched.runs WHERE phase < 3"
    wait_until(lambda: one(db, open_runs) == 0, 90 + 3 * load_s, "every run to end: none is held for ever")
    history = read_attempts(db)
    if "PGSCHED_CHAOS_SAVE" in os.environ:
        save(history, Path(os.environ["PGSCHED_CHAOS_SAVE"]))
    assert len(history) > 10 * load_s
    assert find_limit_violations(history, KEYS, QUEUES, KEY_RATES, QUEUE_RATES, ["account"]) == []
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE state <> 'succeeded'") == 0
