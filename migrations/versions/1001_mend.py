"""What producers may send is bounded, and what only the leader or workers may write is refused from others.

A function that changes stands here whole, in a file with the name that its file in `1000_initial` has.
"""

from pathlib import Path

from pgsched.db.schema.revision import run_files

revision = "1001_mend"
down_revision = "1000_initial"


def upgrade() -> None:
    run_files(Path(__file__).resolve().parent.parent / revision)
