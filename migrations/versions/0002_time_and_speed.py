"""What the time policies and the hot path needed after the first schema; each file says its part."""

from pathlib import Path

from alembic import context, op

revision = "0002"
down_revision = "0001"

HERE = Path(__file__).resolve().parent.parent / revision


def upgrade() -> None:
    bind = op.get_context()
    for file in sorted(HERE.glob("*.sql")):
        if bind.as_sql:
            op.execute(file.read_text())
        else:
            op.get_bind().execution_options(no_parameters=True).exec_driver_sql(file.read_text())


def downgrade() -> None:
    if context.get_revision_argument() is not None:  # to base, 0001 drops the whole schema
        raise NotImplementedError("0002 cannot be taken back alone: restore a backup made before it")
