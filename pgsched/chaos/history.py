"""What was recorded of one fault, as plain rows: saved as JSON lines, and read back by the checker alone.

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
    """A job as it was at the end; `anchor`: where @every counts from; `since`: slots after this are its own."""

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
    """A run as it was at the end."""

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
    """An attempt that left evidence."""

    run_id: int
    token: str
    attempt: int
    outcome: str
    started: float | None
    finished: float


@dataclass(frozen=True, slots=True)
class Change:
    """A row of the journal: how a run was after one change. `seq` rises with the changes of one run."""

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
    """A row of the journal: a job's high-water mark after a change, and the server process that wrote it."""

    seq: int
    at: float
    job_id: int
    mark: float
    backend: int


@dataclass(frozen=True, slots=True)
class Term:
    """A row of the journal: a leader's row that was made or renewed, and the server process that wrote it."""

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
    event: str  # start, end (under the claim), refused, stopped
    at: float
    pid: int


@dataclass(frozen=True, slots=True)
class Ack:
    """An enqueue whose answer arrived."""

    key: str
    run_id: int


@dataclass(frozen=True, slots=True)
class Process:
    """A worker process at the end. `before` and `after`: what it held (threads, descriptors, children), at rest."""

    pid: int
    fate: str  # worked, unhealthy, exited, silent
    code: int | None = None
    ended_by: str | None = None  # what the fault or the runner did to end it
    stop_s: float | None = None  # from SIGTERM to its end
    before: dict[str, int] | None = None
    after: dict[str, int] | None = None


@dataclass(frozen=True, slots=True)
class Leak:
    """Something in the server that nobody alive owns."""

    what: str  # session, lock
    text: str


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value, and what it may not exceed."""

    name: str
    value: float
    bound: float | None = None


@dataclass(frozen=True, slots=True)
class Outage:
    """Nothing can be expected to move in this time."""

    start: float
    end: float
    why: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """What stopped the fault or the runner: always a violation."""

    text: str


@dataclass(slots=True)
class History:
    """Everything of one fault.

    `settings`: fault, seed, lease_s, reap_s; limits (name: so many at once); ended (the instant of collecting); stuck_s
    (so long an expired claim may stand); stop_within_s; ledger ("apart": in another server, so that its numbers mean
    nothing beside the journal's); lost_keys and lost_tokens (enqueues and claims that an asynchronous standby had not
    got: the fault itself proves that those are all).
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
        """Write it as JSON lines."""
        with path.open("a" if append else "w") as file:
            file.writelines(json.dumps(line) + "\n" for line in self.lines())

    def lines(self) -> Iterator[dict[str, Any]]:
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


def load(path: Path) -> list[History]:
    """The histories in a file: each begins with its settings. Raises ValueError with the line that is none of ours."""
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
