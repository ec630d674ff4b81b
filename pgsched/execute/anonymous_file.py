"""A file without a name, for what one process hands another.

Invariant: it needs no directory that can be written to: containers with a read-only root file system often have none.
Where the kernel offers no such file (only Linux does), it lies in the directory for temporary files.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from typing import IO


def anonymous_file() -> IO[bytes]:
    """An empty file, open for reading and writing, without a buffer. It is gone once the last descriptor is closed.

    Raises OSError where there is neither memory nor a directory for it.
    """
    with contextlib.suppress(AttributeError, OSError):  # another system, or one where this call is forbidden
        return os.fdopen(os.memfd_create("pgsched"), "w+b", buffering=0)
    return tempfile.TemporaryFile(buffering=0)
