"""Fill the slot into the text of a command, a shell line or a request: `{slot:%Y-%m-%d}`.

Invariant: a run that belongs to no job is never changed. Templates are for declarations; the arguments of an enqueue
are data, whatever braces they hold.
"""

from __future__ import annotations

from pgsched.core.model import Claim
from pgsched.core.schedule.slot_text import SlotWriter, fill, has_token, local_slot
from pgsched.errors import ScheduleError


def fill_slot(claim: Claim) -> Claim:
    """Return the claim with its slot in place of each token of its task and arguments.

    Raises InputError for a wrong token, and ScheduleError for a zone that this worker does not know.
    """
    if claim.job_id is None or claim.scheduled_at is None or not has_token([claim.task, claim.args]):
        return claim
    write = SlotWriter(local_slot(claim.scheduled_at, claim.slot_zone)).write
    return claim._replace(task=fill("task", claim.task, write), args=fill("args", claim.args, write))


def is_unknown_zone(error: Exception) -> bool:
    """Check whether another worker, with a newer tz database, may know what this one does not."""
    return isinstance(error, ScheduleError)
