"""The chaos app in a process whose leader keeps its session when the database's clock goes ahead, as behind a pooler.

The server counts a session's idle time by that clock: it ends every other leader's, and a new one reaps nothing for a
lease. A worker is started with `--app pgsched.chaos.steady:app`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pgsched.chaos.ledger import app
from pgsched.leader import election

__all__ = ["app"]

module: Any = election
straight = module.connect


def kept(dsn: str, *, settings: Mapping[str, str], **given: Any) -> Any:
    return straight(dsn, settings={k: v for k, v in settings.items() if not k.startswith("idle_")}, **given)


module.connect = kept
