"""The next release, made for tests: a copy of this program with one more revision (a column, an index, a check)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pgsched.db.schema.version import SCHEMA_VERSION
from tests.support.paths import ROOT

NEXT = "1900_notes"
REVISION = f'''"""A column for tests, filled for the rows there are, with an index."""

from pathlib import Path

from pgsched.db.schema.revision import run_files

revision = "{NEXT}"
down_revision = "{SCHEMA_VERSION}"


def upgrade() -> None:
    run_files(Path(__file__).resolve().parent.parent / revision)
'''
FILES = {
    "before/10_column.sql": "ALTER TABLE pgsched.runs ADD COLUMN IF NOT EXISTS note text;\n",
    "before/20_index.sql": "CREATE INDEX CONCURRENTLY IF NOT EXISTS runs_noted ON pgsched.runs (note);\n",
    "before/30_fill.sql": """DO $$
DECLARE
    last bigint := 0;
    upto bigint;
BEGIN
    LOOP
        SELECT max(b.id) INTO upto FROM (SELECT id FROM pgsched.runs WHERE id > last ORDER BY id LIMIT 2000) b;
        EXIT WHEN upto IS NULL;
        UPDATE pgsched.runs SET note = 'from before' WHERE id > last AND id <= upto AND note IS NULL AND phase >= 3;
        COMMIT;
        last := upto;
    END LOOP;
END $$;
""",
    "10_note.sql": """ALTER TABLE pgsched.runs ADD CONSTRAINT runs_note CHECK (length(note) <= 100) NOT VALID;
CREATE FUNCTION pgsched.note_of(run_id bigint) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $$
    SELECT r.note FROM pgsched.runs r WHERE r.id = run_id
$$;
""",
}
STEPS = [f"{NEXT}/{name.removeprefix('before/').removesuffix('.sql')}" for name in FILES if name.startswith("before/")]


def next_release(folder: Path) -> Path:
    """Write the next release to `folder`, and return that folder."""
    for name in ("pgsched", "sql", "migrations", "tests/support/apps"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    migrations = folder / "migrations"
    (migrations / "versions" / f"{NEXT}.py").write_text(REVISION)
    for name, text in FILES.items():
        path = migrations / NEXT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def command(release: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start `pgsched` of that release."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("PGSCHED_")}
    return subprocess.Popen(
        [sys.executable, "-m", "pgsched", *arguments],
        cwd=release, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(release: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `pgsched` of that release to its end."""
    process = command(release, *arguments)
    try:
        output, told = process.communicate(timeout=120)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, told)
