"""What an import asks of this machine: its time zone, and its users."""

from __future__ import annotations

import pwd
from pathlib import Path

from pgsched.core.schedule import zones
from pgsched.errors import InputError, ScheduleError

TIMEZONE_FILE, LOCALTIME = Path("/etc/timezone"), Path("/etc/localtime")
MOST = 200
SAME_AS_UTC = {"Etc/UTC", "Etc/UCT", "Etc/Universal", "Etc/Zulu", "UCT", "Universal", "Zulu"}


def find_timezone(given: str | None) -> tuple[str, str]:
    """Return a zone and where it is from: `given`, else the machine's, else UTC.

    Raises InputError for a given zone that is none.
    """
    if given is not None:
        try:
            zones.zone(given)
        except ScheduleError as error:
            raise InputError(str(error), "timezone") from None
        return given, "--timezone"
    for name, place in (*_zone_of_file(), *_zone_of_link()):
        if name in zones.names():
            return "UTC" if name in SAME_AS_UTC else name, place
    return "UTC", "this machine does not say which zone it has"


def _zone_of_file() -> list[tuple[str, str]]:
    try:
        with TIMEZONE_FILE.open(encoding="utf-8", errors="replace") as file:
            return [(file.read(MOST).strip(), str(TIMEZONE_FILE))]
    except OSError:
        return []


def _zone_of_link() -> list[tuple[str, str]]:
    try:
        target = str(LOCALTIME.readlink())
    except OSError:
        return []
    return [(target.rpartition("zoneinfo/")[2], str(LOCALTIME))]


def home_directory(user: str) -> str | None:
    """Return the home directory of a user of this machine; None for other users."""
    try:
        return pwd.getpwnam(user).pw_dir or None
    except (KeyError, ValueError):
        return None
