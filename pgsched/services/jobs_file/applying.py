"""Apply a file of jobs: make the database as the file says, in one transaction.

Invariant: all changes are made or none. Applies of files with the same owner take turns, each compares after it has its
turn, and a second one finds nothing to change. The number of statements does not depend on the number of jobs, but for
batches of a thousand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pgsched.core.jobs_file.difference import Action, Change, Difference
from pgsched.core.jobs_file.model.columns import COLUMNS, SINGLE, What
from pgsched.core.jobs_file.model.entries import Entry, JobsFile, Key, defaults_of, describe_key
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.files import job_rows, setting_rows, stored
from pgsched.db.queries.reports.live import database_now
from pgsched.errors import InputError, NotOwned, NotPermitted, PgschedError
from pgsched.services.jobs_file.planning import (
    WRITTEN,
    Options,
    Report,
    check_values,
    find_difference,
    job_row,
    no_report,
)

BATCH = 1000  # jobs of one statement
T = TypeVar("T")


def apply(
    conn: Connection[Any],
    file: JobsFile,
    options: Options,
    *,
    confirmed: Difference | None = None,
    report: Report = no_report,
) -> Difference:
    """Make the database as the file says; return what was changed.

    `confirmed`: the difference that a person has seen; another one is refused.

    Raises NotOwned, and changes nothing, where the file would change what is not its own. Raises LockTimeout where
    another apply or edit keeps rows locked, and InputError for values that the database refuses.
    """
    owner = options.owner_of(file)
    report("waiting for the turn", 0, 1)
    with stored.all_or_nothing(conn):
        check_owner(stored.take_owner(conn, owner), owner)
        difference, _ = find_difference(conn, file, options, database_now(conn))
        refuse_foreign(difference)
        if confirmed is not None and summary(confirmed) != summary(difference):
            raise PgschedError("the database has changed since the plan was shown, and nothing was applied: try again")
        if difference.changes or difference.gone or difference.declared:
            write_or_explain(conn, file, difference, options.adopt, report)
            stored.mark_applied(conn, owner)
    return difference


def write_or_explain(
    conn: Connection[Any], file: JobsFile, difference: Difference, adopt: bool, report: Report
) -> None:
    """Write all changes. Raises InputError, with the place in the file where the database can tell it.

    Values are checked by the database as they are written. Only if it refuses one, all are looked at for their places.
    """
    try:
        with conn.transaction():
            write(conn, file, difference, adopt, report)
    except InputError:
        check_values(conn, file, difference)
        raise


def check_owner(found: Mapping[str, Any] | None, owner: str) -> None:
    """Raise NotPermitted where the name of an owner belongs to a role that the caller may not act for."""
    if found is not None and not found["allowed"]:
        raise NotPermitted(
            f'owner: "{owner}" belongs to role {found["role"]}, which this role may not act for: use another name'
            " (--owner), or let an operator set file_owners.role"
        )


def find_drift(conn: Connection[Any], file: JobsFile, options: Options) -> Difference:
    """Return the difference, also with what would be refused; nothing is written. Raises InputError as `plan` does."""
    with stored.one_moment(conn) as now:
        difference, _ = find_difference(conn, file, options, now)
        check_values(conn, file, difference)
    return difference


def refuse_foreign(difference: Difference) -> None:
    """Raise NotOwned where the file would change what is not its own."""
    refused = difference.refused
    if refused:
        first = refused[0]
        more = f" ({len(refused) - 1} more: `pgsched plan` shows them)" if len(refused) > 1 else ""
        raise NotOwned(f"{describe_key(first.key)}: {first.reason}{more}; nothing was changed")


def summary(difference: Difference) -> list[Any]:
    """Return what a person confirms: each action, with the values before and after."""
    return [(one.action, one.key, one.columns) for one in difference.changes]


def write(conn: Connection[Any], file: JobsFile, difference: Difference, adopt: bool, report: Report) -> None:
    """Write all changes: what others name comes first, and goes last."""
    changes = difference.changes
    jobs = [one for one in changes if one.key[0] is What.JOB]
    done, total = 0, len(jobs)
    for what in (What.CALENDAR, What.QUEUE, What.LIMIT, What.PAUSE, *SINGLE):
        write_settings(conn, file, what, of_kind(changes, what))
    for change in changes:
        if change.key[0] in SINGLE and change.action is Action.REMOVE:
            set_single(conn, change)
    for batch in batches([one for one in jobs if one.action is Action.ADD]):
        report("writing jobs", done, total)
        job_rows.add_jobs(conn, [job_row(change) for change in batch])
        done += len(batch)
    for batch in batches([one for one in jobs if one.action is Action.CHANGE]):
        report("writing jobs", done, total)
        change_jobs(conn, batch)
        done += len(batch)
    write_relations(conn, [one for one in jobs if one.action in WRITTEN])
    remove(conn, [one.key for one in changes if one.action is Action.REMOVE], report)
    setting_rows.add_entries(conn, difference.owner, [entry_row(entry) for entry in difference.declared], adopt)
    # the entries of all else that is removed here are gone with it
    removed = [one.key for one in changes if one.action is Action.REMOVE and one.key[0] in SINGLE]
    gone = [*difference.gone, *((str(what), name) for what, name in removed)]
    setting_rows.drop_entries(conn, difference.owner, gone)
    report("writing jobs", total, total)


def entry_row(entry: Entry) -> tuple[str, str, str, str | None]:
    """Return what the database keeps about the declaration of an object."""
    kept = entry.remembered
    return str(entry.what), entry.name, " ".join(kept.decides), None if kept.run_at is None else str(kept.run_at)


def write_settings(conn: Connection[Any], file: JobsFile, what: What, changes: Sequence[Change]) -> None:
    """Write settings of one kind. Raises InputError, with the place of the one that the database refuses."""

    def write_some(some: Sequence[Change]) -> None:
        if what in SINGLE:
            for change in some:
                set_single(conn, change)
        elif what is What.CALENDAR:
            setting_rows.set_calendars(conn, [setting_row(one) for one in some])
        else:
            setting_rows.set_rows(conn, what, [setting_row(one) for one in some])

    if not changes:
        return
    try:
        with conn.transaction():
            write_some(changes)
    except InputError:
        for change in changes:
            try:
                with conn.transaction(force_rollback=True):
                    write_some([change])
            except InputError as error:
                entry = file.entries[change.key]
                raise file.document.error(entry.path, str(error)) from error
        raise


def of_kind(changes: Iterable[Change], what: What) -> list[Change]:
    """Return the objects of one kind that are written."""
    return [one for one in changes if one.key[0] is what and one.action in WRITTEN]


def batches(changes: Sequence[T]) -> Iterator[Sequence[T]]:
    """Yield the changes in batches."""
    for start in range(0, len(changes), BATCH):
        yield changes[start : start + BATCH]


def change_jobs(conn: Connection[Any], batch: Sequence[Change]) -> None:
    """Update jobs whose columns differ. Raises PgschedError where one is gone meanwhile."""
    rows = [job_row(change, partly=True) for change in batch if differs_in_row(change)]
    found = {row["name"] for row in job_rows.change_jobs(conn, rows)}
    missing = sorted({row["name"] for row in rows} - found)
    if missing:
        raise PgschedError(
            f"job {missing[0]} has gone, or code has declared it meanwhile, or it is not this role's to change:"
            " nothing was changed"
        )


def differs_in_row(change: Change) -> bool:
    """Check whether a column of the job's own row differs."""
    return bool({one.column for one in change.columns} - {"after", "excluded_dates"})


def write_relations(conn: Connection[Any], jobs: Sequence[Change]) -> None:
    """Set the jobs that jobs wait for and their excluded dates, where these differ."""
    differing = [(change, {one.column for one in change.columns}) for change in jobs]
    entries = [(change.entry, columns) for change, columns in differing if change.entry is not None]
    parents = [(entry.name, entry.values["after"]) for entry, columns in entries if "after" in columns]
    # first none: two jobs may change places, and the database looks at the old lists of those that are not written yet
    waiting = [one.key[1] for one, columns in differing if "after" in columns and waits(one)]
    for names in batches(waiting if len(parents) > 1 else []):
        job_rows.clear_parents(conn, names)
    for some in batches(parents):
        job_rows.set_parents(conn, some)
    dates_type = COLUMNS[What.JOB]["excluded_dates"].type
    dates = [
        (entry.name, dates_type.send(entry.values["excluded_dates"]))
        for entry, columns in entries
        if "excluded_dates" in columns
    ]
    for some in batches(dates):
        job_rows.set_dates(conn, some)


def waits(change: Change) -> bool:
    """Check whether a job waits for others before it changes."""
    return change.stored is not None and bool(change.stored.values["after"])


def setting_row(change: Change) -> dict[str, Any]:
    """Return the columns of a queue, limit, pause or calendar as the database takes them."""
    entry = change.entry
    assert entry is not None
    columns = COLUMNS[entry.what]
    row = {name: None if value is None else columns[name].type.send(value) for name, value in entry.values.items()}
    if entry.what is What.PAUSE:
        what, _, name = entry.name.partition(" ")
        return row | {"what": what, "name": name}
    return row | {"name": entry.name}


def set_single(conn: Connection[Any], change: Change) -> None:
    """Set a section that is one row: as the file says, or to the defaults where it says so no more."""
    what, entry = change.key[0], change.entry
    values = defaults_of(what) if entry is None else entry.values
    columns = COLUMNS[what]
    row = {name: None if value is None else columns[name].type.send(value) for name, value in values.items()}
    if what is What.RETENTION:
        setting_rows.set_retention(conn, row, [one.column for one in change.columns])
    else:
        setting_rows.set_alerts(conn, row)


def remove(conn: Connection[Any], keys: Sequence[Key], report: Report) -> None:
    """Remove objects: jobs before the calendars that they name."""
    names = {kind: [name for what, name in keys if what is kind] for kind in What}
    for at, batch in enumerate(batches(names[What.JOB])):
        report("removing jobs", at * BATCH, len(names[What.JOB]))
        job_rows.delete_jobs(conn, batch)
    for what in (What.QUEUE, What.LIMIT, What.PAUSE, What.CALENDAR):
        assert what not in SINGLE
        setting_rows.delete_rows(conn, what, names[what])
