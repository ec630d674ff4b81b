"""What an import prints is applied, and then the database is as the file says: the fixtures of all sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from pgsched.importers.jobs_text import write_jobs_file
from tests.support.cli.said import Said
from tests.support.importing.fixtures import SOURCES, import_fixtures


@pytest.mark.few(3)
@pytest.mark.parametrize("source", SOURCES)
def test_the_file_of_a_source_is_applied(
    source: str, tmp_path: Path, pgsched: Callable[..., Said], db: psycopg.Connection[Any]
) -> None:
    found = import_fixtures(source)
    file = tmp_path / f"{source}.yaml"
    file.write_text(write_jobs_file(found, title=source, mode="shadow"))
    planned = pgsched("plan", str(file), "--owner", source, "--json").json
    assert len(planned["changes"]) == len(found.jobs)
    applied = pgsched("apply", str(file), "--owner", source, "--yes")
    assert (applied.code, applied.out) == (0, f"{file} (owner {source}): added {len(found.jobs)}\n")
    assert pgsched("apply", str(file), "--owner", source, "--check").code == 0
    assert db.execute("SELECT count(*) FROM pgsched.jobs WHERE mode = 'run' AND NOT paused").fetchone() == (0,)
    assert db.execute("SELECT name, error FROM pgsched.jobs WHERE error IS NOT NULL").fetchall() == []
