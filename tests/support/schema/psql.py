"""Run SQL scripts with psql."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def program(name: str) -> str:
    """Return the path of one of PostgreSQL's programs: from the embedded wheel, else from the system."""
    try:
        from pgsched.db.embedded.server import bin_dir

        found = Path(bin_dir()) / name
        if found.exists():
            return str(found)
    except Exception:
        pass
    return shutil.which(name) or pytest.skip(f"no {name} here: the script is not tried")


def apply_script(dsn: str, text: str) -> subprocess.CompletedProcess[str]:
    """Run a script with psql."""
    command = [program("psql"), "--no-psqlrc", dsn, "-f", "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
