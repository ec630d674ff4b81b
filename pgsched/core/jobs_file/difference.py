"""The difference between a file and a database: what an apply would do, and what it must not do.

Invariant: a file changes only what it owns. What exists and is not its own is refused, unless the file says the same
anyway, or the caller adopts it. Nothing is removed but what the file declared before, and only if the caller prunes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pgsched.core.jobs_file.model.columns import COLUMNS, SINGLE, What
from pgsched.core.jobs_file.model.entries import (
    Entry,
    JobsFile,
    Key,
    Remembered,
    State,
    Stored,
    defaults_of,
    describe_key,
)
from pgsched.core.text import did_you_mean

DONE = "done"  # in file_entries, what a job is that ran once and has deleted itself
LISTED = 5  # names in a note
# Values that an apply keeps where the file does not name the column: operators have set them. Each with its note.
UNSAID = (
    ("paused", True, "paused, and the file does not say so (`paused: false` would resume it)"),
    ("mode", "shadow", "in mode shadow, and the file does not say so (`mode: run` would let it run)"),
)


class Action(StrEnum):
    """What an apply does with one object."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"
    ADOPT = "adopt"  # it is as the file says already, and becomes the file's own
    REFUSE = "refuse"  # it is not the file's own


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One column, and its value before and after."""

    column: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class Change:
    """What an apply does with one object.

    `columns`: what differs; of a new object, what the file gives.
    `reason`: why it is refused. `adopts`: it becomes the file's own by this.
    `entry`: as the file has it, None if it is removed. `stored`: as the database has it, None if it is new.
    """

    action: Action
    key: Key
    columns: tuple[ColumnChange, ...] = ()
    reason: str | None = None
    adopts: bool = False
    entry: Entry | None = None
    stored: Stored | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """All changes, in the order in which they are made.

    `left`: objects that the file declared before and does not any more; they stay, because nobody prunes.
    `unowned`: objects that are as the file says, without being the file's own.
    `gone`: entries of the file's owner that mean nothing any more, as (what, name).
    `declared`: objects that become the file's own, and those for which it now says something else of mode, paused or
    run_at.
    `remarks`: what a reader of the file may take for something else.
    """

    owner: str
    changes: tuple[Change, ...]
    left: tuple[Key, ...] = ()
    unowned: tuple[Key, ...] = ()
    gone: tuple[tuple[str, str], ...] = ()
    declared: tuple[Entry, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def refused(self) -> tuple[Change, ...]:
        """What keeps the file from being applied."""
        return tuple(change for change in self.changes if change.action is Action.REFUSE)

    def of(self, *actions: Action) -> list[Change]:
        """Return the changes with one of these actions."""
        return [change for change in self.changes if change.action in actions]


def compare(file: JobsFile, state: State, owner: str, *, prune: bool = False, adopt: bool = False) -> Difference:
    """Return the difference. Raises InputError, with the place, for names that do not exist, and for circles.

    `owner`: the owner of the file. `prune`: remove what the file declared before and does not any more.
    `adopt`: take what exists and is not the file's own.
    """
    changes: list[Change] = []
    unowned: list[Key] = []
    declared: list[Entry] = []
    for entry in file.entries.values():
        change = _change(entry, state, owner, adopt)
        if change is not None:
            changes.append(change)
            if change.adopts:
                declared.append(entry)
        elif state.owners.get(entry.key) != owner and not _is_done(entry, state):
            unowned.append(entry.key)
        if state.owners.get(entry.key) == owner and state.remembered.get(entry.key, Remembered()) != entry.remembered:
            declared.append(entry)
    kinds = list(What)
    others = [key for key, found in state.owners.items() if found == owner and key not in file.entries]
    others.sort(key=lambda key: (kinds.index(key[0]), key[1]))
    here = [key for key in others if _exists(key, state) and state.stored[key].declared_by is None]
    gone: list[tuple[str, str]] = []
    if prune:
        changes += [Change(Action.REMOVE, key, _reset(key, state), stored=state.stored[key]) for key in here]
        gone = [(str(what), name) for what, name in others if (what, name) not in here]
        gone += [(DONE, name) for name in state.done if (What.JOB, name) not in file.entries]
    check_references(file, state, {change.key for change in changes if change.action is Action.REMOVE})
    return Difference(
        owner,
        tuple(changes),
        () if prune else tuple(here),
        tuple(unowned),
        tuple(gone),
        tuple(declared),
        tuple(_remarks(file, state, others)),
    )


def _exists(key: Key, state: State) -> bool:
    return key in state.stored and (key[0] not in SINGLE or bool(_reset(key, state)))


def _reset(key: Key, state: State) -> tuple[ColumnChange, ...]:
    """Return what changes as a section that is one object goes back to its defaults."""
    what, stored = key[0], state.stored[key]
    if what not in SINGLE:
        return ()
    return tuple(
        ColumnChange(column, stored.values[column], default)
        for column, default in defaults_of(what).items()
        if stored.values[column] != default
    )


def _change(entry: Entry, state: State, owner: str, adopt: bool) -> Change | None:
    """Return what an apply does with an object; None: nothing."""
    key, stored = entry.key, state.stored.get(entry.key)
    owned_by = state.owners.get(key)
    if stored is None:
        if _is_done(entry, state):
            return None
        if owned_by not in (None, owner) and not adopt:
            return Change(Action.REFUSE, key, reason=_other_file(owned_by), entry=entry)
        return Change(Action.ADD, key, _given(entry), adopts=True, entry=entry)
    differing = tuple(
        ColumnChange(column, stored.values[column], value)
        for column, value in entry.values.items()
        if entry.decides(column) and stored.values[column] != value
    )
    if owned_by == owner and stored.declared_by is None:
        return Change(Action.CHANGE, key, differing, entry=entry, stored=stored) if differing else None
    if not differing and (not adopt or owned_by == owner):
        return None
    reason = _why_not(entry, stored, owned_by, adopt)
    if reason is not None:
        return Change(Action.REFUSE, key, differing, reason, entry=entry, stored=stored)
    action = Action.CHANGE if differing else Action.ADOPT
    return Change(action, key, differing, adopts=True, entry=entry, stored=stored)


def _why_not(entry: Entry, stored: Stored, owned_by: str | None, adopt: bool) -> str | None:
    """Return why an object that is not the file's own must not be changed; None: it may."""
    if stored.declared_by is not None:
        return f"the code of {stored.declared_by} declares it: take it out of the code first"
    untouched = entry.what in SINGLE and owned_by is None and stored.values == defaults_of(entry.what)
    if adopt or untouched:
        return None
    return "it exists, and no file declares it: --adopt takes it" if owned_by is None else _other_file(owned_by)


def _other_file(owner: str | None) -> str:
    return f'the file of owner "{owner}" declares it: --adopt takes it from there'


def _given(entry: Entry) -> tuple[ColumnChange, ...]:
    defaults = defaults_of(entry.what)
    return tuple(
        ColumnChange(column, None, value)
        for column, value in entry.values.items()
        if column in entry.given and value != defaults[column]
    )


def _is_done(entry: Entry, state: State) -> bool:
    """Check whether an object is gone because its time is over: it is not made again."""
    if entry.key in state.stored:
        return False
    if entry.what is What.PAUSE:
        until = entry.values["resume_at"]
        return until is not None and until <= state.now
    # it has run, and was deleted for it; it runs once for each run_at that the file names
    values = entry.values
    once = entry.what is What.JOB and values["delete_after_run"] and values["schedule"] is None
    return bool(once) and entry.name in state.done and values["run_at"] in (None, state.done[entry.name])


def _remarks(file: JobsFile, state: State, others: Sequence[Key]) -> Iterator[str]:
    """Yield what the file leaves as it is, although a reader may expect something else."""
    jobs = [entry for entry in file.entries.values() if entry.what is What.JOB]
    for column, value, meaning in UNSAID:
        keys = [one.key for one in jobs if column not in one.given and _has(state, one.key, column, value)]
        if keys:
            yield f"{meaning}: {list_keys(keys)}"
    if done := [entry.key for entry in jobs if _is_done(entry, state)]:
        meaning = "has run and deleted itself, and is not made again (another run_at, or another name, makes it)"
        yield f"{meaning}: {list_keys(done)}"
    if coded := [key for key in others if key in state.stored and state.stored[key].declared_by is not None]:
        yield f"not in the file any more, and declared by code, which keeps it: {list_keys(coded)}"


def _has(state: State, key: Key, column: str, value: Any) -> bool:
    return key in state.stored and state.stored[key].values[column] == value


def list_keys(keys: Sequence[Key]) -> str:
    """Return the names of some objects, and how many more there are."""
    names = ", ".join(describe_key(key) for key in keys[:LISTED])
    return names if len(keys) <= LISTED else f"{names} and {len(keys) - LISTED} more"


# ---- names of other objects


def check_references(file: JobsFile, state: State, removed: set[Key]) -> None:
    """Raise InputError where a job names a job or calendar that does not exist, or waits for itself by others."""
    known = ({*file.entries} | {*state.stored}) - removed
    jobs = [name for what, name in known if what is What.JOB]
    for entry in file.entries.values():
        if entry.what is not What.JOB:
            continue
        calendar = entry.values["calendar"]
        if calendar is not None and (What.CALENDAR, calendar) not in known:
            names = [name for what, name in known if what is What.CALENDAR]
            raise file.error(entry, "calendar", _unknown(What.CALENDAR, calendar, names, removed))
        for parent in entry.values["after"]:
            if (What.JOB, parent) not in known:
                raise file.error(entry, "after", _unknown(What.JOB, parent, jobs, removed))
    _check_circles(file, state)


def _unknown(what: What, name: str, known: list[str], removed: set[Key]) -> str:
    if (what, name) in removed:
        return f'{what} "{name}" is not in the file any more, and is removed with --prune'
    return f'there is no {what} named "{name}"{did_you_mean(name, known)}'


def _check_circles(file: JobsFile, state: State) -> None:
    parents: dict[str, Any] = {
        name: stored.values["after"] for (what, name), stored in state.stored.items() if what is What.JOB
    } | {name: entry.values["after"] for (what, name), entry in file.entries.items() if what is What.JOB}
    parents = {**state.parents, **parents}
    done: set[str] = set()
    for name in parents:
        circle = _find_circle(name, parents, done)
        mine = [key for key in ((What.JOB, one) for one in circle) if key in file.entries]
        if mine:
            entry = file.entries[mine[0]]
            raise file.error(entry, "after", f"the jobs wait for each other: {' -> '.join([*circle, circle[0]])}")


def _find_circle(start: str, parents: Mapping[str, Any], done: set[str]) -> list[str]:
    """Return the names of a circle that can be reached from a job; none if there is no circle."""
    way: list[str] = []
    on_way: dict[str, int] = {}
    stack: list[tuple[str, Iterator[str]]] = []

    def enter(name: str) -> None:
        on_way[name] = len(way)
        way.append(name)
        stack.append((name, iter(parents.get(name, ()))))

    if start not in done:
        enter(start)
    while stack:
        name, left = stack[-1]
        following = next(left, None)
        if following is None:
            stack.pop()
            way.pop()
            del on_way[name]
            done.add(name)
        elif following in on_way:
            return way[on_way[following] :]
        elif following not in done:
            enter(following)
    return []


def shown_columns(change: Change) -> dict[str, tuple[Any, Any]]:
    """Return what changes, by column, as a file shows the values: (old, new)."""
    columns = COLUMNS[change.key[0]]

    def show(column: str, value: Any) -> Any:
        # a value that could not be read is a text
        return value if value is None or isinstance(value, str) else columns[column].type.show(value)

    return {one.column: (show(one.column, one.old), show(one.column, one.new)) for one in change.columns}
