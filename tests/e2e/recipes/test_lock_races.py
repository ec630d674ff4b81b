"""Locks, semaphores, elections and read locks while everything breaks: nobody writes who does not hold them.

Eight processes contend. Some are killed, or frozen past their ttl. Connections are cut, the server is restarted. What
holders write in transactions that assert their grant is checked afterwards.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recipes.race.findings import OF_LOCKS, find, find_early_ends
from tests.support.recipes.race.race import LONG_S, SHORT_S, check_server_log, racing
from tests.support.server import PrivateCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
HOW = ("thread", "tasks", "thread", "thread", "tasks", "sql", "tasks", "sql")  # the first three are never hurt
HOLDS = "SELECT count(DISTINCT (lock, fence)) FROM race.writes"
LEFT = "SELECT count(*) FROM pgsched.lock_places"


@pytest.mark.parametrize(
    ("kinds", "pooled"),
    [(["lock"], False), (["lock"], True), (["semaphore", "rw"], False), (["semaphore", "rw"], True),
     (["election"], False), (["election", "lock"], True)],
)  # fmt: skip
def test_only_holders_write_and_everybody_gets_its_turn(
    kinds: list[str], pooled: bool, private_cluster: PrivateCluster, tmp_path: Path
) -> None:
    with racing(private_cluster, tmp_path, pooled=pooled) as race:
        for n, how in enumerate(HOW):
            lasting = n < 3
            race.start("contender", str(LONG_S if lasting else SHORT_S), how, *kinds, lasting=lasting)
        race.hurt(lambda: race.count(HOLDS), 15, rounds=2 if pooled else 3)
        race.finish("contending")
        print(f"{race.count(HOLDS)} holds; killed: {race.killed}")
        assert find(race.db, OF_LOCKS) == []
        assert find_early_ends(race.db, race.killed) == []
        assert check_server_log(private_cluster) == []
        # those of killed processes are left
        wait_until(
            lambda: race.ask("SELECT pgsched.sweep_sessions(1000)") and race.count(LEFT) == 0,
            30,
            "the lines to be empty",
        )
