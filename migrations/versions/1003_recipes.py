"""Locks, elections and what else programs coordinate with: sessions, lines of contenders, and fences.

A function that changes stands here whole, in a file with the name that its file in `1000_initial` has.
"""

from pathlib import Path

from pgsched.db.schema.revision import run_files

revision = "1003_recipes"
down_revision = "1002_surface"


def upgrade() -> None:
    run_files(Path(__file__).resolve().parent.parent / revision)
