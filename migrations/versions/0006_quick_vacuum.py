"""Vacuum as quick on what pruner and ticker write as on runs; an index for the pruner; what is revived is bound by no
`retry_within`. Where to put what: see 0004."""

from pathlib import Path

from pgsched.db.schema.revision import run_files, take_back

revision = "0006"
down_revision = "0005"
FOLDER = Path(__file__).resolve().parent.parent / revision


def upgrade() -> None:
    run_files(FOLDER)


def downgrade() -> None:
    take_back(FOLDER)
