"""Hide the secrets of the environment from the programs that a worker runs (kinds command and shell).

Invariant: after `drop`, no process that is started from here inherits a secret of the environment. While the process is
hidden, only root can read its first environment in /proc. The code of pgsched still reads the secrets, by `environ`.

Only this module defines which variables hold secrets.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Mapping

SECRET = re.compile(
    "DATABASE_URL|PGPASSWORD"
    "|PGSCHED_(DSN|IMPORT_DSN|SQL_DSN_.+|SQL_LOGIN|ALERT_WEBHOOK|ALERT_APPRISE_.+|(.+_)?(TOKEN|KEY|SECRET|PASSWORD|PASSWORD_HASH))"
)
PR_SET_DUMPABLE = 4

_state: dict[str, bool] = {"hidden": False}
_kept: dict[str, str] = {}


def hide() -> bool:
    """Let only root read this process's memory and environment; return whether the system can do that (Linux can)."""
    _state["hidden"] = True
    if not sys.platform.startswith("linux"):
        return False
    prctl = ctypes.CDLL(None).prctl
    prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]
    return bool(prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) == 0)


def is_hidden() -> bool:
    """Return whether `hide` was called."""
    return _state["hidden"]


def drop() -> None:
    """Take the secrets out of the environment of a hidden process, so that only pgsched's own code has them."""
    if is_hidden():
        _kept.update({name: os.environ.pop(name) for name in list(os.environ) if SECRET.fullmatch(name)})


def split_environment(env: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Split the environment for another process of pgsched into a public part and the secrets.

    Every process of this user may read the public part. The secrets go through a channel, for
    `restore_secrets`. Where the process is not hidden, all is public.
    """
    secrets = {name: value for name, value in env.items() if SECRET.fullmatch(name)} if is_hidden() else {}
    return {name: value for name, value in env.items() if name not in secrets}, secrets


def restore_secrets(secrets: Mapping[str, str]) -> None:
    """Put the secrets that another process of pgsched dropped into the environment, until `drop`."""
    os.environ.update(secrets)


def dropped_secrets() -> dict[str, str]:
    """Return the secrets that `drop` took out."""
    return dict(_kept)


def environ() -> Mapping[str, str]:
    """Return the environment, with the secrets that were dropped."""
    return {**_kept, **os.environ} if _kept else os.environ
