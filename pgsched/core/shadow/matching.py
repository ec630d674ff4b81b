"""Find the jobs that a logged command or name means.

A job is meant by its name, by its command as cron would log it, or by a line of a mapping. Two jobs with the same
command are one to the log; they are compared as one.

Invariant: each text means the same jobs wherever it stands in the log.
"""

from __future__ import annotations

import csv
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pgsched.core.text import did_you_mean, similar_names
from pgsched.errors import InputError

Row = Mapping[str, Any]
LEAST_CUT = 40  # characters of a command that is cut off, by which it is recognized
MOST_HINTS, HINT_CHARACTERS, MOST_KNOWN = 20, 200, 1000
MOST_CACHED = 100_000


def simplify(text: str) -> str:
    """Return a command with single spaces."""
    return " ".join(text.split())


def as_cron_prints(text: str) -> str:
    """Return a command as Vixie cron logs it (misc.c): `^I` for a tab, three octal digits for a byte above ASCII."""
    return "".join(map(print_byte, text.encode("utf-8", "replace")))


def print_byte(byte: int) -> str:
    """Return a byte as Vixie cron logs it."""
    if byte < 32:
        return f"^{chr(byte + 64)}"
    return "^?" if byte == 127 else chr(byte) if byte < 127 else f"\\{byte:03o}"


def commands_of(job: Row) -> set[str]:
    """Return the texts under which a log may have a job's command; none for jobs without one."""
    args = job["args"]
    if job["kind"] == "shell":
        texts = [job["task"]]
    elif job["kind"] == "command":
        argv = args if isinstance(args, list) else args.get("argv", []) if isinstance(args, dict) else []
        words = [job["task"], *map(str, argv)]
        texts = [" ".join(words), shlex.join(words)]
        if len(words) == 3 and words[1] == "-c":  # a line of a crontab with SHELL=/bin/bash: cron logs the line alone
            texts.append(words[2])
    else:
        texts = [job["task"]] if job["kind"] == "http" else []
    return {form for text in texts for form in (simplify(text), simplify(as_cron_prints(text)))}


def read_mapping(lines: Iterable[str], known: Iterable[str]) -> dict[str, str]:
    """Return the jobs of logged texts, from rows of a CSV: the text, or its beginning and `*`, and the job's name.

    Raises InputError for a row without two columns, and for a job that is not compared.
    """
    names, found = set(known), dict[str, str]()
    for number, row in enumerate(csv.reader(lines), 1):
        if not row or row[0].startswith("#"):
            continue
        if len(row) != 2:
            raise InputError(
                f"map: line {number}: expected a text and the name of a job, got {len(row)} columns", "map"
            )
        text, name = simplify(row[0]), row[1].strip()
        if name not in names:
            hint = did_you_mean(name, names)
            raise InputError(f'map: line {number}: no job named "{name}" is compared{hint}', "map")
        found[text] = name
    return found


class Matcher:
    """Finds the group of jobs that a text means; a group is the position of its names in `groups`."""

    def __init__(self, jobs: Sequence[Row], mapping: Mapping[str, str] | None = None) -> None:
        owners: dict[str, set[str]] = {}
        for job in jobs:
            for text in commands_of(job):
                owners.setdefault(text, set()).add(job["name"])
        self.groups = joined([job["name"] for job in jobs], owners.values())
        place = {name: n for n, names in enumerate(self.groups) for name in names}
        self._names = {simplify(name): n for name, n in place.items()}
        self._commands = {text: place[min(names)] for text, names in owners.items()}
        given = {text: place[name] for text, name in (mapping or {}).items()}
        self._texts = self._names | self._commands | given
        self._beginnings = [(text[:-1].rstrip(), group) for text, group in given.items() if text.endswith("*")]
        self._cache: dict[str, int | None] = {}

    def find(self, what: str, *, cut: bool = False) -> int | None:
        """Return the group that a text means; None: none. `cut`: the text is only the beginning of a command."""
        if what in self._cache:
            return self._cache[what]
        found = self._search(simplify(what), cut)
        if len(self._cache) < MOST_CACHED:
            self._cache[what] = found
        return found

    def _search(self, text: str, cut: bool) -> int | None:
        if text in self._texts:
            return self._texts[text]
        for beginning, group in self._beginnings:
            if text.startswith(beginning):
                return group
        if cut and len(text) >= LEAST_CUT:
            found = {group for command, group in self._commands.items() if command.startswith(text)}
            return found.pop() if len(found) == 1 else None
        space, slash, name = text.partition("/")  # a CronJob with its namespace
        return self._names.get(name) if slash and space and " " not in text else None

    def hints(self, texts: Sequence[str], missing: Iterable[int]) -> dict[str, str]:
        """Return for texts that mean no job the name of one that they may mean, of the groups that have no start."""
        wanted = set(missing)
        known = {text[:HINT_CHARACTERS]: group for text, group in self._texts.items() if group in wanted}
        few = dict(list(known.items())[:MOST_KNOWN])
        found = {text: similar_names(simplify(text)[:HINT_CHARACTERS], few)[:1] for text in texts[:MOST_HINTS]}
        return {text: self.groups[few[names[0]]][0] for text, names in found.items() if names}


def joined(names: Iterable[str], sets: Iterable[set[str]]) -> list[tuple[str, ...]]:
    """Return the names in groups: those that share a set are in one group, in the order of the first of them."""
    leader = {name: name for name in names}

    def first_of(name: str) -> str:
        while leader[name] != name:
            leader[name] = leader[leader[name]]
            name = leader[name]
        return name

    for one in sets:
        for name in one:
            leader[first_of(name)] = first_of(min(one))
    groups: dict[str, list[str]] = {}
    for name in leader:
        groups.setdefault(first_of(name), []).append(name)
    return [tuple(sorted(group)) for group in groups.values()]
