"""A network namespace for one process, in which packets vanish silently: no reset, no refusal, as if a cable was cut.

Invariant: everything made here has a name of its own, and is removed at the end of the block, also after an error. The
next `sweep` removes what a killed process left. Root only.
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
NET = "10.213"  # in a private range
numbers = itertools.count(1)


NAMES = Path("/run/netns")


class NetworkFailed(Exception):
    """A program that sets up the network failed."""


def run_program(*command: str) -> None:
    """Run a system program. Raises NetworkFailed with its output if it fails."""
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=30)
    if done.returncode != 0:
        raise NetworkFailed(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")


class Namespace:
    """A namespace: `with Namespace() as net:`.

    A process that is started with `net.prefix` before its command reaches this machine at `net.host`, and nothing else.
    `net.outside` is the name of this machine's interface to the namespace.
    """

    def __init__(self, pid: int | None = None, number: int | None = None) -> None:
        pid, number = pid or os.getpid(), number or next(numbers)
        self.name = f"pgsched-{pid}-{number}"
        self.outside = f"pgs{pid % 100_000}o{number % 100}"
        self._inside = f"pgs{pid % 100_000}i{number % 100}"
        block = (pid * 16 + number) % 16_384  # each namespace gets a /30
        self._net = f"{NET}.{block // 64}.{block % 64 * 4}"
        self.host = self._address(1)

    @property
    def prefix(self) -> list[str]:
        """Return the words to put before a command that is to run inside. The process id is the command's own."""
        return ["ip", "netns", "exec", self.name]

    def __enter__(self) -> Self:
        try:
            run_program("ip", "netns", "add", self.name)
            run_program(
                "ip", "link", "add", self.outside, "type", "veth", "peer", "name", self._inside, "netns", self.name
            )
            run_program("ip", "address", "add", f"{self.host}/30", "dev", self.outside)
            run_program("ip", "link", "set", self.outside, "up")
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
        """Drop packets in these directions from now on; TCP goes on sending them.

        "up" is from inside to this machine, "down" the other way.
        """
        for direction in directions:
            self._in("iptables", "-A", CHAINS[direction], "-j", "DROP")

    def heal(self) -> None:
        """Let all packets pass again."""
        self._in("iptables", "-F")

    def remove(self) -> None:
        """Remove the namespace. Processes inside keep what is left of it until they end."""
        for command in (["ip", "link", "delete", self.outside], ["ip", "netns", "delete", self.name]):
            subprocess.run(command, check=False, capture_output=True, timeout=30)

    def _in(self, *command: str) -> None:
        run_program(*self.prefix, *command)

    def _address(self, host: int) -> str:
        front, _, last = self._net.rpartition(".")
        return f"{front}.{int(last) + host}"


def sweep() -> None:
    """Remove the namespaces of processes that were killed."""
    for place in NAMES.glob("pgsched-*-*"):
        pid, _, number = place.name.removeprefix("pgsched-").partition("-")
        if pid.isdecimal() and number.isdecimal() and not Path(f"/proc/{pid}").exists():
            Namespace(int(pid), int(number)).remove()
