"""What `status` tells: values, each read at the same moment."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from pgsched.core.facts import (
    Binding,
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
from pgsched.core.health import Problem


@dataclass(frozen=True, slots=True)
class Finished:
    """Runs executed in the last minutes, and slots of the last day that started late.

    Where the system is so busy that only the newest runs were read, `sampled_s` says how far back those reach of which
    the late ones were counted, and `counted_s` those that were executed; counts over longer times are then too low.
    """

    done_1: int
    done_5: int
    done_15: int
    late: int
    sampled_s: float | None = None
    counted_s: float | None = None

    def per_s(self, minutes: int) -> float:
        """Executed runs a second over the last minutes (or over what was counted of them)."""
        seconds = min(minutes * 60.0, self.counted_s or minutes * 60.0)
        return float(getattr(self, f"done_{minutes}")) / max(seconds, 1.0)


@dataclass(frozen=True, slots=True)
class Attention:
    """Runs that ended badly and are still kept; `_day`: in the last 24 hours. `sampled`: there were more in these than
    were read, and the counts are of the newest. `uncounted`: so there are in all, of which fewer are read."""

    dead: int
    dead_day: int
    missed_day: int
    missed_slots_day: int
    sampled: bool = False
    uncounted: bool = False


@dataclass(frozen=True, slots=True)
class NextFire:
    """A slot that comes next, on no excluded date. `in_s`: seconds until then, negative when it is due."""

    name: str
    next_run_at: datetime
    in_s: float
    schedule: str | None
    timezone: str


@dataclass(frozen=True, slots=True)
class Status:
    """The whole system at one moment."""

    findings: list[Problem]  # what is wrong, or worth a note, each with its cause and what to do
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
    limits: list[Binding] = field(default_factory=list)
    full: list[FullQueue] = field(default_factory=list)
    pooler: str | None = None  # session or transaction: what this very connection goes through
    lost: list[LostWorker] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        """Is there nothing that somebody has to act on?"""
        return not self.problems

    @property
    def problems(self) -> list[str]:
        """What somebody has to act on."""
        return [one.text for one in self.findings if not one.note]

    @property
    def notes(self) -> list[Problem]:
        """What somebody may want to know, and need not act on."""
        return [one for one in self.findings if one.note]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON can hold it: instants as ISO text."""
        plain: dict[str, Any] = {"healthy": self.healthy, "problems": self.problems, **jsonable(asdict(self))}
        plain["throughput_per_s"] = {f"{m}m": round(self.finished.per_s(m), 3) for m in (1, 5, 15)}
        return plain


def jsonable(value: Any) -> Any:
    """Instants become ISO text, at any depth."""
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [jsonable(item) for item in value]
    return value.isoformat() if isinstance(value, datetime) else value
