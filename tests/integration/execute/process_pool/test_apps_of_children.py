"""How a child process finds and imports the app whose task it runs."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgsched import App, TaskError
from pgsched.app.app_location import locate_app
from pgsched.app.base import import_app
from pgsched.core.model import Result
from pgsched.execute.process_pool.pool import Pool
from tests.support.executing import claim
from tests.support.paths import ROOT

pytestmark = pytest.mark.scram


def write_app(folder: Path, text: str) -> None:
    (folder / "shop.py").write_text(f"from pgsched import App\napp = App('test')\n{text}\n")


BUYS = "@app.task(name='buy', run_in='process')\ndef buy(): return __name__\n"


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("then", "result", "error"),
    [
        ("import no_such_module", Result.FAILED, "ModuleNotFoundError: No module named 'no_such_module'"),
        ("1 / 0", Result.FAILED, "ZeroDivisionError: division by zero"),
        ("import sys; sys.exit(4)", Result.FAILED, "SystemExit: 4"),
        ("import os; os._exit(4)", Result.CRASHED, "exit code 4"),
        ("del app", Result.FAILED, "InputError: app: module shop has no attribute 'app'"),
        ("app.tasks.clear()", Result.FAILED, "has no task named 'buy'"),
        ("import time; time.sleep(3600)", Result.FAILED, "took more than 2 s to import shop:app"),
    ],
)
def test_an_app_that_a_child_cannot_import_fails_the_attempt(
    then: str, result: Result, error: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_app(tmp_path, BUYS + f"import os\nif os.environ.get('BROKEN'):\n    {then}")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)
    shop = import_app("shop:app")
    monkeypatch.setenv("BROKEN", "1")

    async def main() -> None:
        pool = Pool(1, shop, start_s=2 if "took more" in error else 60)
        outcome = await pool.execute(claim("task", "buy"), None)
        assert (outcome.result, outcome.retry) == (result, True)
        assert outcome.error is not None and outcome.error.endswith(error), outcome.error
        if "ZeroDivision" in error:
            assert outcome.traceback is not None and "shop.py" in outcome.traceback
        await pool.close()

    asyncio.run(main())
    monkeypatch.delitem(sys.modules, "shop")


PROGRAM = (
    BUYS
    + """
def work():
    import asyncio
    from pgsched.execute.python.executor import PythonExecutor
    from tests.support.executing import claim, execute
    outcome = execute(PythonExecutor(app.tasks, 1, app), claim("task", "buy"))
    print(outcome.value or outcome.error)
"""
)


def output_of(folder: Path, *command: str) -> str:
    paths = os.pathsep.join((str(ROOT), *(entry for entry in sys.path if entry)))
    ended = subprocess.run(
        [sys.executable, *command], cwd=folder, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True,
        timeout=60,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.long
def test_an_app_of_the_main_module_is_imported_by_its_real_name(tmp_path: Path) -> None:
    write_app(tmp_path, PROGRAM + "if __name__ == '__main__':\n    work()")
    assert output_of(tmp_path, "shop.py") == "shop\n"
    assert output_of(tmp_path, "-m", "shop") == "shop\n"


@pytest.mark.long
def test_a_child_refuses_a_main_module_that_starts_a_worker_when_imported(tmp_path: Path) -> None:
    write_app(tmp_path, PROGRAM + "work()")
    assert "put that under `if __name__ == '__main__':`" in output_of(tmp_path, "shop.py")


@pytest.mark.long
def test_an_app_that_no_importable_module_holds_is_refused(tmp_path: Path) -> None:
    write_app(tmp_path, PROGRAM + "work()")
    said = output_of(tmp_path, "-c", (tmp_path / "shop.py").read_text())
    assert "a child process must import the app, but no module that can be imported holds it" in said
    with pytest.raises(TaskError, match="no module that can be imported holds it"):
        locate_app(App("test"))
    with pytest.raises(TaskError):
        locate_app(None)


def test_a_child_uses_the_database_that_the_worker_was_given() -> None:
    shop = App("test", dsn="postgresql://here/it")
    shop.path = "shop:app"
    assert locate_app(shop).dsn == "postgresql://here/it"
