"""What a file declares, and what a database has under the same names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pgsched.core.jobs_file.model.columns import (
    COLUMNS,
    LEFT_TO_OPERATORS,
    OF_PAUSE,
    OPERATED,
    SECTION_OF,
    SINGLE,
    What,
)
from pgsched.core.jobs_file.texts.document import Document, Path
from pgsched.errors import InputError

Key = tuple[What, str]
DEFAULT_OWNER = "default"


@dataclass(frozen=True, slots=True)
class Remembered:
    """What the database keeps about the declaration of an object.

    `decides`: which of OPERATED the file names. `run_at`: what it names for a job that runs once.
    """

    decides: tuple[str, ...] = ()
    run_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One object as a file declares it.

    `values`: every column, given or default. `given`: the columns that the file names.
    `paths`: where the file has the object, and the columns that do not stand in it (they stand in `defaults`).
    """

    what: What
    name: str
    values: Mapping[str, Any]
    given: frozenset[str]
    path: Path
    elsewhere: Mapping[str, Path] = field(default_factory=dict)

    @property
    def key(self) -> Key:
        """What it is, and its name."""
        return self.what, self.name

    def path_of(self, column: str) -> Path:
        """Return where the file has a column; the object itself for one that it does not name."""
        if column in self.elsewhere:
            return self.elsewhere[column]
        return (*self.path, column) if column in self.given else self.path

    def decides(self, column: str) -> bool:
        """Check whether the file decides about a column; the others stay as they are in the database."""
        values = self.values
        if self.what is not What.JOB:
            return True
        if column == "run_at":
            # a job that runs once and names no time runs at the instant of the first apply, which must not move
            return values["schedule"] is not None or values["run_at"] is not None
        if column in LEFT_TO_OPERATORS and column not in self.given:
            return False
        return column not in OF_PAUSE or values["paused"] is True

    @property
    def remembered(self) -> Remembered:
        """What the database keeps about the declaration."""
        if self.what is not What.JOB:
            return Remembered()
        run_at = self.values["run_at"] if self.values["schedule"] is None else None
        return Remembered(tuple(column for column in OPERATED if column in self.given), run_at)


@dataclass(frozen=True, slots=True)
class JobsFile:
    """A file: what it declares, by kind and name, in its order.

    `owner`: the owner that the file itself names.
    """

    document: Document
    owner: str | None
    entries: Mapping[Key, Entry]

    def line(self, entry: Entry) -> int | None:
        """Return the line at which an object stands."""
        return self.document.line(entry.path)

    def error(self, entry: Entry, column: str, problem: str) -> InputError:
        """Return the error about a column of an object."""
        path = entry.path_of(column)
        return self.document.error(path, problem if path[-1:] == (column,) else f"{column}: {problem}")


@dataclass(frozen=True, slots=True)
class Stored:
    """One object as the database has it.

    `values`: every column. `owner`: the owner of the file that declares it, None: no file does.
    `declared_by`: the app whose code declares it. `row`: further columns of a job, such as its id and mark.
    `decides`: which of OPERATED its file names.
    """

    what: What
    name: str
    values: Mapping[str, Any]
    owner: str | None = None
    declared_by: str | None = None
    row: Mapping[str, Any] = field(default_factory=dict)
    decides: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """What it is, and its name."""
        return self.what, self.name


@dataclass(frozen=True, slots=True)
class State:
    """What a database has that a file may be about.

    `now`: the database's clock. `stored`: the objects, by kind and name.
    `owners`: the owner of each object that some file declares, also of objects that are gone.
    `remembered`: what is kept about each of these declarations.
    `done`: jobs of this owner that ran once and have deleted themselves, with the run_at that the file named.
    `parents`: the jobs that jobs wait for, by name, of those that are not in `stored`.
    """

    now: datetime
    stored: Mapping[Key, Stored]
    owners: Mapping[Key, str]
    remembered: Mapping[Key, Remembered] = field(default_factory=dict)
    done: Mapping[str, datetime | None] = field(default_factory=dict)
    parents: Mapping[str, Sequence[str]] = field(default_factory=dict)


def defaults_of(what: What) -> dict[str, Any]:
    """Return the default of each column."""
    return {name: column.default for name, column in COLUMNS[what].items()}


def describe_key(key: Key) -> str:
    """Return what an object is called: `job nightly`, `pause of queue mail`, `retention`."""
    what, name = key
    if what in SINGLE:
        return SECTION_OF[what]
    return f"{what} of {'everything' if name == 'all' else name}" if what is What.PAUSE else f"{what} {name}"
