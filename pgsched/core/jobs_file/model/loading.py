"""Turn the values of a file into its model; every key and value is checked, and an error names its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pgsched.core.input_values import parse_rate
from pgsched.core.jobs_file.model.columns import (
    COLUMNS,
    JOB,
    PAUSABLE,
    SECTION_OF,
    SECTIONS,
    SINGLE,
    Column,
    What,
)
from pgsched.core.jobs_file.model.entries import Entry, JobsFile, Key, defaults_of
from pgsched.core.jobs_file.model.spans import span_of
from pgsched.core.jobs_file.model.types import Text, Word, WrongValue
from pgsched.core.jobs_file.texts.document import MOST_TEXT, Document, Path
from pgsched.core.schedule.cron import parse
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError, ScheduleError

MOST_ENTRIES = 50_000
OWNER = Text(200)
LONGEST_NAMES = {What.JOB: 200, What.QUEUE: 100, What.LIMIT: 500, What.CALENDAR: 200, What.PAUSE: 200}
IGNORED = "x-"  # keys at the top that begin so are the reader's own, such as anchors for aliases
NOT_DEFAULTS = ("run_at", "after", "excluded_dates")
# Names that people may look for in a file.
OTHER_NAMES = {"after_jobs": "after", "excluded": "excluded_dates", "cron": "schedule", "command": "task",
               "enabled": "paused", "burst": "rate_burst"}  # fmt: skip


@dataclass(slots=True)
class _Loader:
    document: Document
    entries: dict[Key, Entry] = field(default_factory=dict)

    def error(self, path: Path, problem: str) -> InputError:
        return self.document.error(path, problem)

    def mapping(self, path: Path, value: Any) -> dict[str, Any]:
        """Return a value that is a mapping; an empty one for null."""
        if value is not None and not isinstance(value, dict):
            raise self.error(path, "expected a mapping of names and values")
        return value or {}

    def add(self, entry: Entry) -> None:
        """Keep an entry."""
        if len(self.entries) >= MOST_ENTRIES:
            raise self.error(entry.path, f"the file declares more than {MOST_ENTRIES:,} objects")
        if entry.key in self.entries:
            raise self.error(entry.path, "is declared twice")
        self.entries[entry.key] = entry

    def columns(self, path: Path, given: Mapping[str, Any], known: Mapping[str, Column]) -> dict[str, Any]:
        """Return the values of the columns that a mapping names; null is the column's default."""
        found = {}
        for name, value in given.items():
            column = known.get(name)
            if column is None:
                meant = OTHER_NAMES.get(name)
                hint = f"; did you mean {meant}?" if meant in known else did_you_mean(name, known)
                hint = hint or f"; known are {', '.join(known)}"
                raise self.error((*path, name), f"there is no such column{hint}")
            try:
                found[name] = column.default if value is None else column.type.read(value)
            except ValueError as problem:
                raise self.error((*path, name), str(problem)) from None
        return found

    # ---- the sections

    def jobs(self, section: dict[str, Any], defaults: dict[str, Any]) -> None:
        """Read the jobs, each with the defaults of the file."""
        elsewhere: dict[str, Path] = {column: ("defaults", column) for column in defaults}
        everyones = defaults_of(What.JOB) | defaults
        if defaults and len(str(self.document.data["defaults"])) * len(section) > MOST_TEXT:
            raise self.error(("defaults",), f"are more than {MOST_TEXT // 2**20} MiB of text, for all jobs together")
        for name, value in section.items():
            path = ("jobs", name)
            given = self.columns(path, self.mapping(path, value), JOB)
            entry = Entry(
                What.JOB,
                self.name(What.JOB, path, name),
                everyones | given,
                frozenset((*defaults, *given)),
                path,
                {column: place for column, place in elsewhere.items() if column not in given},
            )
            self.check_job(entry)
            self.add(entry)

    def check_job(self, entry: Entry) -> None:
        """Refuse a job that can never be planned."""
        values = entry.values
        if not values["task"]:
            raise self.error(entry.path, "task: must be given")
        if values["schedule"] is not None:
            try:
                parse(values["schedule"], values["timezone"])
            except ScheduleError as error:
                column = "timezone" if error.field == "timezone" else "schedule"
                problem = error.reason if error.field == column else str(error)
                raise self.error(entry.path_of(column), problem) from None
        if entry.name in values["after"]:
            raise self.error(entry.path_of("after"), "a job cannot wait for itself")

    def named(self, what: What, section: dict[str, Any]) -> None:
        """Read queues, limits or calendars."""
        for name, value in section.items():
            path = (SECTION_OF[what], name)
            columns = self.mapping(path, value)
            if "rate" in COLUMNS[what]:
                columns = self.split_rate(path, columns)
            given = self.columns(path, columns, COLUMNS[what])
            entry = Entry(what, self.name(what, path, name), defaults_of(what) | given, frozenset(given), path)
            self.check_rate(entry)
            self.add(entry)

    def split_rate(self, path: Path, columns: dict[str, Any]) -> dict[str, Any]:
        """Return the columns with a rate such as `100/m` as two of them."""
        if not isinstance(columns.get("rate"), str):
            return columns
        try:
            count, period = parse_rate(columns["rate"])
        except InputError as error:
            raise self.error((*path, "rate"), str(error).removeprefix("rate: ")) from None
        if columns.get("rate_period") is not None:
            raise self.error((*path, "rate_period"), "is given already, by the rate")
        return columns | {"rate": count, "rate_period": str(span_of(period))}

    def check_rate(self, entry: Entry) -> None:
        """Refuse half a rate."""
        values = entry.values
        if "rate" in values and (values["rate"] is None) != (values["rate_period"] is None):
            missing = "rate_period" if values["rate_period"] is None else "rate"
            raise self.error(entry.path, f"{missing}: rate and rate_period go together; or write it as 100/m")
        if values.get("rate_burst") is not None and values["rate"] is None:
            raise self.error(entry.path_of("rate_burst"), "needs a rate")

    def pauses(self, section: Any) -> None:
        """Read the pauses, a list."""
        if section is not None and not isinstance(section, list):
            raise self.error(("pauses",), "expected a list such as [{what: queue, name: mail}]")
        for at, value in enumerate(section or ()):
            path = ("pauses", at)
            given = dict(self.mapping(path, value))
            what, name = given.pop("what", None), given.pop("name", None)
            try:
                word = Word(PAUSABLE).read(what)
            except ValueError as problem:
                raise self.error((*path, "what"), str(problem)) from None
            if (word == "all") != (name is None):
                raise self.error(path, "everything has no name" if word == "all" else f"name: which {word}?")
            whole = word if word == "all" else f"{word} {self.name(What.PAUSE, (*path, 'name'), name)}"
            found = self.columns(path, given, COLUMNS[What.PAUSE])
            self.add(Entry(What.PAUSE, whole, defaults_of(What.PAUSE) | found, frozenset(found), path))

    def single(self, what: What, section: dict[str, Any]) -> None:
        """Read a section that is one object."""
        path = (SECTION_OF[what],)
        found = self.columns(path, section, COLUMNS[what])
        self.add(Entry(what, SINGLE[what], defaults_of(what) | found, frozenset(found), path))

    def name(self, what: What, path: Path, name: Any) -> str:
        """Return the name of an object, checked."""
        try:
            return read_name(what, name)
        except ValueError as problem:
            raise self.error(path, f"name: {problem}") from None


def read_name(what: What, name: Any) -> str:
    """Return the name of an object. Raises WrongValue for one that a file cannot declare."""
    text = Text(LONGEST_NAMES[what]).read(name)
    if what is What.LIMIT and (text == "job" or text.startswith("job:")):
        raise WrongValue("job is kept for the limits that jobs have (concurrency_limit)")
    return text


def load(document: Document) -> JobsFile:
    """Return the model of a file. Raises InputError with the place of what is wrong."""
    loader = _Loader(document)
    if document.data is None:
        raise loader.error((), "is empty; a file without jobs says `jobs: {}`")
    top = loader.mapping((), document.data)
    sections = {name: value for name, value in top.items() if not name.startswith(IGNORED)}
    known = ("owner", "defaults", *SECTIONS)
    for name in sections:
        if name not in known:
            hint = did_you_mean(name, known) or f"; known are {', '.join(known)}"
            raise loader.error((name,), f"there is no such section{hint}")
    owner = sections.get("owner")
    if owner is not None:
        try:
            owner = OWNER.read(owner)
        except ValueError as problem:
            raise loader.error(("owner",), str(problem)) from None
    _read_sections(loader, sections)
    return JobsFile(document, owner, loader.entries)


def _read_sections(loader: _Loader, sections: dict[str, Any]) -> None:
    shared = loader.mapping(("defaults",), sections.get("defaults"))
    for column in NOT_DEFAULTS:
        if column in shared:
            raise loader.error(("defaults", column), "is for each job by itself")
    defaults = loader.columns(("defaults",), shared, JOB)
    for section, what in SECTIONS.items():
        if section not in sections:
            continue
        if what is What.PAUSE:
            loader.pauses(sections[section])
            continue
        mapping = loader.mapping((section,), sections[section])
        if what is What.JOB:
            loader.jobs(mapping, defaults)
        elif what in SINGLE:
            loader.single(what, mapping)
        else:
            loader.named(what, mapping)
