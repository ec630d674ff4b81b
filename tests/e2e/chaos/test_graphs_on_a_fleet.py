"""A fleet makes each run of a graph once and after its parents, also while workers and leaders are killed.

GRAPH_RUNS=10000 makes the graphs as large as the product promises.
"""

from __future__ import annotations

import os
import random
import time

import psycopg
import pytest

from pgsched import App
from pgsched.app.graph import Node
from tests.support.apps import ledger
from tests.support.fleet import QUICK, Fleet, one, unaccounted, wait_for_leader
from tests.support.waiting import wait_until

pytestmark = pytest.mark.long

RUNS = int(os.environ.get("GRAPH_RUNS", "1500"))
LAYERS = int(RUNS**0.5)
PARENTS = 3
TOO_EARLY = (
    "SELECT count(*) FROM pgsched.dependencies d JOIN public.ledger child ON child.run_id = d.run_id"
    " WHERE NOT EXISTS (SELECT FROM public.ledger parent WHERE parent.run_id = d.parent_id AND parent.at < child.at)"
)


def make_graph(dsn: str) -> list[int]:
    """Enqueue layers of runs, each of which waits for three runs of the layer before. Return the ids."""
    app = App("graphs", dsn=dsn)
    note = app.task(name="note")(ledger.note.function)
    choose = random.Random(1)
    nodes, above = list[Node](), list[Node]()
    with app.graph() as g:
        while len(g) < RUNS:
            width = min(max(RUNS // LAYERS, 1), RUNS - len(g))
            above = [g.add(note, after=choose.sample(above, min(PARENTS, len(above)))) for _ in range(width)]
            nodes += above
    app.close()
    return [node.id for node in nodes]


def left(db: psycopg.Connection) -> int:
    return int(one(db, "SELECT count(*) FROM pgsched.runs WHERE phase < 3"))


def test_four_workers_make_each_run_of_a_graph_once_and_after_its_parents(
    fleet: Fleet, dsn: str, db: psycopg.Connection
) -> None:
    fleet.start(4)
    wait_for_leader(db)
    began = time.monotonic()
    ids = make_graph(dsn)
    made = time.monotonic()
    wait_until(lambda: left(db) == 0, 150, "the graph to end")
    ended = time.monotonic()
    print(f"{len(ids)} runs: enqueued in {made - began:.2f} s, done {ended - made:.2f} s later")
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded' AND attempt = 1") == len(ids)
    assert db.execute("SELECT count(*), count(DISTINCT run_id) FROM public.ledger").fetchone() == (RUNS, RUNS)
    assert one(db, TOO_EARLY) == 0


def test_a_graph_survives_killed_workers_and_leaders(fleet: Fleet, dsn: str, db: psycopg.Connection) -> None:
    fleet.start(4, *QUICK)
    for share in (3, 2):  # when this many quarters are left, kill the leader and a worker, and start one worker
        if share == 3:
            make_graph(dsn)
        wait_until(lambda share=share: left(db) < RUNS * share / 4, 150, "a part of the graph to end")  # type: ignore[misc]
        leader = wait_for_leader(db)
        victims = [leader, next(m.pid for m in fleet.members if m.alive and m.pid != leader)]
        for pid in victims[:share]:
            fleet.by_pid(pid).kill()
        fleet.start(1, *QUICK)
    wait_until(lambda: left(db) == 0, 150, "the graph to end")
    assert one(db, "SELECT count(*) FROM pgsched.runs WHERE state = 'succeeded'") == RUNS
    assert one(db, "SELECT count(DISTINCT run_id) FROM public.ledger") == RUNS
    crashed = one(db, "SELECT count(*) FROM pgsched.attempts WHERE outcome IN ('crashed', 'interrupted')")
    print(f"{crashed} attempts lost")
    assert one(db, "SELECT count(*) - count(DISTINCT run_id) FROM public.ledger") <= crashed
    assert one(db, TOO_EARLY) == 0
    assert unaccounted(db) == []
