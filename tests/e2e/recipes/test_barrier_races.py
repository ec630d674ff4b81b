"""A double barrier while everything breaks: a round opens for exactly so many, and is over when all have left or died.

Eight processes meet. Some are killed, or frozen past their ttl. Connections are cut, the server is restarted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recipes.race.findings import OF_BARRIERS, find, find_early_ends
from tests.support.recipes.race.race import LONG_S, SHORT_S, check_server_log, racing
from tests.support.server import PrivateCluster

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
LEFT = "SELECT count(*) FROM race.passed WHERE what = 'left'"


@pytest.mark.parametrize("pooled", [False, True])
def test_a_double_barrier_opens_and_closes_for_exactly_so_many(
    pooled: bool, private_cluster: PrivateCluster, tmp_path: Path
) -> None:
    with racing(private_cluster, tmp_path, pooled=pooled) as race:
        for n in range(8):
            lasting = n < 3
            how = "tasks" if n % 3 == 1 else "thread"
            race.start("barrier_process", str(LONG_S if lasting else SHORT_S), how, lasting=lasting)
        race.hurt(lambda: race.count(LEFT), 12, rounds=2 if pooled else 3)
        race.finish("meeting")
        opened = race.count("SELECT count(*) FROM race.rounds WHERE what = 'opened'")
        print(f"{opened} rounds; {race.count(LEFT)} left them; killed: {race.killed}")
        assert find(race.db, OF_BARRIERS) == []
        assert find_early_ends(race.db, race.killed) == []
        assert check_server_log(private_cluster) == []
