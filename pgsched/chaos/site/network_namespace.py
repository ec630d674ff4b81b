"""A network of its own for one process, in which packets vanish silently: no reset, no refusal, as on a cable cut.

The rule: everything made here has a name of its own and goes away with the block, whatever happens in it; what a killed
process left, with the next `sweep`. Root only.
"""

from __future__ import annotations

import itertools
import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

Direction = Literal["up", "down"]
CHAINS: dict[Direction, str] = {"up": "OUTPUT", "down": "INPUT"}
NET = "10.213"  # of a private range
numbers = itertools.count(1)


NAMES = Path("/run/netns")


class NetworkFailed(Exception):
    """A program that makes the network said no."""


def run(*command: str) -> None:
    """Run a program of the system. Raises NetworkFailed with what it said."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise NetworkFailed(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")


class Namespace:
    """`with Namespace() as net:` a process started with `net.prefix` before its command reaches this machine at
    `net.host`, and nothing else. `net.outside`: the name of this machine's interface to it."""

    def __init__(self, pid: int | None = None, number: int | None = None) -> None:
        pid, number = pid or os.getpid(), number or next(numbers)
        self.name = f"pgsched-{pid}-{number}"
        self.outside = f"pgs{pid % 100_000}o{number % 100}"
        self._inside = f"pgs{pid % 100_000}i{number % 100}"
        block = (pid * 16 + number) % 16_384  # a /30 each
        self._net = f"{NET}.{block // 64}.{block % 64 * 4}"
        self.host = self._address(1)

    @property
    def prefix(self) -> list[str]:
        """What goes before a command that is to run inside; its process id stays that of the command."""
        return ["ip", "netns", "exec", self.name]

    def __enter__(self) -> Self:
        try:
            run("ip", "netns", "add", self.name)
            run("ip", "link", "add", self.outside, "type", "veth", "peer", "name", self._inside, "netns", self.name)
            run("ip", "address", "add", f"{self.host}/30", "dev", self.outside)
            run("ip", "link", "set", self.outside, "up")
            self._in("ip", "address", "add", f"{self._address(2)}/30", "dev", self._inside)
            self._in("ip", "link", "set", self._inside, "up")
            self._in("ip", "link", "set", "lo", "up")
        except BaseException:
            self.remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def drop(self, *directions: Direction) -> None:
        """From now on packets `up` (from inside to this machine) or `down` vanish; TCP goes on sending them."""
        for direction in directions:
            self._in("iptables", "-A", CHAINS[direction], "-j", "DROP")

    def heal(self) -> None:
        """Packets arrive again."""
        self._in("iptables", "-F")

    def remove(self) -> None:
        """Take it away; processes inside keep what is left of it until they end."""
        for command in (["ip", "link", "delete", self.outside], ["ip", "netns", "delete", self.name]):
            subprocess.run(command, check=False, capture_output=True, timeout=30)

    def _in(self, *command: str) -> None:
        run(*self.prefix, *command)

    def _address(self, host: int) -> str:
        front, _, last = self._net.rpartition(".")
        return f"{front}.{int(last) + host}"


def sweep() -> None:
    """Take away the networks of processes that were killed."""
    for place in NAMES.glob("pgsched-*-*"):
        pid, _, number = place.name.removeprefix("pgsched-").partition("-")
        if pid.isdecimal() and number.isdecimal() and not Path(f"/proc/{pid}").exists():
            Namespace(int(pid), int(number)).remove()
