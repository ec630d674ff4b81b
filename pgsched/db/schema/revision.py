"""Run one alembic revision: the .sql files of its folder, in the order of their names, in one short transaction.

A revision takes its locks first, all at once or not at all, so that no session waits behind a waiting migration. Slow
changes (an index, a backfill) are steps of their own in `before/` (pgsched/db/schema/steps.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pgsched.db.connection.sealed import SEARCH_PATH

# The search path decides which functions and operators the names in a revision mean. Its objects keep that meaning.
SEAL = f"SET LOCAL search_path = {SEARCH_PATH};\nSET LOCAL standard_conforming_strings = on;\n"
# The first lock conflicts with vacuum and other maintenance only, and autovacuum gives way to it. The second conflicts
# with every session, and is tried for half a second. Tables are locked in the order in which statements and their
# triggers lock them. Otherwise a transaction that holds `runs` and needs a second table could deadlock with this one.
LOCK = """
SET LOCAL statement_timeout = '{wait}';
DO $$
DECLARE
    tables text;
BEGIN
    SELECT string_agg(format('pgsched.%I', c.relname), ', '
                      ORDER BY array_position('{{jobs,runs}}', c.relname::text), c.relname) INTO tables
    FROM pg_class c WHERE c.relnamespace = 'pgsched'::regnamespace AND c.relkind = 'r'
        AND c.relname <> 'alembic_version';
    IF tables IS NOT NULL THEN
        EXECUTE format('LOCK TABLE %s IN {mode} MODE', tables);
    END IF;
END $$;
SET LOCAL statement_timeout = 0;
"""
LOCKS = (LOCK.format(wait="30s", mode="SHARE UPDATE EXCLUSIVE"), LOCK.format(wait="500ms", mode="ACCESS EXCLUSIVE"))


def run_files(folder: Path) -> None:
    """Run the folder's files on alembic's connection, after the steps if these are not done yet."""
    from alembic import context

    texts = [] if context.config.attributes.get("online") else steps_at_once(folder)
    for text in [SEAL, *texts, *LOCKS, *(file.read_text() for file in sorted(folder.glob("*.sql")))]:
        send(text)


def steps_at_once(folder: Path) -> list[str]:
    """Return the steps as parts of one transaction, for a database that is not in use yet."""
    found = (file.read_text() for file in sorted((folder / "before").glob("*.sql")))
    return [text.replace(" CONCURRENTLY", "").replace("COMMIT;", "") for text in found]


def send(text: str) -> None:
    """Send one file unchanged: without parameters, so that % means %."""
    connection().exec_driver_sql(text)


def connection() -> Any:
    """Return alembic's connection."""
    from alembic import op

    return op.get_bind().execution_options(no_parameters=True)
