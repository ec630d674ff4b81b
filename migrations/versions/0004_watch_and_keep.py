"""What alerts, retention, charts and tracing need, and bounds on what a row may hold; each file says its part.

Where to put what:
- `0004/NN_topic.sql`: everything that is quick. All files together are one transaction that has locked every table
  first, so they must not look at the rows of runs, attempts or run_logs (and not build an index on them).
- `0004/before/NN_step.sql`: what takes time, run before that and outside of it, one file after the other. A file is
  one step; it may be run twice (IF NOT EXISTS). `CREATE INDEX CONCURRENTLY IF NOT EXISTS name ON ...` or a `DO` that
  COMMITs its batches is alone in its file. A new column for it is a step before: `ADD COLUMN IF NOT EXISTS`.
- A CHECK on a big table: `ADD CONSTRAINT ... NOT VALID`; `pgsched migrate` validates it afterwards, without a lock
  that anybody minds.
- `0004/down/NN_topic.sql`: takes NN_topic.sql (and its steps) back: tables, columns, indexes, triggers, views,
  policies, constraints, with IF EXISTS. Run in reverse order. Not functions: those are made again, or dropped, from
  the texts by themselves (pgsched/db/schema/downgrade.py).
tests/integration/db/schema/test_back_and_forth.py holds that up, down and up again leaves the same catalog.
"""

from pathlib import Path

from pgsched.db.schema.revision import run_files, take_back

revision = "0004"
down_revision = "0003"
FOLDER = Path(__file__).resolve().parent.parent / revision


def upgrade() -> None:
    run_files(FOLDER)


def downgrade() -> None:
    take_back(FOLDER)
