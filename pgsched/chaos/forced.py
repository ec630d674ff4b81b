"""The chaos app in a process that always believes that it holds the leader's lock: only the fence protects slots.

Start a worker with `--app pgsched.chaos.forced:app`.
"""

from __future__ import annotations

from typing import Any

from pgsched.chaos.ledger import app
from pgsched.db.queries.leader import leadership

__all__ = ["app"]


def claim_lock_held(conn: Any) -> bool:
    """Claim to hold the leader's lock, without asking the server."""
    return True


leadership.try_lead = claim_lock_held
