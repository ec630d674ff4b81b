"""Play a page of the docs from top to end as a reader would: each block in turn, on one database, in one folder.

Invariant: each block is executed, or checked by a parser if it is no program. A command that is not run is listed with
the reason in `not_run.py`. The outcome of each block is kept; a block that fails does not stop the next ones.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import sys
import time
import tomllib
import traceback
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from pgsched import App
from pgsched.db.queries.jobs import jobs
from pgsched.testing import drain
from tests.support.docs.languages import EXAMPLES, uri
from tests.support.docs.not_run import NOT_RUN, NOT_RUN_COMMANDS
from tests.support.docs.parsing import PARSERS
from tests.support.docs.reading import Block, Page
from tests.support.docs.shell import SERVER, Failed, Shell, commands, endless, free_port, words, words_of_pgsched
from tests.support.docs.stages import Stage
from tests.support.paths import ROOT

FILE = re.compile(r"# (\S+\.(?:py|toml|timer|service|crontab|yaml))\n")
UP = "SELECT count(*) > 0 FROM pgsched.workers WHERE stopped_at IS NULL AND started_at > %s"
LOOKS = ("run list", "run show", "run logs", "run tree", "job list", "status", "explain")
LEADS = "SELECT count(*) > 0 FROM pgsched.leader WHERE resigned_at IS NULL AND elected_at > %s"
FOLDERS = {"sql": "psql", "js": "node", "ruby": "ruby"}
# The names that the pages give to their modules.
MODULES = ("shop", "myproject", "package", "office", "tasks", "reports", "invoices")


class Play:
    """One page that is being played."""

    def __init__(self, page: Page, stage: Stage, dsn: str, folder: Path) -> None:
        self.page, self.stage, self.dsn, self.folder = page, stage, uri(dsn), folder
        self.shell = Shell(folder, self.dsn)
        self.db = psycopg.connect(dsn, autocommit=True)
        self.names: dict[str, Any] = {}
        self.ports: dict[str, int] = {}
        self.used: set[str] = set()  # the entries of NOT_RUN that the page has
        self.outcomes: dict[int, Exception | None] = {}  # by the line of the block; None: the block works
        self.apps: list[App] = []  # the apps that the page's Python has made, the oldest first
        self.runner = asyncio.Runner()

    # ---- the whole page

    def play(self) -> None:
        with self._place():
            self._prepare()
            for block in self.page.blocks:
                self.outcomes[block.line] = self._guarded(lambda block=block: self._play(block))
            if self.page.blocks:  # a failure at the page's end is reported for its last block
                self.outcomes[block.line] = self.outcomes[block.line] or self._guarded(self._end)

    @contextmanager
    def _place(self) -> Iterator[None]:
        """Let Python find modules in the page's folder; restore this process's environment and modules afterwards."""
        before = {name: os.environ.get(name) for name in ("PGSCHED_DSN", "DATABASE_URL")}
        path, modules = [*sys.path], {*sys.modules}
        os.environ["PGSCHED_DSN"] = self.dsn
        os.environ.pop("DATABASE_URL", None)
        sys.path.insert(0, str(self.folder))
        try:
            yield
        finally:
            self.shell.kill()
            self.db.close()
            for app in self.apps:
                app.close()
            self.runner.close()
            sys.path[:] = path
            for name in {*sys.modules} - modules:
                if name.partition(".")[0] in MODULES or name.startswith("page_"):
                    del sys.modules[name]
            for name, value in before.items():
                os.environ.pop(name, None) if value is None else os.environ.update({name: value})

    def _prepare(self) -> None:
        for name, text in self.stage.files.items():
            (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).write_text(text)
        if self.stage.sql:
            self.db.execute(self.stage.sql.encode())
        module = types.ModuleType(f"page_{Path(self.page.name).stem}")
        sys.modules[module.__name__] = module
        self.names = module.__dict__
        self.names.update(self.stage.names(self) if self.stage.names else {})
        self._note_apps()
        for command in self.stage.beside:
            self._command(command)

    def _end(self) -> None:
        """Stop what was started, run the handlers, and check what the stage expects."""
        self.shell.stop()
        for app in self.apps:
            jobs.declare(self.db, app.declared_jobs, app.name, remove=True)
        if self.stage.run:
            self.stage.run(self)
        else:
            for app in self.apps:
                ended = drain(app, scheduled=True) if app.tasks else {}
                if set(ended) - {"succeeded"}:
                    raise Failed(f"the page's runs ended so: {ended} {self._errors()}")
        if self.stage.after:
            self.stage.after(self)

    def _errors(self) -> list[Any]:
        return self.db.execute("SELECT task, error FROM pgsched.runs WHERE state = 'dead'").fetchall()

    # ---- one block

    def _guarded(self, act: Any) -> Exception | None:
        try:
            act()
        except Exception as error:
            return error
        except BaseException as error:  # failures and skips of pytest, and SystemExit
            return Failed(f"{type(error).__name__}: {error}")
        return None

    def _play(self, block: Block) -> None:
        if block.page == "docs/reference/sql.md" or block.language in ("js", "ruby"):
            return stands_in_a_program(block)
        if named := FILE.match(block.text):
            (self.folder / named[1]).parent.mkdir(exist_ok=True)
            (self.folder / named[1]).write_text(block.text)
            if named[1].startswith("test_"):
                self.shell.run(f"pytest -q -p no:cacheprovider -p no:xdist {named[1]}")
        if block.language in PARSERS:
            return PARSERS[block.language](block.text, self.folder)
        if named:
            return ast.parse(block.text) and None
        plays = {"sh": self._sh, "console": self._console, "sql": self._sql, "python": self._python}
        return plays[block.language](block)

    def _is_not_run(self, command: str, page: str) -> bool:
        key = page, " ".join(words(command))
        if key in NOT_RUN:
            self.used.add(key[1])
        return key in NOT_RUN

    def _sql(self, block: Block) -> None:
        self.db.execute(self._put(block.text).encode())

    def _python(self, block: Block) -> None:
        source = "\n" * (block.line - 1) + block.text
        ast.parse(source)
        if block.before:
            return
        if self.stage.apart:
            (self.folder / "page.py").write_text(source)
            self.shell.run("python page.py")
            return
        code = compile(source, str(block.page), "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        if code.co_flags & inspect.CO_COROUTINE:

            async def awaited() -> None:
                await eval(code, self.names)

            self.runner.run(awaited())
        else:
            exec(code, self.names)
        self._note_apps()

    def _note_apps(self) -> None:
        found = [value for value in self.names.values() if isinstance(value, App)]
        self.apps += [app for app in found if app not in self.apps]

    def _sh(self, block: Block) -> None:
        for offset, command in commands(block.text):
            if not self._is_not_run(command, block.page):
                try:
                    self._command(command)
                except Failed as error:
                    raise Failed(f"{block.page}:{block.line + offset}: {error}") from error

    def _command(self, command: str, codes: tuple[int, ...] = (0,)) -> str:
        """Run a command; return what it printed, or what its last part printed if `&&` joins several."""
        said = ""
        for part in self._put(command).split(" && "):
            if part.startswith(tuple(NOT_RUN_COMMANDS)):
                installs(part)
            elif kind := endless(part):
                self._start(kind, part)
            else:
                said = self.shell.run(part, codes)
        return said

    def _console(self, block: Block) -> None:
        """Run the commands after `$ `, and compare their output: `…` stands for any text, a number for any number."""
        parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
        if parts[0]:
            raise Failed("output before the first command")
        for part in parts[1:]:
            lines = part.splitlines()
            (_, command), *_ = commands(part)
            expected = lines[command.count("\n") + 1 :]
            look = " ".join(words_of_pgsched(command)[1:3]).startswith(LOOKS)
            deadline = time.monotonic() + (30 if look else 0)
            while True:  # a reader would repeat a command that shows a state
                try:
                    compare(command, expected, self._command(command, (0, 1)).splitlines())
                    break
                except Failed:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.3)

    # ---- commands that run until they are stopped

    def _start(self, kind: str, command: str) -> None:
        row = self.db.execute("SELECT clock_timestamp()").fetchone()
        if kind == "web":
            port = self.ports["SHOWN"] = free_port()
            self.ports.setdefault("8080", port)
            kind = "web" if port != self.ports["8080"] else "the first web"
            command = command.replace("pgsched web", f"pgsched web --port {port}")
            self.shell.start(kind, command, lambda: listens(port))
        elif kind == SERVER:
            port = self.ports["8000"] = free_port()
            self.shell.start(kind, command.replace("8000", str(port)), lambda: listens(port))
        elif kind == "worker":
            self.shell.start(kind, command, lambda: self._holds(UP, row))
        elif kind == "top":
            self.shell.start(kind, command, lambda: b"pgsched" in (self.folder / "top.log").read_bytes())
        else:
            self.shell.start(kind, command, lambda: self._holds(LEADS, row))

    def _holds(self, query: str, values: Any) -> bool:
        return self.db.execute(query.encode(), values).fetchone() == (True,)

    def _put(self, text: str) -> str:
        """Replace what stands for the reader's own: addresses and ports."""
        for shown, real in (*self.stage.put.items(), ("postgresql://me@db.example/app", self.dsn)):
            text = text.replace(shown, real)
        for port in ("9464", "9465"):
            if f" :{port}" in text:
                text = text.replace(f" :{port}", f" 127.0.0.1:{self.ports.setdefault(port, free_port())}")
        for port in ("8080", "8000", "SHOWN"):
            text = text.replace(f"localhost:{port}", f"localhost:{self.ports.get(port, port)}")
        return text.replace(".venv/bin/pgsched demo", "pgsched demo --seconds 3")


def installs(command: str) -> None:
    """Check that pyproject.toml has the extras that pip is asked to install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"\[([\w,-]+)\]", command):
        if unknown := {*extras.split(",")} - {*project["optional-dependencies"]}:
            raise Failed(f"$ {command}\nno such extras: {unknown}")


def listens(port: int) -> bool:
    import socket

    with socket.socket() as link:
        return link.connect_ex(("127.0.0.1", port)) == 0


def stands_in_a_program(block: Block) -> None:
    """Check that a block is part of a program in sql/examples, which tests/e2e/examples runs."""
    lines = {line.strip().removesuffix(";") for line in block.text.splitlines()}
    for path in (EXAMPLES / FOLDERS[block.language]).iterdir():
        text = path.read_text(encoding="utf-8") if path.is_file() else ""
        if lines <= {line.strip().removesuffix(";") for line in text.splitlines()}:
            return
    raise Failed("these lines stand in none of sql/examples")


def compare(command: str, expected: list[str], said: list[str]) -> None:
    """Check that the printed lines contain each line of the page, in the page's order."""
    rest = iter(said)
    exactly = " --from " in command  # with --from, a command always prints the same
    for line in filter(str.strip, expected):
        if not any(re.fullmatch(pattern(line, exactly), " ".join(found.split())) for found in rest):
            raise Failed(f"$ {command}\ndid not print: {line}\nbut:\n" + "\n".join(said))


def pattern(line: str, exactly: bool) -> str:
    text = re.escape(" ".join(line.split())).replace("…", ".*")
    text = re.sub(r"is\\ queued$", "is (queued|running)", text)  # a worker may claim the run first
    return text if exactly else re.sub(r"\d+", r"\\d+", text)


def trace(error: Exception) -> str:
    """Return the error, and the lines of the page that led to it."""
    if isinstance(error, Failed):
        return str(error)
    return "".join(traceback.format_exception(error)[-6:])
