"""Pages of runs, newest first, for a filter.

Invariant: a page reads a bounded part of history, for any filter and however few runs match. It shows which part it did
not read, and the next page goes on from there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pgsched.core.lifecycle import OPEN_STATES
from pgsched.core.model import Row, State
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.runs import run_filter, run_pages
from pgsched.db.queries.runs.run_filter import Filter

READ, MAX_BAD_READ = 100_000, 2000  # ids, and runs that ended badly, that a page reads at most
FEW = (State.DEAD, State.MISSED)


@dataclass(frozen=True, slots=True)
class Page:
    """Runs, newest first.

    `more`: there are more runs among those that were read.
    `end_id`, `end_at`: only runs after this were read; both None: all runs were read.
    """

    runs: list[Row]
    more: bool
    end_id: int | None = None
    end_at: datetime | None = None


def read_page(conn: Connection[Any], wanted: Filter) -> Page:
    """Return the page of at most `limit` runs that a filter selects. Raises InputError or NotFound."""
    asked = replace(wanted, limit=wanted.limit + 1)
    run_filter.check_filter(conn, asked)
    plain = replace(wanted, before_id=None, limit=Filter().limit)
    if plain == Filter() or wanted.state in OPEN_STATES:
        return cut_page(run_filter.list_runs(conn, asked), wanted)
    if plain == Filter(job=wanted.job):
        return page_by_slot(conn, asked, wanted)
    return page_of_bad_runs(conn, asked, wanted) if wanted.state in FEW else page_by_id(conn, asked, wanted)


def cut_page(found: list[Row], wanted: Filter, end_id: int | None = None, end_at: datetime | None = None) -> Page:
    """Return the page without the one run that only shows that there are more."""
    more = len(found) > wanted.limit
    return Page(found[: wanted.limit], more, None if more else end_id, None if more else end_at)


def page_by_slot(conn: Connection[Any], asked: Filter, wanted: Filter) -> Page:
    """Return a page of a job's runs: its index is in the order of slots."""
    ids = run_pages.newest_of_job(conn, wanted.job, wanted.before_id, asked.limit)
    found = {row["id"]: row for row in run_filter.by_id(conn, ids)} if ids else {}
    return cut_page([found[run_id] for run_id in ids if run_id in found], wanted)


def page_of_bad_runs(conn: Connection[Any], asked: Filter, wanted: Filter) -> Page:
    """Return a page of runs that ended badly: their index is in the order of ends, and they may be many."""
    if wanted.ended_since is not None:
        return cut_page(run_filter.list_runs(conn, asked), wanted)
    until = wanted.ended_until if isinstance(wanted.ended_until, datetime) else None
    since = run_pages.end_behind_newest_bad(conn, until, MAX_BAD_READ)
    return cut_page(run_filter.list_runs(conn, replace(asked, ended_since=since)), wanted, end_at=since)


def page_by_id(conn: Connection[Any], asked: Filter, wanted: Filter) -> Page:
    """Return a page for a filter that no index answers: the newest READ ids are read."""
    newest = wanted.before_id
    if newest is None:
        newest = run_pages.newest_id(conn) + 1
    end = newest - READ - 1 if newest > READ + 1 else None
    with conn.transaction():
        # then only the primary key can give the order by id, and its range bounds the reading
        conn.execute("SET LOCAL enable_sort = off; SET LOCAL enable_bitmapscan = off")
        found = run_filter.list_runs(conn, replace(asked, after_id=end))
    return cut_page(found, wanted, end_id=end)
