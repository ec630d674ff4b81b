"""The names of tasks in a module that is run as the program, and what importing pgsched loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT


@pytest.mark.long
def test_a_module_run_as_the_program_names_its_tasks_as_if_it_were_imported(tmp_path: Path) -> None:
    package = tmp_path / "shop"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "tasks.py").write_text(
        "from pgsched import App\napp = App('test')\n@app.task\ndef pay(): ...\nprint(pay.name)\n"
    )
    for command in (["-m", "shop.tasks"], ["shop/tasks.py"], ["-c", "import shop.tasks"]):
        shown = subprocess.run(
            [sys.executable, *command], cwd=tmp_path, env={"PYTHONPATH": f"{ROOT}:{tmp_path}"}, capture_output=True
        )
        assert shown.stdout == b"shop.tasks.pay\n", shown.stderr


def test_importing_pgsched_imports_nothing_else() -> None:
    code = "import sys, pgsched; print(*[m for m in sys.modules if m.startswith(('pgsched.', 'psycopg', 'asyncio'))])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "\n"
