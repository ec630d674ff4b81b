"""Plan a file of jobs: what an apply would change, which slots that moves, and which starts collide."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pgsched.core.jobs_file.collisions import Collisions, collide
from pgsched.core.jobs_file.coming import Calendars, ClockChange, Foresight, Slots, calendars_of, clock_changes
from pgsched.core.jobs_file.difference import Action, Change, Difference, compare
from pgsched.core.jobs_file.model.columns import JOB, What
from pgsched.core.jobs_file.model.entries import DEFAULT_OWNER, Entry, JobsFile, Key, State, Stored
from pgsched.core.jobs_file.model.loading import OWNER, load
from pgsched.core.jobs_file.texts.reading import read_document
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.files import stored
from pgsched.errors import InputError
from pgsched.services.jobs_file.state import load_job, read_state

Report = Callable[[str, int, int], None]  # what is done now, how much of it, of how much
CHECKED_AT_ONCE = 1000  # jobs whose values the database checks with one statement
# Something right in columns that the database need not check, and in those that were parsed with a schedule.
CHECKED_HERE = {"queue": None, "tags": None, "calendar": None, "description": None}
ANY_SCHEDULE = {"schedule": "@daily", "timezone": "UTC"}
REPORTED = 250  # slots of so many jobs are computed between two reports
NAMED = 5  # jobs that an error names
WRITTEN = (Action.ADD, Action.CHANGE)
MOST_USERS = 1000  # jobs of changed calendars whose slots are computed


def no_report(_step: str, _done: int, _of: int) -> None:
    """Report nothing."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a file is compared and applied.

    `owner`: the owner of the file; None: the one that the file names, else `default`.
    `prune`: remove what the file declared before and does not any more.
    `adopt`: take what exists and is not the file's own.
    """

    owner: str | None = None
    prune: bool = False
    adopt: bool = False

    def owner_of(self, file: JobsFile) -> str:
        """Return the owner of a file. Raises InputError for one that is no name, such as an empty text."""
        if self.owner is None:
            return file.owner or DEFAULT_OWNER
        try:
            return OWNER.read(self.owner)
        except ValueError as problem:
            raise InputError(f"owner: {problem}", "owner") from None


@dataclass(frozen=True, slots=True)
class JobsPlan:
    """What an apply would do.

    `slots`: of new and moved jobs, by key. `moved`: of jobs that do not change, but their calendar does, by calendar
    and name; of at most MOST_USERS jobs. `clocks`: clock changes that move a slot, by key.
    `collisions`: the starts of the coming week after the apply.
    """

    difference: Difference
    now: datetime
    slots: Mapping[Key, Slots]
    moved: Mapping[str, Mapping[str, Slots]]
    clocks: Mapping[Key, tuple[ClockChange, ...]]
    collisions: Collisions


def read_file(name: str, content: bytes, file_format: str | None = None) -> JobsFile:
    """Return the model of a file. Raises InputError with file, line and path.

    `file_format`: yaml or toml; None: what the end of the name says, else YAML.
    """
    return load(read_document(name, content, file_format))


def plan(conn: Connection[Any], file: JobsFile, options: Options, report: Report = no_report) -> JobsPlan:
    """Return what an apply would do; nothing is written. Raises InputError for values as `check_values` does."""
    report("reading the database", 0, 1)
    with stored.one_moment(conn) as now:
        difference, state = find_difference(conn, file, options, now)
        check_values(conn, file, difference)
        calendars = calendars_of(file, state)
        users = read_users(conn, calendars, state)
        others = stored.other_jobs(conn, [name for what, name in file.entries if what is What.JOB])
    foresight = Foresight(calendars, now)
    slots: dict[Key, Slots] = {}
    clocks: dict[Key, tuple[ClockChange, ...]] = {}
    changes = difference.of(Action.ADD, Action.CHANGE)
    for at, change in enumerate(changes):
        if at % REPORTED == 0:
            report("computing slots", at, len(changes))
        if (found := foresight.slots_of(change)) is not None:
            slots[change.key] = found
        if odd := clock_changes(change, now):
            clocks[change.key] = odd
    removed = {change.key for change in difference.of(Action.REMOVE)}
    moved = foresight.moved_by_calendars(one for one in users if one.key not in slots and one.key not in removed)
    report("counting collisions", 0, 1)
    jobs = [*planned_jobs(file, state, now), *(row for row in others if (What.JOB, row["name"]) not in removed)]
    for job in jobs:
        job["calendar_times"] = calendars.after.get(job["calendar"])
    return JobsPlan(difference, now, slots, moved, clocks, collide(jobs, now))


def read_users(conn: Connection[Any], calendars: Calendars, state: State) -> list[Stored]:
    """Return jobs that use calendars whose times change."""
    if not calendars.changed:
        return []
    names = stored.users_of_calendars(conn, sorted(calendars.changed), MOST_USERS)
    known = [state.stored[What.JOB, name] for name in names if (What.JOB, name) in state.stored]
    unknown = [name for name in names if (What.JOB, name) not in state.stored]
    return [*known, *map(load_job, stored.stored_jobs(conn, unknown))]


def planned_jobs(file: JobsFile, state: State, now: datetime) -> Iterator[dict[str, Any]]:
    """Yield the jobs of a file as they will be, for the count of collisions."""
    for entry in file.entries.values():
        if entry.what is not What.JOB:
            continue
        before = state.stored.get(entry.key)
        values = entry.values
        if before is not None and values["max_runs"] is not None and before.row["run_count"] >= values["max_runs"]:
            continue
        anchor = None
        if before is not None and before.values["schedule"] == values["schedule"]:
            anchor = before.row["anchor_at"]
        yield {
            "id": 0 if before is None else before.row["id"],
            "name": entry.name,
            "schedule": values["schedule"],
            "timezone": values["timezone"],
            "anchor_at": anchor or values["starts_at"] or now,
            "jitter": values["jitter"].delta,
            "starts_at": values["starts_at"],
            "ends_at": values["ends_at"],
            "excluded": [tuple(one) for one in values["excluded_dates"]] or None,
            "calendar": values["calendar"],
            "on_excluded": values["on_excluded"],
            "shifts": None if before is None else before.row["shifts"],
        }


def find_difference(conn: Connection[Any], file: JobsFile, options: Options, now: datetime) -> tuple[Difference, State]:
    """Return the difference, and the state that it was found in. Values are not checked: `check_values` does that."""
    owner = options.owner_of(file)
    role = stored.owner_of_name(conn, owner)
    state = read_state(conn, file, owner, now)
    difference = compare(file, state, owner, prune=options.prune, adopt=options.adopt)
    if role is not None and not role["allowed"]:
        remark = f'owner "{owner}" belongs to role {role["role"]}: this role may not apply the file'
        difference = replace(difference, remarks=(remark, *difference.remarks))
    return difference, state


def check_values(conn: Connection[Any], file: JobsFile, difference: Difference) -> None:
    """Raise InputError, with the place, where the database would refuse a job that is new or changed.

    Columns that the file's model has checked by the same rules are not asked about again. Nor is the calendar: it may
    be one that the file makes, and `compare` has looked for it. What a trigger of the user's own refuses, and what this
    role has no right to, only an apply finds.

    Raises InputError also where a calendar is to be removed that jobs will use.
    """
    check_removed_calendars(conn, difference)
    changed = [one for one in difference.of(Action.ADD, Action.CHANGE) if one.key[0] is What.JOB]
    for start in range(0, len(changed), CHECKED_AT_ONCE):
        part = changed[start : start + CHECKED_AT_ONCE]
        for found in stored.job_errors(conn, [row_to_check(change) for change in part]):
            column, _, reason = found["problem"].partition(": ")
            entry = file.entries[What.JOB, found["name"]]
            if column in JOB:
                raise file.error(entry, column, reason)
            raise file.document.error(entry.path, found["problem"])


def row_to_check(change: Change) -> dict[str, Any]:
    """Return the row of a job with something right in the columns that need no check."""
    row = job_row(change) | CHECKED_HERE
    # under these policies the database compares the jitter with the interval of `@every`
    needs_schedule = row["overlap"] in {"replace", "terminate"}
    return row if row["schedule"] is None or needs_schedule else row | ANY_SCHEDULE


def check_removed_calendars(conn: Connection[Any], difference: Difference) -> None:
    """Raise InputError where a calendar is to be removed that jobs will use. A producer sees its own jobs only."""
    gone = [change.key[1] for change in difference.of(Action.REMOVE) if change.key[0] is What.CALENDAR]
    if not gone:
        return
    # these are removed, or the file says what they use, which `compare` has checked
    decided = {change.key[1] for change in difference.of(*WRITTEN, Action.REMOVE) if change.key[0] is What.JOB}
    for name in gone:
        users = [one for one in stored.users_of_calendars(conn, [name], MOST_USERS) if one not in decided]
        if users:
            more = "" if len(users) <= NAMED else f" and {len(users) - NAMED} more"
            raise InputError(f"calendar {name}: jobs use it: {', '.join(users[:NAMED])}{more}", "calendar")


def job_row(change: Change, *, partly: bool = False) -> dict[str, Any]:
    """Return the columns of a job as the database takes them, and its name.

    `partly`: without those that the file does not decide about.
    """
    entry = change.entry
    assert entry is not None
    row: dict[str, Any] = {"name": entry.name}
    for column, value in entry.values.items():
        if column in {"after", "excluded_dates"}:
            continue
        if partly and not decides_to_write(entry, column):
            continue
        row[column] = None if value is None else JOB[column].type.send(value)
    return row


def decides_to_write(entry: Entry, column: str) -> bool:
    """Check whether a file decides about a column, also of those that only count while a job changes its pause."""
    return entry.decides(column) or (column == "resume_from" and column in entry.given)
