"""The rule: a revision is the .sql files of its folder, run in the order of their names."""

from __future__ import annotations

from pathlib import Path


def run_files(folder: Path) -> None:
    """Run them on alembic's connection; with `--sql`, print them."""
    from alembic import op

    offline = op.get_context().as_sql
    for file in sorted(folder.glob("*.sql")):
        if offline:
            op.execute(file.read_text())
        else:
            op.get_bind().execution_options(no_parameters=True).exec_driver_sql(file.read_text())
