"""The rule: a declared job goes when no process of its app declares it any more, and never while the app is down.

Which release is the last one nobody knows: the only process of a new one may be on its way up again. So a job stays for
as long as that may take after the last process that declared it was seen.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from itertools import groupby
from operator import itemgetter
from typing import Any

from pgsched import log
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import registration

logger = log.get("leader")
BATCH = 500
APP = itemgetter("app")


def work(conn: Connection[Any], begin: Callable[[], AbstractContextManager[Connection[Any]]], grace_s: float) -> int:
    """Delete the jobs that no process has declared for `grace_s` seconds; returns how many. One look where there are
    none, as nearly always. `begin` begins a transaction of the leader's."""
    if not registration.withdrawn(conn, grace_s, 1):
        return 0
    with begin() as proved:
        gone = sorted(registration.withdraw(proved, grace_s, BATCH), key=APP)
    for app, rows in groupby(gone, APP):
        logger.warning("jobs removed: no process declares them any more", app=app, jobs=[row["name"] for row in rows])
    return len(gone)
