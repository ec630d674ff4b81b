"""The first schema: tables, functions by subject, triggers, indexes, comments.

A later issue adds one revision: `versions/NNNN_name.py` like this one, with `down_revision`, and a folder of that name.
Where to put what:
- `NNNN_name/NN_topic.sql`: everything that is quick. All files together are one transaction that has locked every table
  first, so they must not look at the rows of runs, attempts or run_logs (and not build an index on them).
- `NNNN_name/before/NN_step.sql`: what takes time, run before that and outside of it, one file after the other. A file
  is one step; it may be run twice (IF NOT EXISTS). `CREATE INDEX CONCURRENTLY IF NOT EXISTS name ON ...` or a `DO` that
  COMMITs its batches is alone in its file. A new column for it is a step before: `ADD COLUMN IF NOT EXISTS`.
- A CHECK on a big table: `ADD CONSTRAINT ... NOT VALID`; `pgsched migrate` validates it afterwards, without a lock that
  anybody minds.
Then `python -m pgsched.db.schema.dump` writes `schema.sql` anew, and `pgsched/db/schema/tables.py` follows.
"""

from pathlib import Path

from pgsched.db.schema.revision import run_files

revision = "1000_initial"
down_revision = None


def upgrade() -> None:
    run_files(Path(__file__).resolve().parent.parent / revision)
