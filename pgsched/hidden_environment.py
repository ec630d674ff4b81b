"""What a worker that runs other people's programs (kinds command and shell) keeps to itself.

Invariant: once `drop` was called, no process that is started from here inherits a secret of the environment, and while
the process is hidden nobody but root reads from its /proc directory what the environment was at its start. Our own code
goes on reading the secrets, by `environ`.

Which variables hold secrets is said here and nowhere else.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Mapping

SECRET = re.compile(
    "DATABASE_URL|PGPASSWORD"
    "|PGSCHED_(DSN|SQL_DSN_.+|SQL_LOGIN|ALERT_WEBHOOK|(.+_)?(TOKEN|KEY|SECRET|PASSWORD|PASSWORD_HASH))"
)
PR_SET_DUMPABLE = 4

_state: dict[str, bool] = {"hidden": False}
_kept: dict[str, str] = {}


def hide() -> bool:
    """Let nobody but root read this process's memory and environment; whether the system can do that (Linux)."""
    _state["hidden"] = True
    if not sys.platform.startswith("linux"):
        return False
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return bool(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def is_hidden() -> bool:
    """Was `hide` called?"""
    return _state["hidden"]


def drop() -> None:
    """In a hidden process: take the secrets out of the environment, for our own code alone."""
    if is_hidden():
        _kept.update({name: os.environ.pop(name) for name in list(os.environ) if SECRET.fullmatch(name)})


def parted(env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """What another process of ours is started with, which every process of this user may read, and the secrets that it
    is told by a channel, for `give_back`. All is the former in a process that is not hidden."""
    secrets = {name: value for name, value in env.items() if SECRET.fullmatch(name)} if is_hidden() else {}
    return {name: value for name, value in env.items() if name not in secrets}, secrets


def give_back(secrets: Mapping[str, str]) -> None:
    """Put what another process of ours dropped into the environment, until `drop`."""
    os.environ.update(secrets)


def dropped() -> dict[str, str]:
    """What `drop` took."""
    return dict(_kept)


def environ() -> Mapping[str, str]:
    """The environment with what was dropped of it."""
    return {**_kept, **os.environ} if _kept else os.environ
