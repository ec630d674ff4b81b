"""Write a migration as a script for psql (`pgsched migrate --sql`).

Invariant: the same script works for every database. It skips revisions that the database has, and repeats a revision
that was interrupted.
"""

from __future__ import annotations

from collections.abc import Iterator

from pgsched.db.schema.migrate import validation_script
from pgsched.db.schema.revision import LOCKS
from pgsched.db.schema.steps import LOCK_WAIT, Step, drop_invalid, steps
from pgsched.db.schema.version import UNSUPPORTED_VERSIONS, VERSIONS
from pgsched.db.statements import folder

HEAD = """\\set ON_ERROR_STOP on
\\set QUIET on
SET client_min_messages = warning;
SET search_path = pg_catalog, pg_temp;
SET standard_conforming_strings = on;
CREATE SCHEMA IF NOT EXISTS pgsched;
CREATE TABLE IF NOT EXISTS pgsched.alembic_version (
    version_num varchar(32) NOT NULL, CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num));
SELECT count(*) > 0 AS made_before FROM pgsched.alembic_version WHERE version_num = ANY (:'before_0_1_0') \\gset
\\if :made_before
    DO $$ BEGIN RAISE EXCEPTION 'the schema was made before 0.1.0: dump what you need, drop schema pgsched'; END $$;
\\endif
SELECT count(*) > 0 AS newer FROM pgsched.alembic_version WHERE version_num <> ALL (:'known') \\gset
\\if :newer
    DO $$ BEGIN RAISE EXCEPTION 'the schema is newer than this script'; END $$;
\\endif
"""
MISSING = """SELECT count(*) = 0 AS missing FROM pgsched.alembic_version WHERE version_num = ANY (:'reached') \\gset
\\if :missing"""
TAIL = """DO $$ BEGIN
    IF has_function_privilege('pgsched.rebuild_flags()', 'EXECUTE') THEN
        PERFORM pgsched.rebuild_flags();
    END IF;
END $$;"""
REACHED = """DELETE FROM pgsched.alembic_version;
INSERT INTO pgsched.alembic_version VALUES (:'version');
COMMIT;
\\endif
"""


def upgrade_sql() -> str:
    """Return a psql script that brings an empty or older database to this program's version."""
    lists = [f"\\set before_0_1_0 {array(UNSUPPORTED_VERSIONS)}", f"\\set known {array(VERSIONS)}"]
    return "\n".join([*lists, HEAD, *revisions(), validation_script().decode(), TAIL])


def array(versions: tuple[str, ...]) -> str:
    """Return the text of an array of versions, in psql's quotes."""
    return f"'{{{','.join(versions)}}}'"


def revisions() -> Iterator[str]:
    """Yield the script of each revision, with the check whether it is missing."""
    for number, version in enumerate(VERSIONS):
        yield f"\\set version {version}\n\\set reached {array(VERSIONS[number:])}"
        yield MISSING
        for step in steps(version):
            yield from as_text(step)
        yield f"\\echo '{version}'\nBEGIN;\n{''.join(LOCKS)}"
        yield from (file.read_text() for file in sorted((folder("migrations") / version).glob("*.sql")))
        yield REACHED


def as_text(step: Step) -> Iterator[str]:
    """Yield the script of one step, which does the same as pgsched.db.schema.steps.run_step."""
    yield f"\\echo '{step.name}'"
    if not step.alone:
        yield f"BEGIN;\n{LOCKS[0]}SET LOCAL lock_timeout = '{LOCK_WAIT}';\n{step.text}COMMIT;"
        return
    yield f"SET lock_timeout = '{LOCK_WAIT}';"
    if step.index is not None:
        yield f"SET pgsched.index = '{step.index}';\n{drop_invalid()}SET lock_timeout = 0;"
    yield step.text
