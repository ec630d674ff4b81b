"""An unprivileged user without a name: where tests run as root, USER before a command line starts it as that user.

That user may read all files, because Python may be installed in the home folder of the account that runs the tests.
Even so, that user cannot read the processes of other users.
"""

from __future__ import annotations

import shutil
import subprocess

USER = (
    "setpriv", "--reuid=54321", "--regid=54321", "--clear-groups",
    "--inh-caps=+dac_override,+dac_read_search", "--ambient-caps=+dac_override,+dac_read_search",
)  # fmt: skip


def works(*words: str) -> bool:
    """Return whether a program can be started with these words before its command line."""
    if shutil.which(words[0]) is None:
        return False
    return subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0
