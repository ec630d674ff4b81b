"""The chaos app, in a process that lacks a guard; environment variables say which guard.

PGSCHED_TEST_SQL names the folder from which statements are read, once the first one is needed. PGSCHED_TEST_NO_FENCE
removes the leader's fence.
"""

from __future__ import annotations

import os
from pathlib import Path

from pgsched.chaos.ledger import app
from pgsched.db import statements
from pgsched.db.queries.leader import leadership

__all__ = ["app"]

true_folder = statements.folder

if crippled := os.environ.get("PGSCHED_TEST_SQL"):
    statements.folder = lambda asked: Path(crippled) if asked == "sql" else true_folder(asked)
    statements.statements.cache_clear()
if os.environ.get("PGSCHED_TEST_NO_FENCE"):
    assert leadership.fence.__module__ == leadership.__name__, "there is a fence to take away"
    leadership.try_lead = lambda conn: True
    leadership.is_vacant = lambda *_, **__: True
    leadership.fence = lambda conn, term: 1  # as if a term had begun before
