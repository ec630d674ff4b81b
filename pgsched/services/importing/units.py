"""Read unit files of systemd from directories: timers, services, drop-ins, and links that enable units."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pgsched.errors import InputError
from pgsched.importers.imported import Imported, Omitted, Reason, Remark
from pgsched.importers.systemd.timers import TimerOptions, import_timers
from pgsched.importers.systemd.units import DropIns, UnitFiles, template_of
from pgsched.services.importing.text_files import MIB, list_directory, read_text_file

MOST_BYTES = MIB
ENDINGS = (".timer", ".service")
TYPES = ("timer", "service")
OF_THE_VENDOR = "/lib/systemd/"  # in its directories no link says what the administrator has enabled
NOT_KNOWN = "timers that are not enabled become jobs as well: give /etc/systemd/system, too"


@dataclass(slots=True)
class _Units:
    """What was found so far. `links`: the names of the timers that links enable. `says_enabled`: whether links do."""

    texts: dict[str, str] = field(default_factory=dict)
    drop_ins: list[DropIns] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    says_enabled: bool = False
    masked: set[str] = field(default_factory=set)
    omitted: list[Omitted] = field(default_factory=list)


def read_timers(paths: Sequence[str], options: TimerOptions) -> Imported:
    """Return the jobs of timers. Raises InputError.

    `paths`: directories, of which the first that has a unit counts, or timers. Of a timer that is named, the other
    units of its directory are read as well, and only the timers that are named become jobs.
    """
    units, wanted = _Units(), []
    for given in paths:
        path = Path(given)
        if path.is_dir():
            _read_directory(path, units)
            continue
        if path.suffix != ".timer":
            raise InputError(f"{given}: is neither a directory nor a timer", "source")
        template = template_of(path.name)
        if not path.is_file() and not (template is not None and (path.parent / template).is_file()):
            raise InputError(f"{given}: there is no such timer", "source")
        wanted.append(path.name)
        _read_directory(path.parent, units)
        if template is not None:
            units.links.append(path.name)
    of_users = any("/systemd/user" in str(Path(one).absolute()) for one in paths)
    timers = {*wanted} or None
    return _import(units, timers, of_users, options)


def _import(units: _Units, timers: set[str] | None, of_users: bool, options: TimerOptions) -> Imported:
    texts = units.texts
    if timers is not None:
        kept = {*timers, *(one for one in map(template_of, timers) if one is not None)}
        texts = {name: text for name, text in texts.items() if not name.endswith(".timer") or name in kept}
        units.omitted = [one for one in units.omitted if one.where in kept]
    links = [one for one in dict.fromkeys(units.links) if timers is None or one in timers]
    files = UnitFiles(
        texts,
        units.drop_ins,
        instances=[one for one in links if template_of(one) is not None],
        enabled=frozenset(links) if units.says_enabled and timers is None else None,
        masked=frozenset(one for one in units.masked if timers is None or one in timers),
        of_users=of_users,
    )
    imported = import_timers(files, options)
    if timers is None and not units.says_enabled and imported.jobs:
        imported.remarks.append(Remark(Reason.ENABLED, NOT_KNOWN))
    imported.omitted.extend(one for one in units.omitted if one.where.endswith(".timer"))
    return imported


def _read_directory(path: Path, units: _Units) -> None:
    """Add the units of a directory. What cannot be read is omitted."""
    drop_ins: dict[str, dict[str, str | InputError | None]] = {}
    units.drop_ins.append(drop_ins)
    of_the_vendor = OF_THE_VENDOR in f"{os.path.realpath(path)}/"
    for entry in list_directory(path):
        name = entry.name.removesuffix(".d")
        if name != entry.name and (name.endswith(ENDINGS) or name in TYPES):
            drop_ins[name] = _read_drop_ins(entry)
        elif entry.name.endswith((".wants", ".requires")):
            units.links.extend(_links(entry))
            units.says_enabled = units.says_enabled or not of_the_vendor
        elif entry.name.endswith(ENDINGS) and entry.name not in units.texts and entry.name not in units.masked:
            _read_unit(entry, units)


def _read_unit(path: Path, units: _Units) -> None:
    try:
        target = Path(os.path.realpath(path))
        if str(target) == "/dev/null":
            units.masked.add(path.name)
            return
        if path.is_symlink() and target.name != path.name and (path.parent / target.name).exists():
            return  # another name of a unit that is read by its own name
        units.texts[path.name] = read_text_file(path, MOST_BYTES)
    except (InputError, OSError) as error:
        text = str(error).removeprefix(f"{path}: ")
        units.omitted.append(Omitted(path.name, "", Remark(Reason.UNREADABLE, text)))


def _read_drop_ins(path: Path) -> dict[str, str | InputError | None]:
    """Return the texts of a directory of drop-ins; None for a link to /dev/null, an error for what cannot be read."""
    found: dict[str, str | InputError | None] = {}
    for entry in list_directory(path) if path.is_dir() else ():
        if not entry.name.endswith(".conf"):
            continue
        try:
            masked = os.path.realpath(entry) == "/dev/null"
            found[entry.name] = None if masked else read_text_file(entry, MOST_BYTES)
        except InputError as error:
            found[entry.name] = InputError(str(error).removeprefix(f"{entry}: "))
    return found


def _links(path: Path) -> Iterable[str]:
    """Return the names of the timers that links in a directory enable."""
    if not path.is_dir():
        return []
    return [entry.name for entry in list_directory(path) if entry.name.endswith(".timer")]
