"""Read the text files of other schedulers: bounded, and each problem as one line that names the file.

Invariant: whatever stands at a path, reading ends. No pipe or device is opened for long, no link is followed in a
circle, and no file is read beyond its limit.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from pgsched.errors import InputError

MIB = 1024 * 1024
MOST_LINES = 200_000
MOST_ENTRIES = 20_000  # of one directory
DEEPEST = 12


def read_bytes(path: Path, most_bytes: int) -> bytes:
    """Return the first bytes of a regular file. Raises InputError."""
    try:
        # O_NONBLOCK: opening a pipe would wait for its writer
        number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"{path}: {describe_os_error(error)}", "source") from None
    with os.fdopen(number, "rb") as file:
        if not stat.S_ISREG(os.fstat(number).st_mode):
            raise InputError(f"{path}: is no regular file", "source")
        try:
            return file.read(most_bytes)
        except OSError as error:
            raise InputError(f"{path}: {describe_os_error(error)}", "source") from None


def read_text_file(path: Path, most_bytes: int, most_lines: int = MOST_LINES) -> str:
    """Return the text of a file. Raises InputError."""
    return decode_text(read_bytes(path, most_bytes + 1), str(path), most_bytes, most_lines)


def decode_text(data: bytes, name: str, most_bytes: int, most_lines: int = MOST_LINES) -> str:
    """Return the text of some bytes. Raises InputError for what is too long, binary or not UTF-8."""
    if len(data) > most_bytes:
        raise InputError(f"{name}: has more than {most_bytes // MIB} MiB", "source")
    if b"\0" in data:
        raise InputError(f"{name}: is a binary file", "source")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{name}: line {line} is not UTF-8 (byte 0x{data[error.start]:02x})", "source") from None
    if text.count("\n") > most_lines:
        raise InputError(f"{name}: has more than {most_lines} lines", "source")
    return text


def describe_os_error(error: OSError) -> str:
    """Return what is wrong with a file, in a few words."""
    words = {errno.ELOOP: "is a link that leads back to itself", errno.EACCES: "may not be read by this user",
             errno.EISDIR: "is a directory", errno.ENOENT: "there is no such file",
             errno.ENXIO: "is no regular file"}  # fmt: skip
    return words.get(error.errno or 0, (error.strerror or str(error)).lower())


def list_directory(path: Path) -> list[Path]:
    """Return the entries of a directory by name. Raises InputError."""
    try:
        with os.scandir(path) as entries:
            names = []
            for entry in entries:
                names.append(entry.name)
                if len(names) > MOST_ENTRIES:
                    raise InputError(f"{path}: has more than {MOST_ENTRIES} entries", "source")
    except OSError as error:
        raise InputError(f"{path}: {describe_os_error(error)}", "source") from None
    return [path / name for name in sorted(names)]


def walk_files(path: Path, endings: tuple[str, ...], depth: int = 0) -> Iterator[Path]:
    """Yield the files below a directory whose names have one of some endings. Links to directories are not followed.

    Raises InputError for a directory that cannot be read, and beyond a depth.
    """
    if depth > DEEPEST:
        raise InputError(f"{path}: is nested more than {DEEPEST} deep", "source")
    for entry in list_directory(path):
        if entry.is_dir() and not entry.is_symlink():
            if not entry.name.startswith("."):
                yield from walk_files(entry, endings, depth + 1)
        elif entry.name.endswith(endings):
            yield entry
