"""The matrix of executors and cases: the run for each pair, and what the database must say afterwards.

A cell is one run. A pair without a cell: the case has no meaning for that executor.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import psycopg
from psycopg.types.json import Jsonb

from tests.support.http.answering import Server, answer, never

ALL = ("--app", "tests.support.apps.matrix:app", "--allow", "task,command,shell,sql,http", "--http-allow",
       "127.0.0.1", "--concurrency", "60")  # fmt: skip

PLACES = ("loop", "thread", "process")
KINDS = (*PLACES, "command", "shell", "sql", "http")
HOSTILE = ["; touch {canary}", "$(touch {canary})", "`touch {canary}`", "-rf", "--help", "two\nlines", "'\"\\", "",
           "%s %(v)s %%", "*", "\u202eé☃", "' OR 1=1; DROP TABLE seen; --"]  # fmt: skip
ASLEEP = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'"
PRINT = "import json, sys; print(json.dumps(sys.argv[1:])); sys.exit(1)"
FLOOD = 5_000_000


@dataclass(frozen=True)
class Cell:
    """One run and what must become of it.

    `outcome`: the outcome of its attempt; None: the attempt leaves no row.
    `error`, `log`: patterns that the attempt's error and output must match.
    `result`: a check of the result.
    """

    kind: str
    task: str
    args: Any = field(default_factory=dict)
    state: str = "succeeded"
    outcome: str | None = None
    error: str = ""
    log: str = ""
    result: Callable[[Any], bool] = lambda _: True
    timeout: str | None = None

    def insert(self, db: psycopg.Connection) -> int:
        row = db.execute(
            "INSERT INTO pgsched.runs (kind, task, args, timeout, max_attempts, kill_after)"
            " VALUES (%s, %s, %s, %s, 1, '1 second') RETURNING id",
            [self.kind, self.task, Jsonb(self.args), self.timeout],
        ).fetchone()
        assert row is not None
        return int(row[0])

    def wrong(self, db: psycopg.Connection, run_id: int) -> Iterator[str]:
        """Yield each difference from what is expected."""
        row = db.execute(
            "SELECT r.state, r.result, a.outcome, a.error, a.log_tail FROM pgsched.runs r"
            " LEFT JOIN pgsched.attempts a ON a.run_id = r.id WHERE r.id = %s", [run_id],
        ).fetchone()  # fmt: skip
        assert row is not None
        state, result, outcome, error, log = row
        if (state, outcome) != (self.state, self.outcome):
            yield f"{state} by {outcome}, not {self.state} by {self.outcome} ({error})"
        if not re.search(self.error, error or "", re.DOTALL):
            yield f"the error is {error!r}, not {self.error!r}"
        if not re.search(self.log, log or "", re.DOTALL):
            yield f"the log is {(log or '')[:200]!r}, not {self.log!r}"
        if not self.result(result):
            yield f"the result is {str(result)[:200]}"


def dead(kind: str, task: str, args: Any = None, error: str = "", log: str = "") -> Cell:
    """Return a cell whose only attempt fails."""
    return Cell(kind, task, {} if args is None else args, "dead", "failed", error, log)


def is_(value: Any) -> Callable[[Any], bool]:
    return lambda result: bool(result == value)


class Table:
    """The cells of one test, with its folder and its HTTP server."""

    def __init__(self, folder: Path, server: Server) -> None:
        self.folder = folder
        self.server = server
        self.hostile = [text.replace("{canary}", str(folder / "canary")) for text in HOSTILE]
        self.canary = folder / "canary"

    def settled(self) -> dict[tuple[str, str], Cell]:
        """Return the cells whose runs end by themselves."""
        table: dict[tuple[str, str], Cell] = {}
        for place in PLACES:
            for case, cell in self.python(place).items():
                table[case, place] = cell
        for kind in ("command", "shell", "sql", "http"):
            for case, cell in getattr(self, kind)().items():
                table[case, kind] = cell
        return table

    def python(self, place: str) -> dict[str, Cell]:
        task = f"{place}."
        return {
            "success": Cell("task", task + "ok", result=is_("done")),
            "failure": dead("task", task + "fail", error="ValueError: no luck"),
            "flood": Cell("task", task + "flood", result=is_("done")),
            "not utf-8": dead("task", task + "not_utf8", error=r"ValueError: caf\?\ufffd$"),
            "error text": dead("task", task + "unprintable", error="Unprintable: .its text raises RuntimeError"),
            "not json": dead("task", task + "not_json", error="the result .dict. .*"),
            "hostile": Cell("task", task + "echo", {"values": self.hostile}, result=is_(self.hostile)),
        }

    def command(self) -> dict[str, Cell]:
        def python(code: str, *args: str) -> list[str]:
            return ["-c", code, *args]

        write = "import os; os.write(1, b'\\xff\\x00caf\\xe9\\n'); os._exit(1)"
        flood = f"import os; os.write(1, b'first'); os.write(1, b'x' * {FLOOD})"
        return {
            "success": Cell("command", "true", [], result=is_({"exit_code": 0})),
            "failure": dead("command", "false", [], "exit code 1"),
            "flood": Cell("command", sys.executable, python(flood)),
            "not utf-8": dead("command", sys.executable, python(write), "exit code 1: ", "\ufffd\ufffdcaf\ufffd"),
            "error text": dead("command", sys.executable, python("raise SystemExit('\\33[2J' + 'x' * 100000)"),
                               "^.{,1000}$"),
            "hostile": dead("command", sys.executable, python(PRINT, *self.hostile), log="DROP TABLE seen"),
        }  # fmt: skip

    def shell(self) -> dict[str, Cell]:
        env = {"env": {f"V{n}": text for n, text in enumerate(self.hostile)}}
        line = " ".join(f'"$V{n}"' for n in range(len(self.hostile)))
        return {
            "success": Cell("shell", "exit 0", result=is_({"exit_code": 0})),
            "failure": dead("shell", "echo reason >&2; exit 3", error="exit code 3: reason"),
            "flood": Cell("shell", f"yes | head -c {FLOOD}; yes | head -c {FLOOD} >&2"),
            "not utf-8": dead("shell", r"printf '\377\000caf\351\n'; exit 1", log="\ufffd\ufffdcaf\ufffd"),
            "error text": dead("shell", r"printf '\033[2J'; yes x | head -c 100000 | tr -d '\n'; exit 1",
                               error="^.{,1000}$"),
            "hostile": dead("shell", f"printf '<%s>' {line}; exit 1", env, log="DROP TABLE seen"),
        }  # fmt: skip

    def sql(self) -> dict[str, Cell]:
        rows = "SELECT repeat('x', 100) FROM generate_series(1, 50000)"
        notices = "DO $$ BEGIN FOR i IN 1..20000 LOOP RAISE NOTICE 'step %', i; END LOOP; END $$"
        values = ", ".join(f"(%(v{n})s)" for n in range(len(self.hostile)))
        return {
            "success": Cell("sql", "SELECT 1", result=is_({"rowcount": 1})),
            "failure": dead("sql", "SELECT 1/0", error="DivisionByZero: division by zero"),
            "flood": Cell("sql", f"{rows}; {notices}"),
            "not utf-8": dead("sql", r"SELECT convert_from('\xff', 'UTF8')", error="invalid byte sequence"),
            "error text": dead("sql", "DO $$ BEGIN RAISE EXCEPTION USING MESSAGE = repeat('x', 1000000); END $$",
                               error="^.{,1000}$"),
            "not json": Cell("sql", "SELECT 'NaN'::float8, now(), '\\x00'::bytea"),
            "hostile": Cell("sql", f"INSERT INTO public.seen VALUES {values}",
                            {f"v{n}": text for n, text in enumerate(self.hostile)}),
        }  # fmt: skip

    def http(self) -> dict[str, Cell]:
        self.server.answers |= {
            "/ok": answer(body="fine"),
            "/fail": answer("404 Not Found", "nobody here"),
            "/flood": endless,
            "/bytes": answer(body=b"\xff\0caf\xe9", content_type="text/plain"),
            "/error": answer("500 \x1b[2J\xff", "x" * 1_000_000),
            "/json": answer(body='{"half": ', content_type="application/json"),
        }
        url = self.server.url
        return {
            "success": Cell("http", url("/ok"), result=lambda got: got["body"] == "fine"),
            "failure": dead("http", url("/fail"), error="HTTP 404 Not Found: nobody here"),
            "flood": Cell("http", url("/flood"), result=lambda got: got["body_cut"] is True),
            "not utf-8": Cell("http", url("/bytes"), result=lambda got: "caf\ufffd" in got["body"]),
            "error text": dead("http", url("/error"), error="^.{,1000}$"),
            "not json": Cell("http", url("/json"), result=lambda got: got["body"] == '{"half": '),
            "hostile": Cell("http", url("/ok"), {"json": self.hostile, "params": {"q": self.hostile}},
                            result=lambda _: self.has_arrived_by_http()),
        }  # fmt: skip

    def has_arrived_by_http(self) -> bool:
        """Check whether the hostile texts arrived as they are, in the body and in the query."""
        request = next(one for one in self.server.seen if one.body)
        query = parse_qs(request.path.partition("?")[2], keep_blank_values=True)
        return json.loads(request.body) == self.hostile and query == {"q": self.hostile}

    def hanging(self, case: str, **more: Any) -> dict[str, Cell]:
        """Return a run of each kind that lasts until it is stopped; commands and shell lines have child processes."""
        self.server.answers[f"/{case}"] = never
        script = f"timeout 3600 sleep 3600 & sleep 3600 & touch {self.on(case, 'command')}; sleep 3600"
        loop, thread, process = (
            Cell("task", f"{place}.wait", {"on": str(self.on(case, place))}, **more) for place in PLACES
        )
        return {
            "loop": loop,
            "thread": thread,
            "process": process,
            "command": Cell("command", "sh", ["-c", script], **more),
            "shell": Cell("shell", f"set -m; sleep 3600 & touch {self.on(case, 'shell')}; sleep 3600", **more),
            "sql": Cell("sql", f"SELECT '{case}', pg_sleep(3600)", **more),
            "http": Cell("http", self.server.url(f"/{case}"), **more),
        }

    def gated(self) -> dict[str, Cell]:
        """Return a run of each kind that notes its start, and lasts until the gates are open.

        The SQL run writes to the table `seen`.
        """
        gate = self.folder / "gate"
        line = {k: f"printf . >> {self.on('start', k)}; until [ -e {gate} ]; do sleep 0.05; done" for k in KINDS}
        wait = """DO $$ BEGIN
            INSERT INTO public.seen VALUES ('by sql');
            WHILE NOT EXISTS (SELECT FROM public.gates) LOOP PERFORM pg_sleep(0.05); END LOOP;
        END $$"""
        self.server.answers["/gated"] = self.until_open
        loop, thread, process = (
            Cell("task", f"{place}.gated", {"gate": str(gate), "on": str(self.on("start", place))}) for place in PLACES
        )
        return {
            "loop": loop,
            "thread": thread,
            "process": process,
            "command": Cell("command", "sh", ["-c", line["command"]]),
            "shell": Cell("shell", line["shell"]),
            "sql": Cell("sql", wait),
            "http": Cell("http", self.server.url("/gated")),
        }

    def starts(self, db: psycopg.Connection) -> int | None:
        """Return how often each gated run was started; None while the numbers differ."""
        counts = {len(file.read_text()) if file.exists() else 0
                  for file in (self.on("start", kind) for kind in (*PLACES, "command", "shell"))}  # fmt: skip
        counts.add(sum(seen.path == "/gated" for seen in self.server.seen))
        sessions = db.execute(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE '%public.gates%'"
            " AND pid <> pg_backend_pid()"
        ).fetchone()
        assert sessions is not None
        counts.add(sessions[0])
        return counts.pop() if len(counts) == 1 else None

    def open_gates(self, db: psycopg.Connection) -> None:
        """Let all gated runs end."""
        db.execute("INSERT INTO public.gates VALUES ('open')")
        (self.folder / "gate").touch()

    def until_open(self, link: socket.socket) -> None:
        while not (self.folder / "gate").exists():
            time.sleep(0.02)
        link.sendall(answer(body="fine"))

    def on(self, case: str, kind: str) -> Path:
        """Return the path of the file that shows that a run of this kind has begun."""
        return self.folder / f"{case}.{kind}"

    def all_on(self, db: psycopg.Connection, case: str, sleepers: int = 1) -> bool:
        """Return whether all hanging runs of a case have begun."""
        files = [self.on(case, kind) for kind in (*PLACES, "command", "shell")]
        asleep = db.execute(ASLEEP).fetchone()
        asked = any(seen.path == f"/{case}" for seen in self.server.seen)
        return all(file.exists() for file in files) and asleep == (sleepers,) and asked


def endless(link: socket.socket) -> None:
    """Send an answer without end, until the client closes the connection."""
    link.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
    while True:
        link.sendall(b"x" * 65536)


def carrying(*marks: str) -> list[int]:
    """Return the live processes that have one of these texts in their environment, even if their parent has changed."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environ = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
        except OSError:  # the process has ended
            continue
        if any(mark.encode() in environ for mark in marks):
            found.append(int(entry.name))
    return found
