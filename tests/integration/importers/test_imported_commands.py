"""What imported commands do: the same as under the scheduler that they come from."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

from pgsched.importers.crontab.importing import CrontabOptions, import_crontab

NOW = datetime(2026, 5, 1, tzinfo=UTC)


def test_the_line_of_a_crontab_has_its_input_variables_and_directory(tmp_path: Path) -> None:
    text = f'HOME={tmp_path}\nA=1 2\n0 0 * * * pwd; cat; echo "$A" \\% $PATH%x%%y\n'
    found = import_crontab(text, CrontabOptions("UTC", NOW)).jobs[0].columns
    args = found["args"]
    done = subprocess.run(
        ["/bin/sh", "-c", found["task"]], env=args["env"], cwd=args["cwd"], input=args["stdin"], capture_output=True,
        text=True, timeout=30,
    )  # fmt: skip
    assert done.stdout == f"{tmp_path}\nx\n\ny\n1 2 % /usr/bin:/bin\n"
