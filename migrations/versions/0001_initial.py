"""The first schema: every table, the jobs' checks, and the functions that any language may call."""

from pathlib import Path

from alembic import op

from pgsched.db.schema.revision import run_files

revision = "0001"
down_revision = None


def upgrade() -> None:
    run_files(Path(__file__).resolve().parent.parent / revision)


def downgrade() -> None:
    op.execute("DROP SCHEMA pgsched CASCADE")
    # alembic deletes this row when we return, and its table was in the schema
    op.execute("CREATE SCHEMA pgsched")
    op.execute("CREATE TABLE pgsched.alembic_version (version_num varchar(32) PRIMARY KEY)")
    op.execute("INSERT INTO pgsched.alembic_version VALUES ('0001')")
