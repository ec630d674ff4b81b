"""The chaos app in a process whose leader keeps its session when the database's clock jumps ahead, as behind a pooler.

The server counts a session's idle time by its clock, so a jump ends the session of every other leader. A new leader
reaps nothing for the length of a lease. Start a worker with `--app pgsched.chaos.steady:app`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgsched.chaos.ledger import app
from pgsched.leader import election

__all__ = ["app"]

module: Any = election
straight = module.connect


def connect_without_idle_limits(dsn: str, *, settings: Mapping[str, str], **given: Any) -> Any:
    """Connect without the settings by which the server ends idle sessions."""
    return straight(dsn, settings={k: v for k, v in settings.items() if not k.startswith("idle_")}, **given)


module.connect = connect_without_idle_limits
