"""Read the state of a database as the model of files has it: all in one moment, with a few statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from pgsched.core.jobs_file.model.columns import COLUMNS, SECTION_OF, What
from pgsched.core.jobs_file.model.entries import JobsFile, Key, State, Stored
from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.files import stored

# Columns of a job that a preview needs and that no file has.
FACTS = ("id", "run_count", "error", "shifts")
INSTANTS = ("anchor_at", "decided_until", "next_run_at", "run_at")


def read_state(conn: Connection[Any], file: JobsFile, owner: str, now: datetime) -> State:
    """Return what the database has under the names of a file, and what its owner declares."""
    keys = [(str(what), name) for what, name in file.entries]
    owners = owners_by_key(stored.declared_entries(conn, owner, keys))
    names = {name for what, name in (*file.entries, *owners) if what is What.JOB}
    names |= {parent for entry in file.entries.values() for parent in entry.values.get("after") or ()}
    jobs = load_jobs(stored.stored_jobs(conn, names), owners)
    return State(now, {one.key: one for one in (*jobs, *load_settings(conn, owners))}, owners)


def read_everything(conn: Connection[Any], now: datetime) -> State:
    """Return all that a file can be about."""
    owners = owners_by_key(stored.all_entries(conn))
    jobs = load_jobs(stored.stored_jobs(conn, None), owners)
    return State(now, {one.key: one for one in (*jobs, *load_settings(conn, owners))}, owners)


def owners_by_key(entries: Iterable[Row]) -> dict[Key, str]:
    """Return the owner of each declared object."""
    return {(What(row["what"]), row["name"]): row["owner"] for row in entries}


def load_jobs(rows: Iterable[Row], owners: Mapping[Key, str]) -> list[Stored]:
    """Return jobs from rows of `file_jobs`."""
    return [load_job(found, owners) for found in rows]


def load_job(found: Row, owners: Mapping[Key, str]) -> Stored:
    """Return a job from a row of `file_jobs`."""
    row = found["row"] | {"args": found["args"], "keep": found["keep"], "after": found["parents"]}
    row["excluded_dates"] = found["excluded"]
    values = load_values(What.JOB, row)
    facts = {name: row[name] for name in FACTS} | {name: read_instant(row[name]) for name in INSTANTS}
    key = (What.JOB, row["name"])
    return Stored(What.JOB, row["name"], values, owners.get(key), row["declared_by"], facts)


def read_instant(text: str | None) -> datetime | None:
    """Return an instant of a row's JSON; None also for infinity, a mark before which nothing was decided."""
    return None if text is None or text.endswith("infinity") else datetime.fromisoformat(text)


def load_settings(conn: Connection[Any], owners: Mapping[Key, str]) -> list[Stored]:
    """Return queues, limits, pauses, calendars, retention and the defaults of alerts."""
    found = []
    for row in stored.stored_settings(conn):
        what = What(row["what"])
        values = load_values(what, row["row"])
        found.append(Stored(what, row["name"], values, owners.get((what, row["name"])), row["declared_by"]))
    return found


def load_values(what: What, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row, as their types have them."""
    assert what in SECTION_OF
    return {name: column.type.load(row[name]) for name, column in COLUMNS[what].items()}
