"""Read the state of a database as the model of files has it: all in one moment, with a few statements."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from pgsched.core.jobs_file.difference import DONE
from pgsched.core.jobs_file.model.columns import COLUMNS, SECTION_OF, What
from pgsched.core.jobs_file.model.entries import JobsFile, Remembered, State, Stored
from pgsched.core.model import Row
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.files import stored

# Columns of a job that a preview needs and that no file has.
FACTS = ("id", "run_count", "error", "shifts")
INSTANTS = ("anchor_at", "decided_until", "next_run_at", "run_at")


def read_state(conn: Connection[Any], file: JobsFile, owner: str, now: datetime) -> State:
    """Return what the database has under the names of a file, and what its owner declares."""
    keys = [(str(what), name) for what, name in file.entries]
    entries = stored.declared_entries(conn, owner, keys)
    names = {name for what, name in file.entries if what is What.JOB}
    names |= {row["name"] for row in entries if row["what"] == What.JOB}
    parents = {parent for entry in file.entries.values() for parent in entry.values.get("after") or ()}
    jobs = stored.stored_jobs(conn, names | parents)
    # a circle may go by way of jobs that the file does not name
    before = stored.parents_of_jobs(conn, parents - names) if parents - names else {}
    return make_state(now, entries, jobs, stored.stored_settings(conn), owner, before)


def read_everything(conn: Connection[Any], now: datetime) -> State:
    """Return all that a file can be about."""
    return make_state(now, stored.all_entries(conn), stored.stored_jobs(conn, None), stored.stored_settings(conn))


def make_state(
    now: datetime,
    entries: Iterable[Row],
    jobs: Iterable[Row],
    settings: Iterable[Row],
    owner: str | None = None,
    parents: Mapping[str, Sequence[str]] | None = None,
) -> State:
    """Return the state of a database from its rows. An entry is about the row with its id, and no other.

    `entries`: what files declare. `owner`: whose jobs that have deleted themselves count.
    """
    objects = [*map(load_job, jobs), *map(load_setting, settings)]
    ids = {one.key: one.row.get("id") for one in objects}
    owners, remembered, done = {}, {}, {}
    for row in entries:
        if row["what"] == DONE:
            if row["owner"] == owner:
                done[row["name"]] = row["run_at"]
            continue
        key = (What(row["what"]), row["name"])
        if key not in ids or ids[key] == row["object_id"]:
            owners[key] = row["owner"]
            remembered[key] = Remembered(tuple(sorted(row["decides"])), row["run_at"])
    nothing = Remembered()
    found = {
        one.key: replace(one, owner=owners.get(one.key), decides=remembered.get(one.key, nothing).decides)
        for one in objects
    }
    return State(now, found, owners, remembered, done, parents or {})


def load_job(found: Row) -> Stored:
    """Return a job from a row of `file_jobs`."""
    row = found["row"] | {"args": found["args"], "keep": found["keep"], "after": found["parents"]}
    row["excluded_dates"] = found["excluded"]
    values = load_values(What.JOB, row)
    facts = {name: row[name] for name in FACTS} | {name: read_instant(row[name]) for name in INSTANTS}
    return Stored(What.JOB, row["name"], values, declared_by=row["declared_by"], row=facts)


def read_instant(text: str | None) -> datetime | None:
    """Return an instant of a row's JSON; None also for infinity, a mark before which nothing was decided."""
    return None if text is None or text.endswith("infinity") else datetime.fromisoformat(text)


def load_setting(found: Row) -> Stored:
    """Return a queue, limit, pause, calendar, retention or the defaults of alerts."""
    what = What(found["what"])
    row = {"id": found["row"]["id"]} if what is What.CALENDAR else {}
    return Stored(what, found["name"], load_values(what, found["row"]), declared_by=found["declared_by"], row=row)


def load_values(what: What, row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a row, as their types have them."""
    assert what in SECTION_OF
    return {name: column.type.load(row[name]) for name, column in COLUMNS[what].items()}
