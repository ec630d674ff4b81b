"""What alerts, retention, charts and tracing need, and bounds on what a row may hold; each file says its part."""

from pathlib import Path

from alembic import context

from pgsched.db.revision import run_files

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    run_files(Path(__file__).resolve().parent.parent / revision)


def downgrade() -> None:
    if context.get_revision_argument() is not None:  # to base, 0001 drops the whole schema
        raise NotImplementedError("0004 cannot be taken back alone: restore a backup made before it")
