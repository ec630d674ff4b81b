"""Arguments can be checked in SQL, by the schema that a worker registers for its task.

A function that changes stands here whole, in a file with the name that its file in `1000_initial` has.
"""

from pathlib import Path

from pgsched.db.schema.revision import run_files

revision = "1002_surface"
down_revision = "1001_mend"


def upgrade() -> None:
    run_files(Path(__file__).resolve().parent.parent / revision)
