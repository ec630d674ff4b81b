"""Pages of runs. The rule: a page reads a bounded part of history, whatever is asked and however little is found; what
it did not look at it says, and the next page goes on from there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pgsched.core.lifecycle import OPEN_STATES
from pgsched.core.model import Row, State
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs import run_filter, run_pages
from pgsched.db.queries.runs.run_filter import Filter

READ, BAD = 100_000, 2000
FEW = (State.DEAD, State.MISSED)


@dataclass(frozen=True, slots=True)
class Page:
    """Runs, newest first. `more`: there are more among those looked at. `end_id` or `end_at`: only runs after it were
    looked at; both None: all were."""

    runs: list[Row]
    more: bool
    end_id: int | None = None
    end_at: datetime | None = None


def page(conn: Connection[Any], wanted: Filter) -> Page:
    """The page of at most `limit` runs that a filter begins. Raises InputError, NotFound."""
    asked = replace(wanted, limit=wanted.limit + 1)
    run_filter.check(conn, asked)
    plain = replace(wanted, before_id=None, limit=Filter().limit)
    if plain == Filter() or wanted.state in OPEN_STATES:
        return cut(run_filter.list_runs(conn, asked), wanted)
    if plain == Filter(job=wanted.job):
        return by_slot(conn, asked, wanted)
    return bad(conn, asked, wanted) if wanted.state in FEW else by_id(conn, asked, wanted)


def cut(found: list[Row], wanted: Filter, end_id: int | None = None, end_at: datetime | None = None) -> Page:
    """The page without the run that only says that there are more."""
    more = len(found) > wanted.limit
    return Page(found[: wanted.limit], more, None if more else end_id, None if more else end_at)


def by_slot(conn: Connection[Any], asked: Filter, wanted: Filter) -> Page:
    """A job's runs: its index is in the order of slots."""
    ids = run_pages.newest_of_job(conn, wanted.job, wanted.before_id, asked.limit)
    found = {row["id"]: row for row in run_filter.by_id(conn, ids)} if ids else {}
    return cut([found[run_id] for run_id in ids if run_id in found], wanted)


def bad(conn: Connection[Any], asked: Filter, wanted: Filter) -> Page:
    """Runs that ended badly: an index has them by their end, and they may be many."""
    if wanted.ended_since is not None:
        return cut(run_filter.list_runs(conn, asked), wanted)
    until = wanted.ended_until if isinstance(wanted.ended_until, datetime) else None
    since = run_pages.bad_since(conn, until, BAD)
    return cut(run_filter.list_runs(conn, replace(asked, ended_since=since)), wanted, end_at=since)


def by_id(conn: Connection[Any], asked: Filter, wanted: Filter) -> Page:
    """What no index answers: the newest READ ids are looked at."""
    newest = wanted.before_id
    if newest is None:
        newest = run_pages.newest_id(conn) + 1
    end = newest - READ - 1 if newest > READ + 1 else None
    with conn.transaction():
        # the order by id then comes from the primary key alone, whose range is what bounds the reading
        conn.execute("SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off")
        found = run_filter.list_runs(conn, replace(asked, after_id=end))
    return cut(found, wanted, end_id=end)
