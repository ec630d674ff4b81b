"""An anonymous file, for passing data from one process to another.

Invariant: where the kernel offers anonymous files, no writable directory is needed. Containers with a read-only root
file system often have none.

Elsewhere (only Linux offers them) the file lies in the directory for temporary files.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import IO


def open_anonymous_file() -> IO[bytes]:
    """Return an empty, unbuffered file, open for reading and writing, that disappears with its last descriptor.

    Raises OSError where there is neither memory nor a directory for the file.
    """
    with contextlib.suppress(AttributeError, OSError):  # not Linux, or memfd_create is forbidden here
        return os.fdopen(os.memfd_create("pgsched"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
