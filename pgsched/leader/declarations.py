"""Remove declared jobs that no process of their app declares any more.

Invariant: a declared job is not removed while its app is down. The leader cannot know which release is the last one:
the only process of a new release may just be restarting. So a job stays for a grace time after the last process that
declared it was seen.
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


def remove_undeclared_jobs(
    conn: Connection[Any], begin: Callable[[], AbstractContextManager[Connection[Any]]], grace_s: float
) -> int:
    """Delete the jobs that no process has declared for `grace_s` seconds; return how many.

    Nearly always there are none, which costs one query. `begin` begins a transaction of the leader.
    """
    if not registration.find_undeclared(conn, grace_s, 1):
        return 0
    with begin() as proved:
        gone = sorted(registration.delete_undeclared(proved, grace_s, BATCH), key=APP)
    for app, rows in groupby(gone, APP):
        logger.warning("jobs removed: no process declares them any more", app=app, jobs=[row["name"] for row in rows])
    return len(gone)
