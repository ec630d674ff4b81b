"""Command lines in tests: in this process for speed, in a process of their own where that matters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pgsched.cli import run

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Said:
    """What a command line ended with."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the caller's environment reaches a test."""
    for name in [*os.environ]:
        if (name.startswith("PGSCHED_") and not name.startswith("PGSCHED_TEST_")) or name in ("DATABASE_URL", "PGDATA"):
            monkeypatch.delenv(name)


@pytest.fixture
def pgsched(dsn: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Runs a command line on the test's database."""
    monkeypatch.setenv("PGSCHED_DSN", dsn)

    def call(*args: str) -> Said:
        capsys.readouterr()  # what the test itself has printed
        code = run([*args])
        out, err = capsys.readouterr()
        return Said(code, out, err)

    return call


@pytest.fixture
def process() -> Callable[..., Said]:
    """Runs a command line in a process of its own."""

    def call(*args: str, stdin: str | None = None, **env: str) -> Said:
        done = subprocess.run(
            [sys.executable, "-m", "pgsched", *args],
            cwd=ROOT, env=os.environ | env, input=stdin, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        return Said(done.returncode, done.stdout, done.stderr)

    return call
