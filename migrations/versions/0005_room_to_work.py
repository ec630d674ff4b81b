"""Room on each page for all versions of its runs. Where to put what: see 0004."""

from pathlib import Path

from pgsched.db.schema.revision import run_files, take_back

revision = "0005"
down_revision = "0004"
FOLDER = Path(__file__).resolve().parent.parent / revision


def upgrade() -> None:
    run_files(FOLDER)


def downgrade() -> None:
    take_back(FOLDER)
