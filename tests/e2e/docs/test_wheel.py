"""The installed wheel runs a job outside the checkout, without any file of the source tree."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.support.paths import ROOT
from tests.support.waiting import wait_until

CHECKOUT = ROOT

pytestmark = pytest.mark.long


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("build")
    out = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(CHECKOUT))
    (built,) = out.glob("pgsched-*.whl")
    return built


@pytest.fixture(scope="session")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtualenv with only the wheel. It sees the installed dependencies, and needs no network."""
    place = tmp_path_factory.mktemp("elsewhere") / "env"
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", str(wheel))
    # Python reads no .pth file in a directory that another .pth file names: the editable pgsched stays invisible.
    paths = sysconfig.get_paths(vars={"base": str(place), "platbase": str(place)})
    (Path(paths["purelib"]) / "dependencies.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n")
    return place


def run(*command: str, **options: str) -> str:
    done = subprocess.run(command, cwd="/", env=environment(**options), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stdout}\n{done.stderr}"
    return done.stdout


def environment(**extra: str) -> dict[str, str]:
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PGSCHED_DSN", "DATABASE_URL")
    return {name: value for name, value in os.environ.items() if name not in hidden} | extra


def test_the_wheel_holds_pgsched_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as packed:
        tops = {name.partition("/")[0] for name in packed.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"pgsched"}


def test_the_wheel_holds_the_statements_and_the_migrations(installed: Path) -> None:
    code = (
        "import json, pgsched.errors; from pgsched.db.statements import folder; "
        "print(json.dumps([pgsched.errors.__file__, str(folder('sql')), str(folder('migrations'))]))"
    )
    package, statements, migrations = map(Path, json.loads(run(str(installed / "bin" / "python"), "-c", code)))
    for path in (package, statements, migrations):
        assert path.is_relative_to(installed)
    for name, found in (("sql", statements), ("migrations", migrations)):
        assert relative_files(found) == relative_files(CHECKOUT / name) != set()


def test_the_wheel_holds_the_pages_of_the_console(installed: Path) -> None:
    code = "import pgsched.web; print(pgsched.web.__path__[0])"
    found = Path(run(str(installed / "bin" / "python"), "-c", code).strip())
    assert found.is_relative_to(installed)
    for name in ("templates", "static"):
        held = {path.name for path in (found / name).iterdir()}
        assert held == {path.name for path in (CHECKOUT / "pgsched" / "web" / name).iterdir()} != set()


def test_pytest_finds_the_test_kit_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "from pgsched import App\nfrom pgsched.testing import record\n"
        "def test_it(pytestconfig):\n"
        "    assert pytestconfig.pluginmanager.has_plugin('pgsched')\n"
        "    with record(App('test')) as recorder:\n        assert recorder.drain() == []\n"
    )
    told = run(str(installed / "bin" / "python"), "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path))
    assert "1 passed" in told


def relative_files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.suffix in (".sql", ".py")}


@pytest.fixture
def worker(installed: Path, empty_dsn: str) -> Iterator[subprocess.Popen[str]]:
    """`pgsched worker` of the wheel on a database that `pgsched migrate` of the wheel made."""
    program = str(installed / "bin" / "pgsched")
    run(program, "migrate", PGSCHED_DSN=empty_dsn)
    command = [program, "worker", "--allow", "command", "--concurrency", "2"]
    env = environment(PGSCHED_DSN=empty_dsn)
    process = subprocess.Popen(command, cwd="/", env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_installed_wheel_runs_a_job(worker: subprocess.Popen[str], empty_dsn: str, tmp_path: Path) -> None:
    written = tmp_path / "written"
    with psycopg.connect(empty_dsn, autocommit=True) as db:
        db.execute(
            "INSERT INTO pgsched.jobs (name, kind, task, args) VALUES ('once', 'command', %s, %s)",
            [sys.executable, json.dumps(["-c", f"open({str(written)!r}, 'w').write('by the wheel')"])],
        )

        def states() -> list[tuple[str, ...]]:
            assert worker.poll() is None, f"the worker ended: {worker.communicate()[0]}"
            return db.execute("SELECT state FROM pgsched.runs WHERE finished_at IS NOT NULL").fetchall()

        assert wait_until(states, timeout=60, what="the run to finish") == [("succeeded",)]
    assert written.read_text() == "by the wheel"
    asked = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    output, _ = worker.communicate(timeout=60)
    assert worker.returncode == 0, output
    assert time.monotonic() - asked < 20, "an idle worker drains at once"
