"""The first schema: every table, the jobs' checks, and the functions that any language may call."""

from pathlib import Path

from alembic import op

revision = "0001"
down_revision = None

HERE = Path(__file__).resolve().parent.parent / revision


def upgrade() -> None:
    bind = op.get_context()
    for file in sorted(HERE.glob("*.sql")):
        if bind.as_sql:
            op.execute(file.read_text())
        else:
            op.get_bind().execution_options(no_parameters=True).exec_driver_sql(file.read_text())


def downgrade() -> None:
    op.execute("DROP SCHEMA pgsched CASCADE")
    # alembic deletes this row when we return, and its table was in the schema
    op.execute("CREATE SCHEMA pgsched")
    op.execute("CREATE TABLE pgsched.alembic_version (version_num varchar(32) PRIMARY KEY)")
    op.execute("INSERT INTO pgsched.alembic_version VALUES ('0001')")
