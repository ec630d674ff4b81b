"""The record of one fault as plain rows: saved as JSON lines, and read back by the checker.

Every time is in seconds since 1970 on the database's clock, unless the field says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Job:
    """A job at the end of the fault.

    `anchor`: the time from which `@every` counts.
    `since`: the job has slots after this time.
    `ends`: the last possible slot; None if the job has no end.
    `decided`: the high-water mark.
    """

    id: int
    name: str
    schedule: str
    timezone: str
    anchor: float
    since: float
    ends: float | None
    decided: float


@dataclass(frozen=True, slots=True)
class Run:
    """A run at the end of the fault; the fields are columns of pgsched.runs."""

    id: int
    job_id: int | None
    slot: float | None
    state: str
    token: str | None
    attempt: int
    task: str
    queue: str
    key: str | None
    started: float | None = None
    finished: float | None = None
    ready: float | None = None
    covers_from: float | None = None
    covers_until: float | None = None
    idempotency_key: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A row of pgsched.attempts: the evidence of one attempt."""

    run_id: int
    token: str
    attempt: int
    outcome: str
    started: float | None
    finished: float


@dataclass(frozen=True, slots=True)
class Change:
    """A row of the journal: a run after one change. `seq` orders the changes of one run."""

    seq: int
    at: float
    op: str  # insert, update, delete
    run_id: int
    state: str
    token: str | None = None
    attempt: int = 0
    lease_until: float | None = None
    job_id: int | None = None
    slot: float | None = None
    covers_from: float | None = None
    covers_until: float | None = None
    worker_id: int | None = None


@dataclass(frozen=True, slots=True)
class Mark:
    """A row of the journal: a job's high-water mark after a change. `backend` is the server process that wrote it."""

    seq: int
    at: float
    job_id: int
    mark: float
    backend: int


@dataclass(frozen=True, slots=True)
class Term:
    """A row of the journal: an insert or update of the leader's row.

    `pid`: the leader's process id on its host.
    `backend`: the server process that wrote the row.
    `closed`: the leader has resigned.
    """

    seq: int
    at: float
    op: str
    term: int
    pid: int
    backend: int
    closed: bool


@dataclass(frozen=True, slots=True)
class Event:
    """A row of the ledger: what a handler did."""

    seq: int
    run_id: int
    token: str
    event: str  # start, end (written under the claim), refused, stopped
    at: float
    pid: int


@dataclass(frozen=True, slots=True)
class Ack:
    """An enqueue whose answer arrived."""

    key: str
    run_id: int


@dataclass(frozen=True, slots=True)
class Process:
    """A worker process at the end. `before` and `after` count its threads, descriptors and children at rest."""

    pid: int
    fate: str  # worked, unhealthy, exited, silent
    code: int | None = None
    ended_by: str | None = None  # what the fault or the runner did to end it
    stop_s: float | None = None  # seconds from SIGTERM to the end of the process
    before: dict[str, int] | None = None
    after: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Leak:
    """A session or lock in the server that no living process owns."""

    what: str  # session, lock
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value and its bound; None: no bound."""

    name: str
    value: float
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """A time in which nothing can be expected to go on."""

    start: float
    end: float
    why: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """An error that stopped the fault or the runner. It is always a violation."""

    text: str


@dataclass(slots=True)
class History:
    """The whole record of one fault.

    `settings` has these keys:

    - `fault`, `seed`, `lease_s`, `reap_s`: how the fault was run
    - `limits`: concurrency by name of a limit
    - `ended`: the time at which the rows were collected
    - `stuck_s`: how long a claim may stand after its lease has ended
    - `stop_within_s`: how long a process may take to stop
    - `ledger`: "apart" if the ledger is on another server, so that its numbers and the journal's cannot be compared
    - `lost_keys`, `lost_tokens`: enqueues and claims that an asynchronous standby lacked when it took over. The fault
      itself proves that no others were lost.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)
    terms: list[Term] = field(default_factory=list)
    ledger: list[Event] = field(default_factory=list)
    acknowledged: list[Ack] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    leaks: list[Leak] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def save(self, path: Path, *, append: bool = False) -> None:
        """Write the history as JSON lines."""
        with path.open("a" if append else "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in self.lines())

    def lines(self) -> Iterator[dict[str, Any]]:
        """Yield the lines to save: the settings, then each row with its kind in `what`, then the notes."""
        yield {"what": "settings", **self.settings}
        for name in ROWS:
            yield from ({"what": name, **asdict(row)} for row in getattr(self, name))
        yield from ({"what": "notes", "text": text} for text in self.notes)


ROWS: dict[str, Any] = {
    "jobs": Job,
    "runs": Run,
    "attempts": Attempt,
    "changes": Change,
    "marks": Mark,
    "terms": Term,
    "ledger": Event,
    "acknowledged": Ack,
    "processes": Process,
    "leaks": Leak,
    "figures": Figure,
    "outages": Outage,
    "troubles": Trouble,
}


def load_histories(path: Path) -> list[History]:
    """Return the histories in a file; each begins with its settings.

    Raises ValueError, naming the line, if a line is not one of a saved history.
    """
    found: list[History] = []
    with path.open() as file:
        for number, line in enumerate(file, 1):
            try:
                row = json.loads(line)
                what = row.pop("what")
                if what == "settings":
                    found.append(History(settings=row))
                elif what == "notes":
                    found[-1].notes.append(row["text"])
                else:
                    known = {each.name for each in fields(ROWS[what])}
                    getattr(found[-1], what).append(ROWS[what](**{k: v for k, v in row.items() if k in known}))
            except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
                raise ValueError(f"{path}:{number}: not a line of a saved history ({error!r})") from error
    return found
