"""Read lines from a log of any size, and tell the formats of logs apart.

Invariant: memory is bounded, whatever the file holds: a line that is too long is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pgsched.errors import InputError

PIECE = 1 << 20  # bytes that are read at once
LONGEST = 1 << 16  # bytes of a line
FORMATS = ("syslog", "csv", "kubernetes")
HEAD = 4096  # bytes by which the format is guessed
Read = Callable[[int], bytes]


def split_lines(read: Read) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that `read` returns piece by piece, each with its number from 1; empty and too long ones are not.

    `read`: returns the next bytes, at most as many as it is asked for, and none at the end.
    """
    number, begun, skipping = 0, b"", False
    while piece := read(PIECE):
        first, *more = piece.split(b"\n")
        if not more:
            begun, skipping = (b"", True) if skipping or len(begun) + len(first) > LONGEST else (begun + first, False)
            continue
        number += 1
        if not skipping and begun + first and len(begun) + len(first) <= LONGEST:
            yield number, begun + first
        begun, skipping = more.pop(), False
        for line in more:
            number += 1
            if line and len(line) <= LONGEST:
                yield number, line
        if len(begun) > LONGEST:
            begun, skipping = b"", True
    if begun and not skipping:
        yield number + 1, begun


def guess_format(name: str, head: bytes) -> str:
    """Return the format of a log, by its name and its first bytes.

    A JSON object that has the fields of a Kubernetes listing is one; that of a journal is syslog.
    """
    text = head[:HEAD].lstrip(b"\xef\xbb\xbf \t\r\n\x1e")
    if text.startswith(b"{"):
        return "syslog" if b"__REALTIME_TIMESTAMP" in text or b'"MESSAGE"' in text else "kubernetes"
    return "csv" if name.removesuffix(".gz").lower().endswith((".csv", ".tsv")) else "syslog"


def check_format(form: str | None) -> str | None:
    """Return the name of a format. Raises InputError for an unknown one."""
    if form is not None and form not in FORMATS:
        raise InputError(f'format: "{form}" is not one of {", ".join(FORMATS)}', "format")
    return form
