"""What running the work, its output, unique enqueues, limits and dependencies need; each file says its part."""

from pathlib import Path

from alembic import context

from pgsched.db.schema.revision import run_files

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    run_files(Path(__file__).resolve().parent.parent / revision)


def downgrade() -> None:
    if context.get_revision_argument() is not None:  # to base, 0001 drops the whole schema
        raise NotImplementedError("0003 cannot be taken back alone: restore a backup made before it")
