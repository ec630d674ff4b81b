"""One ZooKeeper server for a whole benchmark, from the Debian package `zookeeper`.

Invariant: it listens on loopback only, each write is on disk before its answer (forceSync=yes, the default), and its
folder is on the same file system as the benchmark's PostgreSQL. It is ended by its process id.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from bench.install import Unavailable, found
from bench.machine import Cpu
from bench.report import log_step

JAR = Path("/usr/share/java/zookeeper.jar")
LOGGING = Path("/etc/zookeeper/conf")
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
VERSION = "Zookeeper version: "
START_S, END_S, WORD_S = 60.0, 20.0, 5.0
SETTINGS = """
dataDir={folder}
clientPort={port}
clientPortAddress=127.0.0.1
tickTime=2000
maxClientCnxns=0
admin.enableServer=false
4lw.commands.whitelist=srvr
forceSync=yes
"""


@dataclass(frozen=True)
class ZooKeeper:
    """A running server. `address`: host and port. `version`: as it says itself."""

    address: str
    pid: int
    version: str

    def cpu(self) -> Cpu:
        """Return what the server has used so far."""
        return Cpu.of(self.pid)


@contextmanager
def zookeeper() -> Iterator[ZooKeeper]:
    """Start a server for the block. Raises Unavailable where the server or its client is not installed."""
    if importlib.util.find_spec("kazoo") is None:
        raise Unavailable("Kazoo is not installed: pip install 'pgsched[bench]'")
    if not JAR.exists():
        raise Unavailable(f"ZooKeeper is not installed ({JAR}): apt install zookeeper")
    java = found("java")
    folder = Path(tempfile.mkdtemp(prefix="pgsched-bench-zookeeper-", dir=os.environ.get("PGSCHED_BENCH_TMP")))
    try:
        with started(java, folder) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def started(java: str, folder: Path) -> Iterator[ZooKeeper]:
    """Run a server with its data in this folder."""
    port = free_port()
    config = folder / "zoo.cfg"
    config.write_text(SETTINGS.format(folder=folder / "data", port=port))
    options = ["-Dzookeeper.forceSync=yes", "-Dzookeeper.root.logger=WARN,CONSOLE", f"-Dzookeeper.log.dir={folder}"]
    log = folder / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [java, *options, "-cp", f"{LOGGING}:{JAR}", MAIN, str(config)],
            stdin=subprocess.DEVNULL, stdout=file, stderr=file,
        )  # fmt: skip
    try:
        deadline = time.monotonic() + START_S
        while VERSION not in (answer := word(port, "srvr")):  # until then it says that it does not serve requests
            if process.poll() is not None or time.monotonic() > deadline:
                last = " | ".join(log.read_text(errors="replace").strip().splitlines()[-3:])
                raise Unavailable(f"ZooKeeper did not start: {last[-500:] or 'it said nothing'}")
            time.sleep(0.1)
        version = answer.partition(VERSION)[2].partition("-")[0].partition(",")[0]
        log_step(f"ZooKeeper {version} is up, process {process.pid}")
        yield ZooKeeper(f"127.0.0.1:{port}", process.pid, version)
    finally:
        process.terminate()
        try:
            process.wait(END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def free_port() -> int:
    """Return a port of loopback that nobody uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def word(port: int, command: str) -> str:
    """Return the server's answer to one of its four-letter commands; nothing while it does not answer."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=WORD_S) as conn:
        conn.sendall(command.encode())
        parts = []
        while part := conn.recv(4096):
            parts.append(part)
        return b"".join(parts).decode(errors="replace")
    return ""
