"""Watches while everything breaks: each change is seen once, in its order, or the watcher knows that it skipped some.

Three processes change keys, and four watch them. Some are killed or frozen. Connections are cut, the server is
restarted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recipes.race.findings import find_early_ends, find_missed
from tests.support.recipes.race.race import PATIENCE_S, check_server_log, racing
from tests.support.recipes.race.watch_process import ROOT
from tests.support.server import PrivateCluster
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
CHANGES = "SELECT count(*) FROM race.changes"
WATCHERS = [  # name, what, prefix, lasting
    ("one", "watches", f"{ROOT}/", True), ("two", "watches_async", f"{ROOT}/", False),
    ("three", "watches", f"{ROOT}/a/", False), ("four", "watches_async", f"{ROOT}/b/party", False),
]  # fmt: skip
BEHIND = """
SELECT count(*) FROM unnest(%s::text[], %s::text[]) w(name, prefix)
WHERE (SELECT max(c.version) FROM race.changes c WHERE starts_with(c.key, w.prefix))
    > (SELECT coalesce(max(s.version), 0) FROM race.seen s WHERE s.watcher = w.name)"""


@pytest.mark.parametrize("pooled", [False, True])
def test_no_change_is_missed(pooled: bool, private_cluster: PrivateCluster, tmp_path: Path) -> None:
    names, prefixes = [name for name, *_ in WATCHERS], [prefix for _, _, prefix, _ in WATCHERS]
    with racing(private_cluster, tmp_path, pooled=pooled) as race:
        for n in range(3):
            race.start("watch_process", "writes", lasting=n < 1)
        for name, what, prefix, lasting in WATCHERS:
            race.start("watch_process", what, prefix, name, lasting=lasting)
        race.hurt(lambda: race.count("SELECT count(*) FROM race.seen"), 60, rounds=2 if pooled else 3)
        race.ask("INSERT INTO race.over VALUES ('writing') RETURNING what")
        # keys of killed processes go when somebody looks, which is a change, too
        bound = "SELECT count(*) FROM pgsched.store WHERE session IS NOT NULL"
        with race.saying_where():
            wait_until(lambda: race.count(bound) == 0, PATIENCE_S, "bound keys to be gone")
            wait_until(lambda: race.count(BEHIND, names, prefixes) == 0, PATIENCE_S, "the last change to be seen")
        race.finish("watching")
        skipped = race.count("SELECT count(*) FROM race.seen WHERE kind = 'skipped'")
        print(f"{race.count(CHANGES)} changes; skips: {skipped}; killed: {race.killed}")
        for name, prefix in zip(names, prefixes, strict=True):
            assert find_missed(race.db, name, prefix) == []
        assert find_early_ends(race.db, race.killed) == []
        assert check_server_log(private_cluster) == []
