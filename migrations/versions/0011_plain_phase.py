"""The phase of a run is a plain column, which triggers hold right: to compute it cost the server a twelfth of a run.
Where to put what: see 0004."""

from pathlib import Path

from pgsched.db.schema.revision import run_files, take_back

revision = "0011"
down_revision = "0010"
FOLDER = Path(__file__).resolve().parent.parent / revision


def upgrade() -> None:
    run_files(FOLDER)


def downgrade() -> None:
    take_back(FOLDER)
