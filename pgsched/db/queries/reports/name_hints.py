"""Notes about names of tasks and queues that nothing else uses, with names that may have been meant.

They show a typo at once, not at 3 a.m. Invariant: an unknown name is never refused, because its
worker or job may come later.
"""

from __future__ import annotations

from typing import Any

from pgsched.core.model import Kind, Row
from pgsched.core.text import did_you_mean, similar_names
from pgsched.db.connection.connect import Connection
from pgsched.db.rows import rows, value

NEWEST = 1000  # runs whose names are read
UNKNOWN = {
    "task": "no live worker offers and no job has task {}",
    "queue": "no live worker, job or run has queue {}, and it has no settings",
}


def unknown(conn: Connection[Any], what: str, name: str) -> str | None:
    """Return a note about a `task` or `queue` that nothing in the database names; None if something does."""
    known = known_names(conn, what)
    if name in known or (what == "queue" and value(conn, "queue_has_runs", {"name": name})):
        return None
    return UNKNOWN[what].format(name) + did_you_mean(name, known)


def known_names(conn: Connection[Any], what: str) -> list[str]:
    """Return the known names of a kind: task, queue, job, limit, worker, owner (of a file) or lock."""
    return [row["name"] for row in rows(conn, "names_known", {"what": what})]


def similar_names_of_runs(conn: Connection[Any], what: str, name: str) -> list[str]:
    """Return names of a `queue`, `task` or `tag` that may have been meant instead of one that no run has."""
    with conn.transaction():
        # with the stale statistics of a queue table, the planner would scan all history for the newest runs
        conn.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off")
        known = [row["name"] for row in rows(conn, "names_of_runs", {"what": what, "n": NEWEST})]
    if what != "tag":
        known += known_names(conn, what)
    return [] if name in known else similar_names(name, known)


def hint_offered_tasks(conn: Connection[Any], task: str) -> str:
    """Return a hint of similar tasks that workers offer, as the end of a message; empty if there is none."""
    return did_you_mean(task, [row["name"] for row in rows(conn, "tasks_offered")])


def about_job(conn: Connection[Any], job: Row) -> list[str]:
    """Return notes about a job that was just made or changed and may not do what was meant."""
    notes = []
    if job["kind"] == Kind.TASK:
        offered = [row["name"] for row in rows(conn, "tasks_offered")]
        if offered and job["task"] not in offered:
            notes.append(f"no live worker offers task {job['task']}{did_you_mean(job['task'], offered)}")
    if job["queue"] not in {None, "default"}:
        known = [row["name"] for row in rows(conn, "other_queues", {"job": job["id"]})]
        if job["queue"] not in known:
            notes.append(f"nothing else has queue {job['queue']}{did_you_mean(job['queue'], known)}")
    program = str(job["task"]).strip()
    argv = job["args"].get("argv") if isinstance(job["args"], dict) else job["args"]
    if job["kind"] == Kind.COMMAND and " " in program and not argv:
        notes.append("a command is one program: give its arguments in --args, or use --kind shell")
    return notes
