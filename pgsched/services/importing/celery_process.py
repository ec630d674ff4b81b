"""Read the schedule of an app of Celery in a process of its own.

Invariant: whatever the modules of the app do, this process imports none of them, ends within LIMIT_S, and writes
nothing of theirs to stdout.

Modules may wait for ever, end the program, start threads that never end, or print. So they are imported by a child
process: `python -P -m` of this module, so that no file of the current directory takes the place of a module of Python.
Its stdout is our stderr; it writes what was read to a file, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from datetime import datetime
from typing import IO, Any

from pgsched.errors import InputError, PgschedError
from pgsched.execute.anonymous_file import open_anonymous_file
from pgsched.importers.file_values import file_values
from pgsched.importers.imported import Imported, ImportedJob, Omitted, Reason, Remark
from pgsched.services.importing.celery import read_celery_app

LIMIT_S = 300.0
MOST_BYTES = 256 * 1024 * 1024
STDERR = 2
BROKEN = (ValueError, KeyError, TypeError, AttributeError, RecursionError)  # of an answer that is not ours


def read_celery_apart(path: str, now: datetime, *, timezone: str | None = None) -> Imported:
    """Return the jobs of the beat_schedule of an app, which a child process imports. Raises InputError.

    `path`, `timezone`: as of read_celery_app. The columns are as a file of jobs has them.
    """
    with open_anonymous_file() as answer:
        number = answer.fileno()
        command = [sys.executable, "-P", "-m", __name__, path, now.isoformat(), timezone or "", str(number)]
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=STDERR, pass_fds=[number], start_new_session=True
        )
        try:
            code = child.wait(LIMIT_S)
        except BaseException as error:
            end_session(child)
            if isinstance(error, subprocess.TimeoutExpired):
                raise InputError(f"app: importing {path} took more than {LIMIT_S:g} s", "app") from None
            raise
        return read_answer(answer, path, code)


def end_session(child: subprocess.Popen[bytes]) -> None:
    """Kill a child and what it has started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def read_answer(answer: IO[bytes], path: str, code: int) -> Imported:
    """Return what the child has read. Raises InputError: the child's own, or one that says how it ended."""
    answer.seek(0)
    data = answer.read(MOST_BYTES + 1)
    if not data:
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise InputError(f"app: the process that imported {path} {how}, and has read nothing", "app")
    if len(data) > MOST_BYTES:
        raise InputError(f"app: the schedule of {path} has more than {MOST_BYTES // 2**20} MiB", "app")
    try:
        found = json.loads(data)
        if "error" in found:
            raise InputError(str(found["error"]), found["field"])
        return imported_of(found)
    except BROKEN:
        raise InputError(f"app: {path} has disturbed the process that read its schedule", "app") from None


def document_of(imported: Imported) -> dict[str, Any]:
    """Return what was imported as values of JSON."""
    found = asdict(imported, dict_factory=lambda items: {name: plain_value(value) for name, value in items})
    for document, job in zip(found["jobs"], imported.jobs, strict=True):
        document["columns"] = file_values(job.columns)
    return found


def plain_value(value: Any) -> Any:
    """Return a reason as its name, any other value as it is."""
    return value.name if isinstance(value, Reason) else value


def imported_of(document: dict[str, Any]) -> Imported:
    """Return what was imported. Raises one of BROKEN for another document."""
    return Imported(
        [ImportedJob(**{**job, "remarks": list(map(remark_of, job["remarks"]))}) for job in document["jobs"]],
        list(map(remark_of, document["remarks"])),
        [Omitted(**{**one, "remark": remark_of(one["remark"])}) for one in document["omitted"]],
    )


def remark_of(document: dict[str, Any]) -> Remark:
    """Return a remark. Raises KeyError for a reason that is none."""
    return Remark(**{**document, "reason": Reason[document["reason"]]})


def answer_parent() -> None:
    """Read the app that the command line names, and write the answer. The process ends even if threads go on."""
    path, now, timezone, number = sys.argv[1:]
    signal.alarm(2 * int(LIMIT_S))  # where the parent is killed, too
    found: dict[str, Any]
    try:
        found = document_of(read_celery_app(path, datetime.fromisoformat(now), timezone=timezone or None))
    except PgschedError as error:
        found = {"error": str(error), "field": getattr(error, "field", None)}
    except Exception as error:  # of the user's objects
        found = {"error": f"app: reading the schedule of {path} failed: {type(error).__name__}: {error}"[:2000],
                 "field": "app"}  # fmt: skip
    with os.fdopen(int(number), "wb") as answer:
        answer.write(json.dumps(found).encode())
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


if __name__ == "__main__":
    answer_parent()
