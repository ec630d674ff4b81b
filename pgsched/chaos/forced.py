"""The chaos app in a process that believes it holds the leader's lock whenever it asks: only the fence is left.

A worker is started with `--app pgsched.chaos.forced:app`.
"""

from __future__ import annotations

from typing import Any

from pgsched.chaos.ledger import app
from pgsched.db.queries.leader import leadership

__all__ = ["app"]


def always(conn: Any) -> bool:
    return True


leadership.try_lead = always
