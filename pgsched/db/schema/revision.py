"""The rule: a revision is the .sql files of its folder, run in the order of their names in one short transaction.

It takes its locks first, all at once or not at all, so that nobody waits behind a migration that waits. What takes time
(an index, a backfill) is a step of its own in `before/` (pgsched/db/schema/steps.py).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pgsched.db.connection.sealed import SEARCH_PATH

# What a revision makes keeps the functions and operators that its text was taken to mean.
SEAL = f"SET LOCAL search_path = {SEARCH_PATH};\nSET LOCAL standard_conforming_strings = on;\n"
# Vacuum is waited for, and called off, with a lock that nobody else minds; then everybody else, for half a second. In
# the order in which statements and their triggers take them: who has runs and wants another would wait for us, and we
# for him.
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
    """Run them on alembic's connection, after the steps if those are not done yet."""
    from alembic import context

    texts = [] if context.config.attributes.get("online") else steps_at_once(folder)
    for text in [SEAL, *texts, *LOCKS, *(file.read_text() for file in sorted(folder.glob("*.sql")))]:
        send(text)


def steps_at_once(folder: Path) -> list[str]:
    """The steps as parts of one transaction, for a database that nobody uses yet."""
    found = (file.read_text() for file in sorted((folder / "before").glob("*.sql")))
    return [text.replace(" CONCURRENTLY", "").replace("COMMIT;", "") for text in found]


def send(text: str) -> None:
    """One file, as it is: with no parameters, so that % means %."""
    connection().exec_driver_sql(text)


def connection() -> Any:
    """Alembic's connection."""
    from alembic import op

    return op.get_bind().execution_options(no_parameters=True)
