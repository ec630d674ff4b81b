"""A user without a name who is not root: where tests run as root, programs are started as that user with USER before
their command line. It may read all files, because Python may lie in the home of who tests; it reads no other user's
processes for that."""

from __future__ import annotations

import shutil
import subprocess

USER = (
    "setpriv", "--reuid=54321", "--regid=54321", "--clear-groups",
    "--inh-caps=+dac_override,+dac_read_search", "--ambient-caps=+dac_override,+dac_read_search",
)  # fmt: skip


def works(*words: str) -> bool:
    """Can a program be started with these words before it?"""
    if shutil.which(words[0]) is None:
        return False
    return subprocess.run([*words, "true"], check=False, capture_output=True).returncode == 0
