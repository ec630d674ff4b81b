"""What somebody may yet ask for outlives the pruner: a parent seen by an old snapshot, the outcome of a run that a key
has met. Instants of backfills are bounded. Where to put what: see 0004."""

from pathlib import Path

from pgsched.db.schema.revision import run_files, take_back

revision = "0010"
down_revision = "0009"
FOLDER = Path(__file__).resolve().parent.parent / revision


def upgrade() -> None:
    run_files(FOLDER)


def downgrade() -> None:
    take_back(FOLDER)
