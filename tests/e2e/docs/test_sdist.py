"""The source distribution contains every file that its tests need: pages, examples, figures, the lock."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.long

OUTSIDE = {".gitignore"}


@pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="this is no checkout")
def test_the_sdist_holds_every_file_of_the_checkout(tmp_path: Path) -> None:
    pytest.importorskip("build")
    command = [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = tmp_path.glob("pgsched-*.tar.gz")
    with tarfile.open(built) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    there = {name for name in tracked.splitlines() if (ROOT / name).exists()}
    assert len(there) > 300
    assert there - held - OUTSIDE == set()
