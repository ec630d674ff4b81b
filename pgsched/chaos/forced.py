"""The chaos app in a process that believes it holds the leader's lock whenever it asks: only the fence is left.

A worker is started with `--app pgsched.chaos.forced:app`.
"""

from __future__ import annotations

from typing import Any

from pgsched.chaos.ledger import app
from pgsched.db import leading

__all__ = ["app"]


def always(conn: Any) -> bool:
    return True


leading.try_lead = always
