"""Item queues while everything breaks: each item is consumed once, and none is lost.

Four processes put items and four get them. Some are killed, or frozen past their hold. Connections are cut, the server
is restarted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recipes.race.findings import OF_ITEMS, find, find_early_ends
from tests.support.recipes.race.race import LONG_S, PATIENCE_S, SHORT_S, check_server_log, racing
from tests.support.server import PrivateCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
CONSUMED = "SELECT count(*) FROM race.changes_of_items WHERE what = 'deleted'"
LEFT = "SELECT count(*) FROM pgsched.items"


@pytest.mark.parametrize("pooled", [False, True])
def test_each_item_is_consumed_once(pooled: bool, private_cluster: PrivateCluster, tmp_path: Path) -> None:
    with racing(private_cluster, tmp_path, pooled=pooled) as race:
        for n in range(4):
            race.start("item_process", str(SHORT_S), "puts", lasting=n < 1)
            race.start("item_process", str(LONG_S if n < 2 else SHORT_S), "gets", lasting=n < 2)
        race.hurt(lambda: race.count(CONSUMED), 30, rounds=2 if pooled else 3)
        race.ask("INSERT INTO race.over VALUES ('putting') RETURNING what")
        with race.saying_where():
            wait_until(lambda: race.count(LEFT) == 0, PATIENCE_S, "all items to be consumed")
        race.finish("getting")
        print(f"{race.count(CONSUMED)} items; killed: {race.killed}")
        assert race.count(LEFT) == 0
        assert find(race.db, OF_ITEMS) == []
        assert find_early_ends(race.db, race.killed) == []
        assert check_server_log(private_cluster) == []
