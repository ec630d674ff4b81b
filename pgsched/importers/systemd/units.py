"""Read unit files of systemd: sections with settings, drop-ins, templates and their specifiers.

Invariant: a setting has the value that systemd has after the file and its drop-ins. An empty value takes the earlier
ones of its name away; for a setting that holds one value, the last one counts.

The syntax is that of systemd.syntax(7); templates, specifiers and drop-ins are those of systemd.unit(5). Drop-ins of
all directories are applied in the order of their file names; of those with one name the first counts. Specifiers that
differ from machine to machine are not resolved.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pgsched.errors import InputError

SECTION = re.compile(r"\[([^\[\]]+)\]")
SPECIFIER = re.compile(r"%(.)")
TRUE, FALSE = {"1", "yes", "y", "true", "t", "on"}, {"0", "no", "n", "false", "f", "off", ""}
# Of the manager of the system.
SYSTEM_SPECIFIERS = {
    "C": "/var/cache", "E": "/etc", "g": "root", "G": "0", "h": "/root", "L": "/var/log", "S": "/var/lib", "t": "/run",
    "T": "/tmp", "u": "root", "U": "0", "V": "/var/tmp", "%": "%",
}  # fmt: skip


DropIns = Mapping[str, Mapping[str, str | InputError | None]]


class UnresolvedSpecifier(Exception):
    """A specifier whose value only the machine knows."""


@dataclass(frozen=True, slots=True)
class UnitFiles:
    """The unit files of an import.

    `texts`: by unit name.
    `drop_ins`: of each directory, the first one first: by NAME of `NAME.d`, the texts of its files by their names; None
    for a link to /dev/null, an error for what cannot be read.
    `instances`: names of instances that are enabled (`NAME@x.timer`).
    `enabled`: names of all units that links enable; None where this is not known.
    `masked`: names that are links to /dev/null.
    `of_users`: they are units of the manager of a user.
    """

    texts: Mapping[str, str]
    drop_ins: Sequence[DropIns] = ()
    instances: Sequence[str] = ()
    enabled: frozenset[str] | None = None
    masked: frozenset[str] = frozenset()
    of_users: bool = False

    def load(self, name: str) -> Unit | None:
        """Return a unit with its drop-ins; of an instance that of its template. None where there is no file."""
        for stored in (name, template_of(name)):
            if stored is not None and stored in self.texts:
                unit = Unit(name, self.of_users)
                unit.read(self.texts[stored])
                for file, text in sorted(self._drop_ins_of(name).items()):
                    if isinstance(text, InputError):
                        unit.unread.append(f"{file}: {text}")
                    elif text is not None:
                        unit.read(text)
                return unit
        return None

    def _drop_ins_of(self, name: str) -> dict[str, str | InputError | None]:
        """Return the drop-ins of a unit by file name: those of its own name before those of its type."""
        found: dict[str, str | InputError | None] = {}
        for names in ([*drop_in_names(name)], [name.rpartition(".")[2]]):
            for directory in self.drop_ins:
                for one in names:
                    found = {**directory.get(one, {}), **found}
        return found


def template_of(name: str) -> str | None:
    """Return the template of an instance: `a@.timer` of `a@b.timer`; None for other units."""
    prefix, at, instance = name.partition("@")
    stem, dot, ending = instance.rpartition(".")
    return f"{prefix}@.{ending}" if at and dot and stem else None


def drop_in_names(name: str) -> Iterator[str]:
    """Yield the names of a unit's directories of drop-ins: `a-b.timer`, `a-.timer`; and those of its template."""
    yield name
    if (template := template_of(name)) is not None:
        yield from drop_in_names(template)
        return
    stem, _, ending = name.rpartition(".")
    prefix, at, _ = stem.partition("@")
    while (dash := prefix.rfind("-", 0, len(prefix) - 1)) > 0:
        prefix = prefix[: dash + 1]
        yield f"{prefix}{at}.{ending}"


def is_template(name: str) -> bool:
    """Check whether a unit is a template without an instance."""
    return "@." in name


class Unit:
    """A unit: its settings by section and name, each with its values in order.

    `unread`: its drop-ins that cannot be read, each with the reason.
    """

    def __init__(self, name: str, of_users: bool = False) -> None:
        self.name = name
        self.unread: list[str] = []
        self._of_users = of_users
        self._settings: dict[str, list[tuple[str, str]]] = {}
        self._emptied: dict[tuple[str, str], int] = {}  # by section and name: the place of its last empty value

    def read(self, text: str) -> None:
        """Add the settings of a file or a drop-in."""
        section = ""
        for line in _logical_lines(text):
            if match := SECTION.fullmatch(line):
                section = match[1]
                continue
            name, equals, value = line.partition("=")
            if not equals or not section:
                continue
            self._add(section, name.strip(), value.strip())

    def _add(self, section: str, name: str, value: str) -> None:
        settings = self._settings.setdefault(section, [])
        if not value:
            self._emptied[section, name] = len(settings)
        settings.append((name, value))

    def items(self, section: str) -> Iterator[tuple[str, str]]:
        """Yield the settings of a section that have a value, in order."""
        for place, (name, value) in enumerate(self._settings.get(section, ())):
            if value and place > self._emptied.get((section, name), -1):
                yield name, value

    def assignments(self, section: str) -> Sequence[tuple[str, str]]:
        """Return all settings of a section in order, also those that take others away."""
        return self._settings.get(section, ())

    def values(self, section: str, name: str) -> list[str]:
        """Return all values of a setting."""
        return [value for one, value in self.items(section) if one == name]

    def value(self, section: str, name: str) -> str | None:
        """Return the value of a setting that holds one; None where it is not set."""
        found = self.values(section, name)
        return found[-1] if found else None

    def text(self, section: str, name: str) -> str | None:
        """Return the value of a setting for people: as it stands, where its specifiers cannot be resolved."""
        value = self.value(section, name)
        try:
            return None if value is None else self.resolve(value)
        except UnresolvedSpecifier:
            return value

    def is_true(self, section: str, name: str) -> bool:
        """Check whether a boolean setting is on."""
        return (self.value(section, name) or "").lower() in TRUE

    def resolve(self, text: str) -> str:
        """Return a text with its specifiers replaced. Raises UnresolvedSpecifier."""

        def replace(match: re.Match[str]) -> str:
            known = self._specifiers().get(match[1])
            if known is None:
                raise UnresolvedSpecifier(match[0])
            return known

        return SPECIFIER.sub(replace, text)

    def _specifiers(self) -> dict[str, str]:
        stem = self.name.rpartition(".")[0]
        prefix, _, instance = stem.partition("@")
        last = prefix.rpartition("-")[2]
        own = {"n": self.name, "N": stem, "p": prefix, "i": instance, "j": last, "P": unescape(prefix),
               "I": unescape(instance), "J": unescape(last), "f": f"/{unescape(instance or prefix)}"}  # fmt: skip
        return own | ({"%": "%"} if self._of_users else SYSTEM_SPECIFIERS)


def unescape(text: str) -> str:
    """Undo the escaping of unit names: `-` stands for `/`, and `\\x2d` for a character."""
    plain = text.replace("-", "/")
    return re.sub(r"\\x([0-9a-fA-F]{2})", lambda match: chr(int(match[1], 16)), plain)


def _logical_lines(text: str) -> Iterator[str]:
    """Yield the lines, joined where one ends with a backslash. Comments are left out, also between joined lines."""
    pieces: list[str] = []
    for raw in [*text.split("\n"), ""]:
        line = raw.rstrip("\r") if pieces else raw.rstrip("\r").lstrip()
        if line.lstrip().startswith(("#", ";")):
            continue
        if line.endswith("\\"):
            pieces.append(f"{line[:-1]} ")
            continue
        joined = "".join([*pieces, line]).strip()
        pieces = []
        if joined:
            yield joined
