"""What the time policies and the hot path needed after the first schema; each file says its part."""

from pathlib import Path

from alembic import context

from pgsched.db.schema.revision import run_files

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    run_files(Path(__file__).resolve().parent.parent / revision)


def downgrade() -> None:
    if context.get_revision_argument() is not None:  # to base, 0001 drops the whole schema
        raise NotImplementedError("0002 cannot be taken back alone: restore a backup made before it")
