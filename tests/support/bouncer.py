"""A PgBouncer for tests: on loopback, under an account without rights, in front of a test's database.

PgBouncer accepts every login, unless the test's database asks for a password. Then it asks for the same password, by
SCRAM. `PGSCHED_TEST_PGBOUNCER` names another binary than the installed one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from pgsched.db.embedded.server import server_account
from tests.support.waiting import wait_until

BINARY = os.environ.get("PGSCHED_TEST_PGBOUNCER") or shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin")
DEFAULTS = {
    "listen_addr": "127.0.0.1",
    "auth_type": "any",
    "pool_mode": "transaction",
    "default_pool_size": 10,
    "max_client_conn": 500,
    "unix_socket_dir": "",
    "admin_users": "tests",
    "ignore_startup_parameters": "extra_float_digits",
}


class Bouncer:
    """One PgBouncer process; `dsn` connects through it."""

    def __init__(self, folder: Path, dsn: str, settings: dict[str, object]) -> None:
        self.folder = folder
        self.server = conninfo_to_dict(dsn)
        self.settings = DEFAULTS | settings
        self.log = folder / "pgbouncer.log"
        self.process: subprocess.Popen[bytes] | None = None
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            self.port = found.getsockname()[1]
        login = {name: self.server[name] for name in ("user", "password") if name in self.server}
        self.dsn = make_conninfo("", host="127.0.0.1", port=self.port, dbname="pooled", **login)

    def write(self) -> Path:
        """Write the configuration file, and a file with the password if there is one; return the former's path."""
        target = make_conninfo("", **{k: v for k, v in self.server.items() if k in ("host", "port", "dbname", "user")})
        lines = ["[databases]", f"pooled = {target}", "[pgbouncer]", f"listen_port = {self.port}"]
        if password := self.server.get("password"):
            users = self.folder / "users.txt"
            quoted = str(password).replace('"', '""')
            users.write_text("".join(f'"{user}" "{quoted}"\n' for user in (self.server["user"], "tests")))
            users.chmod(0o644)
            self.settings |= {"auth_type": "scram-sha-256", "auth_file": users}
        file = self.folder / "pgbouncer.ini"
        file.write_text("\n".join(lines + [f"{name} = {value}" for name, value in self.settings.items()]) + "\n")
        return file

    def start(self) -> None:
        assert BINARY is not None
        account = server_account()
        file = self.write()
        who = {} if account is None else {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [BINARY, str(file)], stdin=subprocess.DEVNULL, stdout=log, stderr=log, **who
            )  # type: ignore[call-overload]
        wait_until(self.answers, 15, "PgBouncer to answer")

    def answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1):
            return True
        return False

    def stop(self) -> None:
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(signal.SIGKILL)
            self.process.wait()

    def counts_statements(self) -> bool:
        """Return whether this PgBouncer tracks prepared statements (max_prepared_statements above 0)."""
        said = {row["key"]: row["value"] for row in self.ask("SHOW CONFIG")}
        return int(str(said.get("max_prepared_statements") or 0)) > 0

    def ask(self, command: str) -> list[dict[str, object]]:
        """Send a command to PgBouncer's console, and return its rows."""
        dsn = make_conninfo(self.dsn, dbname="pgbouncer", user="tests")
        with psycopg.connect(dsn, autocommit=True, cursor_factory=psycopg.ClientCursor) as conn:
            cursor = conn.execute(command.encode())
            names = [column.name for column in cursor.description or []]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()] if names else []


@contextlib.contextmanager
def bouncing(dsn: str, **settings: object) -> Iterator[Bouncer]:
    """Yield a running PgBouncer in front of `dsn`, and print the end of its log afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="pgsched-bouncer-"))
    folder.chmod(0o755)
    bouncer = Bouncer(folder, dsn, settings)
    try:
        bouncer.start()
        yield bouncer
    finally:
        bouncer.stop()
        print(f"--- pgbouncer\n{bouncer.log.read_text()[-3000:]}" if bouncer.log.exists() else "--- pgbouncer: no log")
        shutil.rmtree(folder, ignore_errors=True)
