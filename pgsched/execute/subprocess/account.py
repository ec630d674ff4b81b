"""The user account that programs of runs get with `--run-as`.

Invariant: with `--run-as` no program of a run has the worker's user, groups or home directory.
"""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass

from pgsched.core.text import did_you_mean
from pgsched.errors import InputError


@dataclass(frozen=True, slots=True)
class Account:
    """A user of this machine."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    home: str


def find_account(name: str) -> Account:
    """Return the user that programs are to run as.

    Raises InputError where this machine does not know the name, or where this process is not root.
    """
    try:
        found = pwd.getpwnam(name)
    except (KeyError, ValueError):
        hint = did_you_mean(name, [one.pw_name for one in pwd.getpwall()])
        raise InputError(f"run-as: this machine has no user {name!r:.80}{hint}", "run_as") from None
    if os.geteuid() != 0:
        raise InputError(f"run-as: only root may run programs as {name}: start the worker as root", "run_as")
    return Account(name, found.pw_uid, found.pw_gid, tuple(os.getgrouplist(name, found.pw_gid)), found.pw_dir)
