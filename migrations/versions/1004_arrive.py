"""Arriving from elsewhere: jobs as a file, shadow jobs, shared calendars, several schedules, intervals of slots.

A function that changes stands here whole, in a file with the name that its file in `1000_initial` has.
"""

from pathlib import Path

from pgsched.db.schema.revision import run_files

revision = "1004_arrive"
down_revision = "1003_recipes"


def upgrade() -> None:
    run_files(Path(__file__).resolve().parent.parent / revision)
