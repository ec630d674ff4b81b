"""What a handler may know about the attempt it is part of: one frozen value, for a parameter annotated `Run`."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any
from uuid import UUID

from pgsched.execute.capture import Record
from pgsched.execute.capture_lines import log_line

INFINITE = math.inf


@dataclass(frozen=True, slots=True)
class Run:
    """One attempt. `scheduled_at` is the job's slot, None for an ad-hoc run.

    `cancelled` is set when the attempt is to stop. An async handler is cancelled as well; a sync one has to look, with
    `run.cancelled.is_set()` or, instead of sleeping, `run.cancelled.wait(seconds)`.
    """

    id: int
    job_id: int | None
    scheduled_at: datetime | None
    attempt: int
    token: UUID
    cancelled: threading.Event = field(default_factory=threading.Event, repr=False, compare=False)
    record: Record | None = field(default=None, repr=False, compare=False)

    def log(self, text: str, **fields: Any) -> None:
        """Add a line to the run's output, with `name=value` after it for each field. Shown by `pgsched run logs`."""
        if self.record is not None:
            self.record.write("log", log_line(text, fields))

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Say how far it is: `done` of `total`, and a word about it. Written about once a second, however often it is
        called. Raises TypeError or ValueError where `done` or `total` is no number from 0 on."""
        if not (0 <= done < INFINITE and (total is None or 0 <= total < INFINITE)):
            raise ValueError(f"progress: expected finite numbers from 0 on, got {done!r} and {total!r}")
        if self.record is not None:
            self.record.progress(done, total, note)
