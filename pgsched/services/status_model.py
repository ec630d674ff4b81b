"""The values that `status` returns, all read at the same moment."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from pgsched.core.facts import (
    BindingLimit,
    FullQueue,
    JobCounts,
    JobError,
    Leader,
    LiveWorker,
    LostWorker,
    Paused,
    Queue,
    Unroutable,
)
from pgsched.core.problems import Problem


@dataclass(frozen=True, slots=True)
class Finished:
    """Runs that were executed in the last minutes, and slots of the last day that started late.

    `done_1`, `done_5`, `done_15`: runs executed in the last 1, 5 and 15 minutes.
    `late`: slots of the last day that started late.
    `sampled_s`: how far back, in seconds, late slots were counted. Set only if the system is so busy that not all were
        read.
    `counted_s`: the same for executed runs; counts over longer times are then too low.
    """

    done_1: int
    done_5: int
    done_15: int
    late: int
    sampled_s: float | None = None
    counted_s: float | None = None

    def per_s(self, minutes: int) -> float:
        """Return the executed runs per second over the last `minutes`, or over the part of them that was counted."""
        seconds = min(minutes * 60.0, self.counted_s or minutes * 60.0)
        return float(getattr(self, f"done_{minutes}")) / max(seconds, 1.0)


@dataclass(frozen=True, slots=True)
class Attention:
    """Runs that ended badly and are still kept; names in `_day` mean the last 24 hours.

    `sampled`: more ended badly within the day than were read, so the counts cover only the newest.
    `uncounted`: more are kept than were read, of the day or of the time before.
    """

    dead: int
    dead_day: int
    missed_day: int
    missed_slots_day: int
    sampled: bool = False
    uncounted: bool = False


@dataclass(frozen=True, slots=True)
class NextFire:
    """The next slot of a job that lies on no excluded date. `in_s`: seconds until then, negative when it is due."""

    name: str
    next_run_at: datetime
    in_s: float
    schedule: str | None
    timezone: str


@dataclass(frozen=True, slots=True)
class Status:
    """The whole system at one moment."""

    findings: list[Problem]  # problems and notes, each with its cause and the remedy
    leader: Leader | None
    workers: list[LiveWorker]
    queues: list[Queue]
    jobs: JobCounts
    finished: Finished
    attention: Attention
    unroutable: list[Unroutable]
    next_fires: list[NextFire]
    errors: list[JobError]
    counted_all: bool = True  # False: there are more open runs than were counted
    paused: list[Paused] = field(default_factory=list)
    limits: list[BindingLimit] = field(default_factory=list)
    full: list[FullQueue] = field(default_factory=list)
    pooler: str | None = None  # the mode of the pooler of this connection: session or transaction
    lost: list[LostWorker] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Whether there is nothing on which an operator has to act."""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """The texts of the problems on which an operator has to act."""
        return [one.text for one in self.findings if not one.note]

    @property
    def notes(self) -> list[Problem]:
        """The notes, which an operator may want to know without having to act."""
        return [one for one in self.findings if one.note]

    def to_dict(self) -> dict[str, Any]:
        """Return the same as JSON can hold it: instants as ISO text."""
        plain: dict[str, Any] = {"healthy": self.healthy, "problems": self.problems, **jsonable(asdict(self))}
        plain["throughput_per_s"] = {f"{m}m": round(self.finished.per_s(m), 3) for m in (1, 5, 15)}
        return plain


def jsonable(value: Any) -> Any:
    """Return the value with instants as ISO text, at any depth."""
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [jsonable(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value
