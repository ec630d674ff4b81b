"""Read the starts of cron jobs from syslog files and from the output of journalctl.

Lines of cron in any of these forms are read, all others are passed over:

- RFC 3164 and `journalctl -o short`: `Nov 28 00:17:01 host CRON[1234]: (root) CMD (command)`
- the same with a time in ISO 8601 (rsyslog's default file format, `journalctl -o short-iso`), or in seconds since 1970
- RFC 5424: `<78>1 2026-11-28T00:17:01Z host CRON 1234 - - (root) CMD (command)`
- `journalctl -o json`, one object a line (systemd.journal-fields(7))

`(user) CMD (command)` is what Vixie cron and cronie write; busybox writes `USER root pid 12 cmd command`. With some log
levels Debian's cron puts the process id before the command (cron(8), option -L).

Invariant: no line stops the reading, whatever it holds.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from pgsched.core.shadow.stamps import StampReader
from pgsched.core.shadow.starts import Start

STAMP = (
    r"(?P<stamp>[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d{1,9})?|\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^ ]{0,20}"
    r"|\d{9,11}(?:\.\d{1,9})?)"
)
PROGRAM = r"(?:[^\s:\[\]]{0,100}/)?crond?"
ANY_LINE = re.compile(rf"(?:<\d{{1,3}}>(?:\d{{1,2}} )?)?{STAMP} ", re.ASCII)
FILE_LINE = re.compile(
    rf"(?:<\d{{1,3}}>)?{STAMP} (?:[^ ]{{1,255}} )?{PROGRAM}(?:\[\d+\])?: (?P<message>.*)", re.ASCII | re.IGNORECASE
)
ELEMENT = r"\[[^\]\" ]+(?: [^=\"\] ]+=\"(?:[^\"\\\]]|\\.)*\")*\]"
NEW_LINE = re.compile(
    rf"<\d{{1,3}}>\d{{1,2}} {STAMP} [^ ]{{1,255}} {PROGRAM} [^ ]{{1,128}} [^ ]{{1,32}} (?:-|(?:{ELEMENT})+) "
    r"(?:\ufeff)?(?P<message>.*)",
    re.ASCII | re.IGNORECASE,
)
STARTED = re.compile(r"\([^()]{0,100}\) CMD \((?:\[\d+\] )?(?P<command>.*)", re.ASCII)
STARTED_BUSYBOX = re.compile(r"(?:FILE [^ ]+ )?USER [^ ]+ pid +\d+ cmd (?P<command>.*)", re.ASCII)
IS_CRON = re.compile(PROGRAM, re.ASCII | re.IGNORECASE)
# How many of the last lines are looked at for the time at which the log ends. A line that is cut has no time, nor has
# any but the first line of a message of several lines.
LAST_LINES = 100
BYTES = (b'"MESSAGE":[', b'"MESSAGE": [')


class SyslogReader:
    """Reads the starts of a log.

    `begin_s`, `end_s`: the times of its first line and of its last one, of those that have a time; None: none has.
    """

    def __init__(self, stamps: StampReader) -> None:
        self._stamps = stamps
        self.begin_s: float | None = None
        self.end_s: float | None = None

    def read(self, lines: Iterable[tuple[int, bytes]]) -> Iterator[Start]:
        """Yield the starts in the order of the lines."""
        last = deque[bytes](maxlen=LAST_LINES)
        for _, line in lines:
            last.append(line)
            if self.begin_s is None:
                self.begin_s = self._time_of(line)
            if may_be_start(line) and (found := self._start(line)) is not None:
                self.end_s = found.at_s if self.end_s is None else max(found.at_s, self.end_s)
                yield found
            elif self._stamps.may_repeat:  # any line says when the hour begins anew
                self._time_of(line)
        times = map(self._time_of, reversed(last))
        at_s = next((one for one in times if one is not None), None)
        if at_s is not None:
            self.end_s = at_s if self.end_s is None else max(at_s, self.end_s)

    def _start(self, line: bytes) -> Start | None:
        stamp, message = read_json(line) if is_json(line) else read_text(line)
        if stamp is None or message is None:
            return None
        found = STARTED.fullmatch(message)
        if found is not None:
            command = found["command"].rstrip()
            whole = command.endswith(")")
            command, cut = command[:-1] if whole else command, not whole
        elif (found := STARTED_BUSYBOX.fullmatch(message)) is not None:
            command, cut = found["command"], False
        else:
            return None
        at_s = self._stamps.read_start(stamp, command)
        return None if at_s is None else Start(command, at_s, cut=cut)

    def _time_of(self, line: bytes) -> float | None:
        """Return the time of any line."""
        if is_json(line):
            stamp = read_json(line)[0]
        else:
            found = ANY_LINE.match(line[:200].decode("utf-8", "replace"))
            stamp = found["stamp"] if found else None
        return None if stamp is None else self._stamps.read(stamp)


def may_be_start(line: bytes) -> bool:
    """Check quickly whether a line may tell of a start: nearly all lines of a large log do not."""
    return b"CMD" in line or b" cmd " in line or (is_json(line) and (BYTES[0] in line or BYTES[1] in line))


def is_json(line: bytes) -> bool:
    """Check whether a line is an entry of a journal: an object, also of server-sent events or of a text sequence."""
    return line.startswith((b"{", b"data: {", b"\x1e{"))


def read_text(line: bytes) -> tuple[str | None, str | None]:
    """Return the time and the message of a line of cron; None for each in any other line."""
    text = line.decode("utf-8", "replace").rstrip("\r")
    found = FILE_LINE.fullmatch(text) or NEW_LINE.fullmatch(text)
    return (None, None) if found is None else (found["stamp"], found["message"])


def read_json(line: bytes) -> tuple[str | None, str | None]:
    """Return the time of an entry of a journal, in microseconds, and its message if it is one of cron."""
    try:
        entry = json.loads(line[line.index(b"{") :])
    except (ValueError, RecursionError):
        return None, None
    if not isinstance(entry, dict):
        return None, None
    stamp = entry.get("_SOURCE_REALTIME_TIMESTAMP") or entry.get("__REALTIME_TIMESTAMP")
    name = entry.get("SYSLOG_IDENTIFIER") or entry.get("_COMM")
    of_cron = isinstance(name, str) and IS_CRON.fullmatch(name)
    return (stamp if isinstance(stamp, str) else None), (message_of(entry.get("MESSAGE")) if of_cron else None)


def message_of(value: Any) -> str | None:
    """Return a message of a journal, which is a list of bytes where it is not valid UTF-8."""
    if isinstance(value, list):
        try:
            return bytes(value).decode("utf-8", "replace")
        except (TypeError, ValueError):
            return None
    return value if isinstance(value, str) else None
