"""A worker says which jobs its code declares. Where to put what: see 0004."""

from pathlib import Path

from pgsched.db.schema.revision import run_files, take_back

revision = "0008"
down_revision = "0007"
FOLDER = Path(__file__).resolve().parent.parent / revision


def upgrade() -> None:
    run_files(FOLDER)


def downgrade() -> None:
    take_back(FOLDER)
