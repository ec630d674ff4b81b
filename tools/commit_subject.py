"""Check the message of a commit: `python -m tools.commit_subject FILE`.

The subject has at most 72 characters and is an order: Add, Fix, Change, Remove.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

MOST = 72
# Written by git. `git rebase --autosquash` removes the last two.
BY_GIT = ("Merge ", "Revert ", "fixup! ", "squash! ")


def find_faults(message: str) -> list[str]:
    """Return what is wrong with a message. Lines that begin with # are not part of it."""
    lines = [line for line in message.splitlines() if not line.startswith("#")] or [""]
    subject, found = lines[0], []
    if subject.startswith(BY_GIT):
        return []
    if len(subject) > MOST:
        found.append(f"the subject has {len(subject)} characters: at most {MOST}")
    if not re.match(r"[A-Z0-9`.]", subject):
        found.append("the subject begins with a capital letter, a name or a path")
    if subject.endswith("."):
        found.append("the subject ends without a full stop")
    if re.match(r"(Added|Adds|Adding|Fixed|Fixes|Fixing|Changed|Changes|Removed|Removes)\b", subject):
        found.append("the subject says what the commit does, as an order: Add, Fix, Change, Remove")
    if len(lines) > 1 and lines[1].strip():
        found.append("the second line is empty")
    return found


def main() -> int:
    """Print a line for each fault; return the exit code, 0 without faults and 1 with some."""
    found = find_faults(Path(sys.argv[1]).read_text(encoding="utf-8"))
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
