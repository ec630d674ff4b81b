"""docs/how-to/workers.md explains every flag and every exit code of `pgsched worker`."""

from __future__ import annotations

import typer.main

from pgsched.cli import make_app
from pgsched.errors import MemoryReached
from pgsched.worker.supervision.supervisor import HOPELESS
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "how-to" / "workers.md").read_text()
ELSEWHERE = {"--dsn", "--leader", "--help"}


def test_every_flag_of_a_worker_is_explained() -> None:
    command = typer.main.get_command(make_app()).commands["worker"]  # type: ignore[attr-defined]
    flags = {name for option in command.params for name in option.opts if name.startswith("--")} - ELSEWHERE
    assert len(flags) > 10
    assert {flag for flag in flags if f"| `{flag}` |" not in PAGE} == set()


def test_every_exit_code_is_explained() -> None:
    table = PAGE[PAGE.index("## Exit codes") : PAGE.index("## systemd")]
    first_cells = " ".join(line.split("|")[1] for line in table.splitlines() if line.startswith("|"))
    codes = {0, 1, 3, 4, MemoryReached.exit_code, *HOPELESS}
    assert codes <= {int(word) for word in first_cells.replace(",", " ").split() if word.isdigit()}
