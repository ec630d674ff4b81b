"""Read crontabs from where cron has them: a file, /etc/cron.d, or the crontab of a user.

Invariant: nothing is run. The crontab of a user is read from the directory in which cron keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from pgsched.errors import InputError
from pgsched.importers.crontab.importing import CrontabOptions, import_crontab
from pgsched.importers.imported import Imported, Omitted, Reason, Remark, merge_imported
from pgsched.importers.job_names import JobNames
from pgsched.services.importing.machine import home_directory
from pgsched.services.importing.text_files import MIB, decode_text, list_directory, read_text_file

MOST_BYTES = 4 * MIB
SPOOLS = ("/var/spool/cron/crontabs", "/var/spool/cron", "/var/cron/tabs")
USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*\$?")
# cron(8) of Debian reads files with such names in /etc/cron.d, and no others.
READ_BY_CRON = re.compile(r"[A-Za-z0-9_-]+")
SYSTEM_FILE = "/etc/crontab"


@dataclass(frozen=True, slots=True)
class CrontabSource:
    """What to read: `-` for `standard_input`, a file, a directory or a user; and how.

    `user_column`: each line has a user before its command; None: as in the place where the file is. `home`: the
    directory of the owner.
    """

    name: str
    timezone: str
    now: datetime
    queue: str | None = None
    user_column: bool | None = None
    home: str | None = None


def read_crontabs(source: CrontabSource, standard_input: bytes = b"") -> Imported:
    """Return the jobs of a crontab, or of the crontabs of a directory. Raises InputError."""
    options = CrontabOptions(source.timezone, source.now, queue=source.queue, home=source.home, home_of=home_directory)
    if source.name == "-":
        text = decode_text(standard_input, "standard input", MOST_BYTES)
        return import_crontab(text, replace(options, user_column=bool(source.user_column)))
    path = Path(source.name)
    if path.is_dir():
        return merge_imported(_read_directory(path, options, source))
    if "/" in source.name or path.exists() or path.is_symlink():
        system = _is_of_the_system(path) if source.user_column is None else source.user_column
        owner = path.name if _is_spool(path.absolute().parent) and not system else None
        return import_crontab(read_text_file(path, MOST_BYTES), replace(options, user_column=system, owner=owner))
    text = read_text_file(find_crontab(source.name), MOST_BYTES)
    return import_crontab(text, replace(options, owner=source.name))


def _is_of_the_system(path: Path) -> bool:
    return str(path) == SYSTEM_FILE or path.absolute().parent.name == "cron.d"


def _is_spool(path: Path) -> bool:
    """Check whether cron keeps the crontabs of users in a directory: each file there has the name of its user."""
    return str(path.absolute()) in SPOOLS


def _read_directory(path: Path, options: CrontabOptions, source: CrontabSource) -> Iterator[Imported]:
    """Yield the jobs of each file of a directory such as /etc/cron.d; what cannot be read is omitted."""
    names = JobNames()
    of_users = _is_spool(path)
    system = not of_users if source.user_column is None else source.user_column
    for file in list_directory(path):
        if file.name == ".placeholder" or file.is_dir():
            continue
        if not (USER if of_users else READ_BY_CRON).fullmatch(file.name):
            yield _omitted(file, "cron does not read files with such a name")
            continue
        try:
            text = read_text_file(file, MOST_BYTES)
        except InputError as error:
            yield _omitted(file, str(error).removeprefix(f"{file}: "), Reason.UNREADABLE)
            continue
        of_file = replace(options, label=file.name, user_column=system)
        of_file = replace(of_file, owner=file.name) if of_users else replace(of_file, prefix=file.name)
        yield import_crontab(text, of_file, names)


def _omitted(file: Path, text: str, reason: Reason = Reason.SYNTAX) -> Imported:
    return Imported(omitted=[Omitted(file.name, "", Remark(reason, text))])


def find_crontab(user: str) -> Path:
    """Return the file in which cron keeps the crontab of a user. Raises InputError."""
    if not USER.fullmatch(user):
        raise InputError(f"crontab: {user!r:.80} is neither a file nor the name of a user", "source")
    if home_directory(user) is None:
        raise InputError(f"crontab: there is no file {user!r:.80}, and no user of this name", "source")
    for spool in SPOOLS:
        path = Path(spool) / user
        try:
            if path.is_file():
                return path
        except OSError:
            pass
    raise InputError(
        f"crontab: no crontab of {user} is to be found in {', '.join(SPOOLS)} (only root may look there); or:"
        f" crontab -l -u {user} | pgsched import crontab -",
        "source",
    )
