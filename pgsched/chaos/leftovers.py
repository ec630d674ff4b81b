"""What idle processes and the server still hold: threads, descriptors, children, sessions, locks."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import psycopg

from pgsched.chaos.checks.processes import SLACK
from pgsched.chaos.fleet import Member
from pgsched.chaos.history import Leak

SESSIONS = """SELECT pid, application_name, state, left(query, 80) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND application_name <> 'chaos stage'
    AND backend_type = 'client backend'"""
LOCKS = """SELECT l.pid, l.locktype, l.mode, coalesce(l.objid::text, '') FROM pg_locks l
WHERE l.locktype = 'advisory' AND l.pid <> pg_backend_pid()
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


def holdings(pid: int) -> dict[str, int] | None:
    """Count what a process holds, from /proc; None if there is no /proc or no process with this id."""
    here = Path(f"/proc/{pid}")
    try:
        status = dict(line.split(":", 1) for line in (here / "status").read_text().splitlines() if ":" in line)
        children = 0
        for task in (here / "task").iterdir():
            with contextlib.suppress(OSError):  # this thread has just ended
                children += len((task / "children").read_text().split())
        return {
            "threads": int(status["Threads"]),
            "descriptors": len(list((here / "fd").iterdir())),
            "children": children,
        }
    except (OSError, KeyError, ValueError):
        return None


def at_rest(members: list[Member], before: dict[int, dict[str, int]]) -> bool:
    """Check that no process holds more than `before`, apart from `SLACK`."""
    for member in members:
        now, then = holdings(member.pid), before.get(member.pid)
        if now and then and any(now[what] > then[what] + slack for what, slack in SLACK.items()):
            return False
    return True


def find_leaks(db: psycopg.Connection[Any]) -> list[Leak]:
    """Return the sessions and advisory locks that are left in this database after all its processes have ended."""
    found = [Leak("session", " ".join(map(str, row))) for row in db.execute(SESSIONS).fetchall()]
    return found + [Leak("lock", " ".join(map(str, row))) for row in db.execute(LOCKS).fetchall()]
