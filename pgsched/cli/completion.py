"""Completion in a shell: the names of jobs, queues, tasks, workers, owners of files and locks, and keys.

Invariant: the shell waits one second at most for the database, nothing is printed, and no embedded server is started.
Where there is no answer, nothing is offered.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable
from typing import Any

import typer

PATIENCE_S = 1.0
# A shell puts the name on the command line as it is, so a name that it would read as a command or option is left out.
SAFE = re.compile(r"\w[\w.@%+:,/-]*")
BEFORE_COLON = "_PGSCHED_BEFORE_COLON"


def join_words_of_bash() -> None:
    """Join the words that bash has split at colons: `vm`, `:` and `38` are the name `vm:38`, as every worker has one.

    Bash replaces only what follows the colon. So of the word that is to be completed, that is left in COMP_WORDS, and
    `vm:` is put into BEFORE_COLON.
    """
    words, at = os.environ.get("COMP_WORDS", "").split("\n"), os.environ.get("COMP_CWORD", "")
    if not at.isdecimal() or int(at) >= len(words):
        return
    joined: list[str] = []
    after = False
    for word in words[: int(at) + 1]:
        colon = word != "" and not word.strip(":")
        if joined and (colon or (after and word != "")):
            joined[-1] += word
        else:
            joined.append(word)
        after = colon
    if joined[-1] != words[int(at)]:
        before, colons, current = joined[-1].rpartition(":")
        os.environ[BEFORE_COLON] = before + colons
        joined[-1] = current
    os.environ |= {"COMP_WORDS": "\n".join(joined), "COMP_CWORD": str(len(joined) - 1)}


def complete_names(what: str) -> Callable[[typer.Context, str], list[str]]:
    """Return what completes the names of one kind: job, queue, task, worker, owner (of a file), lock or key."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        before = os.environ.get(BEFORE_COLON, "")
        try:
            known = ask_names(what, before + incomplete, ctx.params.get("dsn"))
        except Exception:  # a wrong setting, say: the command itself will tell
            return []
        fitting = [name for name in known if name.startswith(before + incomplete) and SAFE.fullmatch(name)]
        return [name.removeprefix(before) for name in fitting]

    return complete


def ask_names(what: str, prefix: str, flag: str | None) -> list[str]:
    """Return the names that the database knows, if it answers in time; of keys at most 1,000, with this prefix.

    `flag`: --dsn. Raises any error.
    """
    from pgsched.config import find_dsn
    from pgsched.db.connection.connect import connect

    dsn = find_dsn(flag or dsn_of_file())
    if dsn is None:
        return []
    read = reader_of(what, prefix)
    found: list[str] = []

    def look() -> None:
        try:
            with connect(dsn, timeout_s=PATIENCE_S) as conn:
                found.extend(read(conn))
        except Exception:  # also one of a schema that has not these tables
            found.clear()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(PATIENCE_S)
    return [*found]


def reader_of(what: str, prefix: str) -> Callable[[Any], Iterable[str]]:
    """Return the function that reads the names of one kind by a connection."""
    if what == "key":
        from pgsched.db.queries.recipes.store import MOST_KEYS
        from pgsched.recipes.keys import list_names

        return lambda conn: list_names(conn, prefix, MOST_KEYS)
    from pgsched.db.queries.reports.name_hints import known_names

    return lambda conn: known_names(conn, what)


def dsn_of_file() -> str | None:
    """Return the DSN of the settings file, unless the environment has one."""
    from pgsched.cli.config_file import DSN_VARIABLES, find_file, read_file

    path = None if any(name in os.environ for name in DSN_VARIABLES) else find_file()
    return None if path is None else read_file(path).get("dsn")


complete_jobs, complete_queues, complete_tasks, complete_workers, complete_owners, complete_locks, complete_keys = map(
    complete_names, ("job", "queue", "task", "worker", "owner", "lock", "key")
)
