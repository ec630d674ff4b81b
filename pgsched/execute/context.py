"""What a handler may know about the attempt it is part of: one frozen value, for a parameter annotated `Run`."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID


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
