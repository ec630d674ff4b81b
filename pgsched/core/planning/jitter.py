"""Compute how much later than its slot a run starts, for a job with jitter.

Invariant: the jitter is a hash of the job and the slot, so every process computes the same start. Jitter moves the
start of a run and never its slot.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from hashlib import blake2b

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)


def offset(job_id: int, scheduled_at: datetime, limit: timedelta) -> timedelta:
    """Return how long after its slot a run starts: at least zero and less than `limit`."""
    width = limit // MICROSECOND
    if width <= 0:
        return timedelta(0)
    # Integers, not isoformat(): the same instant in another zone must hash to the same number.
    slot = (scheduled_at - EPOCH) // MICROSECOND
    digest = blake2b(f"{job_id}:{slot}".encode("ascii"), digest_size=8).digest()
    return (int.from_bytes(digest, "big") * width >> 64) * MICROSECOND
