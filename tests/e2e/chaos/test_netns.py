"""A network namespace drops packets in the chosen direction, and leaves nothing behind."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from pgsched.chaos.site import requirements
from pgsched.chaos.site.network_namespace import Namespace, NetworkFailed, run_program, sweep

pytestmark = pytest.mark.skipif(requirements.netns() is not None, reason=f"no namespaces: {requirements.netns()}")
ASK = """
import socket, sys
link = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=2)
link.sendall(b"a")
print(link.recv(1).decode(), flush=True)
input()
link.sendall(b"b")
try:
    print(link.recv(1).decode())
except TimeoutError:
    print("nothing")
"""


class Echo:
    """A server, reachable from a namespace, that sends each byte back. `heard` is what arrived."""

    def __init__(self, host: str) -> None:
        self.listener = socket.create_server((host, 0))
        self.port = self.listener.getsockname()[1]
        self.heard = b""
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        link, _ = self.listener.accept()
        with link, contextlib.suppress(OSError):  # the namespace is removed while the server reads
            while data := link.recv(1):
                self.heard += data
                link.sendall(data)


@pytest.fixture
def net() -> Iterator[Namespace]:
    with Namespace() as made:
        yield made


def asked(net: Namespace, echo: Echo, drop: str | None) -> str:
    """Return what a process inside the namespace reads after packets have begun to vanish."""
    command = [*net.prefix, sys.executable, "-c", ASK, net.host, str(echo.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as inside:
        assert inside.stdin is not None and inside.stdout is not None
        assert inside.stdout.readline() == "a\n"
        if drop:
            net.drop(drop)  # type: ignore[arg-type]
        out, _ = inside.communicate("\n", timeout=10)
    return out.strip()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("drop", "answer", "heard"), [(None, "b", b"ab"), ("up", "nothing", b"a"), ("down", "nothing", b"ab")]
)
def test_packets_vanish_in_one_direction(net: Namespace, drop: str | None, answer: str, heard: bytes) -> None:
    echo = Echo(net.host)
    assert asked(net, echo, drop) == answer
    assert echo.heard == heard
    net.heal()
    assert asked(net, Echo(net.host), None) == "b"


def test_nothing_of_a_namespace_stays_behind() -> None:
    with pytest.raises(NetworkFailed), Namespace() as net:
        run_program("ip", "link", "show", net.outside)
        run_program("ip", "no-such-thing")
    with pytest.raises(NetworkFailed, match="does not exist"):
        run_program("ip", "link", "show", net.outside)
    names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert net.name not in names


def test_only_namespaces_of_killed_processes_are_swept_away() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    with Namespace() as mine, Namespace(gone.pid, 1) as left:
        sweep()
        names = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
        assert mine.name in names and left.name not in names
        with pytest.raises(NetworkFailed, match="does not exist"):
            run_program("ip", "link", "show", left.outside)
