"""Private PostgreSQL servers for faults: a plain one, and ones with a small disk, a movable clock, or a standby.

Invariant: each server lives in one folder, with full durability and a socket there, and is removed with that folder.
Nothing outside of the folder is touched.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from psycopg import sql

from pgsched.chaos.site import folders
from pgsched.chaos.site.clocks import Clock
from pgsched.db.embedded.cluster import MAJOR, Cluster, StopMode
from pgsched.db.embedded.server import bin_dir, readable_binaries, server_account
from pgsched.errors import EmbeddedUnavailable

SETTINGS = {
    "fsync": "on",
    "full_page_writes": "on",
    "synchronous_commit": "on",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": "off",
}
DISK_MB = 192


class PlainServer:
    """A private server. `dsn` is the DSN of its maintenance database, and stays the same."""

    def __init__(
        self,
        folder: Path,
        binaries: Path | None = None,
        *,
        name: str = "primary",
        settings: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        account = server_account()
        self.folder, self.name, self.directory = folder, name, folder / name
        self.binaries = binaries or (bin_dir() if account is None else readable_binaries(bin_dir(), folder, account))
        cluster = Cluster(
            self.directory / "data", self.binaries, account, {**SETTINGS, **(settings or {})}, environment or {}
        )
        self.cluster = cluster if has_embedded_major(self.binaries) else replace(cluster, locale=())
        self.dsn = dsn_of(self)

    @property
    def log(self) -> Path:
        """Return the path of the server's log."""
        return self.cluster.log

    @property
    def pid(self) -> int:
        """Return the postmaster's process id. Raises ProcessLookupError if the server does not run."""
        found = self.cluster.postmaster()
        if found is None:
            raise ProcessLookupError(f"the server in {self.directory} does not run")
        return found.pid

    @property
    def running(self) -> bool:
        """Tell whether the server runs."""
        return self.cluster.postmaster() is not None

    def start(self) -> None:
        """Create the cluster if there is none, start it, and wait until it accepts connections."""
        if not self.directory.exists():
            self.make_place()
        if not self.cluster.data.exists():
            self.cluster.create("--no-sync")
        self.cluster.start()

    def stop(self, mode: StopMode = "immediate") -> None:
        """Stop the server."""
        self.cluster.stop(mode)

    def remove(self) -> None:
        """Stop the server and delete its folder."""
        with contextlib.suppress(EmbeddedUnavailable):
            self.cluster.stop("immediate")
        folders.remove_own(self.folder)

    def make_place(self) -> None:
        """Create the directory that holds the data directory."""
        self.directory.mkdir(parents=True)
        self.give_place()

    def give_place(self) -> None:
        """Give the directory to the account that runs the server."""
        account = self.cluster.account
        self.directory.chmod(0o755)
        if account is not None:
            os.chown(self.directory, account.pw_uid, account.pw_gid)

    def connect(self) -> psycopg.Connection[Any]:
        """Open an autocommit connection to the maintenance database."""
        return psycopg.connect(dsn_of(self), autocommit=True, connect_timeout=5)

    def set(self, **settings: str) -> None:
        """Change settings that need no restart."""
        with self.connect() as db:
            for name, value in settings.items():
                db.execute(sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value)))
            db.execute("SELECT pg_reload_conf()")

    def set_offline(self, **settings: str) -> None:
        """Change settings of a server that does not run."""
        with (self.cluster.data / "postgresql.auto.conf").open("a") as conf:
            conf.writelines(f"{name} = '{value}'\n" for name, value in settings.items())


class SmallDisk(PlainServer):
    """A server on a file system of its own, which a fault can fill. Needs root."""

    def make_place(self) -> None:
        """Mount a tmpfs as the server's directory. Raises EmbeddedUnavailable if that fails."""
        super().make_place()
        if run_for_exit_code("mount", "-t", "tmpfs", "-o", f"size={DISK_MB}m", "tmpfs", str(self.directory)) != 0:
            raise EmbeddedUnavailable(f"no tmpfs could be mounted at {self.directory}: run as root")
        self.give_place()

    @property
    def _ballast(self) -> Path:
        return self.directory / "ballast"

    def fill_disk(self, leave_kb: int = 0) -> None:
        """Fill the disk until at most `leave_kb` KB are free."""
        with self._ballast.open("ab", buffering=0) as ballast, contextlib.suppress(OSError):
            while (free := self.free_kb() - leave_kb) > 0:
                ballast.write(bytes(min(free, 1024) * 1024))

    def free_kb(self) -> int:
        """Return the free space, in KB."""
        found = os.statvfs(self.directory)
        return found.f_bavail * found.f_frsize // 1024

    def make_room(self) -> None:
        """Free the space that `fill_disk` took."""
        self._ballast.unlink(missing_ok=True)

    def remove(self) -> None:
        """Stop the server, unmount its file system, and delete its folder."""
        self.make_room()
        with contextlib.suppress(EmbeddedUnavailable):
            self.cluster.stop("immediate")
        run_for_exit_code("umount", "--lazy", str(self.directory))
        super().remove()


class FakeClock(PlainServer):
    """A server whose clock can be moved. Needs a C compiler."""

    def __init__(self, folder: Path, binaries: Path | None = None) -> None:
        self.clock = Clock(folder / "clock")
        super().__init__(folder, binaries, environment=self.clock.environment)


class Pair:
    """A primary and a streaming standby.

    `dsn` names the primary first, then the standby. Clients use the one that accepts writes.
    """

    def __init__(self, folder: Path, binaries: Path | None = None) -> None:
        streaming = {"max_wal_senders": "8", "wal_keep_size": "256MB", "hot_standby": "on"}
        self.folder = folder
        self.primary = PlainServer(folder, binaries, settings=streaming)
        self.standby = PlainServer(folder, binaries, name="standby", settings=streaming)
        self.dsn = dsn_of_all(self.primary, self.standby)

    @property
    def pid(self) -> int:
        """Return the primary's postmaster process id."""
        return self.primary.pid

    @property
    def log(self) -> Path:
        """Return the path of the primary's log."""
        return self.primary.log

    def start(self) -> None:
        """Start both; the standby is created from a base backup."""
        self.primary.start()
        if not self.standby.directory.exists():
            self._back_up()
        self.standby.start()

    def stop(self, mode: StopMode = "immediate") -> None:
        """Stop the primary."""
        self.primary.stop(mode)

    def remove(self) -> None:
        """Stop both and delete their folder."""
        with contextlib.suppress(EmbeddedUnavailable):  # first: removing the primary deletes the folder of both
            self.standby.stop("immediate")
        self.primary.remove()

    def _back_up(self) -> None:
        self.standby.make_place()
        data = self.standby.cluster.data
        source = f"{dsn_of(self.primary)}&application_name={self.standby.name}"
        code, output = self.primary.cluster.run("pg_basebackup", "-D", str(data), "-d", source, "-R", "-c", "fast")
        if code != 0:
            raise EmbeddedUnavailable(f"pg_basebackup failed: {output.strip()}")
        for left in ("server.log", ".s.PGSQL.5432", ".s.PGSQL.5432.lock"):
            (data / left).unlink(missing_ok=True)

    def wait_for_standby(self, wait: bool = True) -> None:
        """Make each commit wait until the standby has written it; with `wait=False`, make none wait."""
        self.primary.set(synchronous_standby_names=self.standby.name if wait else "")

    def cut_stream(self) -> None:
        """Stop replication: the standby lacks what the primary commits from now on."""
        self.standby.set(primary_conninfo="host=/nowhere")

    @contextmanager
    def look_back(self) -> Iterator[None]:
        """Start the old primary for the block, read-only, so that no client takes it for the primary."""
        self.primary.set_offline(default_transaction_read_only="on")
        self.primary.start()
        try:
            yield
        finally:
            self.primary.stop("fast")
            self.primary.set_offline(default_transaction_read_only="off")

    def promote(self) -> None:
        """Promote the standby and wait until it is a primary. Raises EmbeddedUnavailable if it is not after 60 s."""
        with self.standby.connect() as db:
            done = db.execute("SELECT pg_promote(true, 60)").fetchone()
        if not done or not done[0]:
            raise EmbeddedUnavailable(f"the standby was not promoted; its log: {self.standby.log}")


KINDS = {"plain": PlainServer, "tmpfs": SmallDisk, "clock": FakeClock, "standby": Pair}


def dsn_of(server: PlainServer) -> str:
    """Return a DSN for this server only, primary or standby."""
    return f"postgresql://postgres@/postgres?host={quote(str(server.cluster.data), safe='')}&port=5432"


def dsn_of_all(*servers: PlainServer) -> str:
    """Return a DSN that names the servers in this order; clients use the first that accepts writes."""
    hosts = ",".join(quote(str(server.cluster.data), safe="") for server in servers)
    ports = ",".join("5432" for _ in servers)
    return f"postgresql://postgres@/postgres?host={hosts}&port={ports}&target_session_attrs=read-write"


def has_embedded_major(binaries: Path) -> bool:
    """Check whether these binaries are of the major version of the embedded wheel."""
    done = subprocess.run([binaries / "postgres", "--version"], check=True, capture_output=True, text=True)
    return f" {MAJOR}." in done.stdout


def can_mount() -> bool:
    """Check whether this process may mount file systems."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as place:
        return (
            run_for_exit_code("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", place) == 0
            and run_for_exit_code("umount", place) == 0
        )


def run_for_exit_code(*command: str) -> int:
    """Run a system program and return its exit code, or 127 if there is no such program."""
    try:
        return subprocess.run(command, check=False, capture_output=True).returncode
    except OSError:
        return 127
