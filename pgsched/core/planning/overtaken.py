"""Decide the slots that a change of a calendar has moved behind slots that are decided already.

Invariant: no nominal slot is lost. One that would have to run at an instant that has passed by is recorded as missed.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from pgsched.core.planning.catchup import Decision
from pgsched.core.planning.slot_intervals import slot_before
from pgsched.core.schedule.shift_progress import overtaken
from pgsched.core.schedule.shifted import Shifted

MOST_OVERTAKEN = 1000
OVERTAKEN = "the calendar was changed when later slots were decided already"


def overtaken_slots(job: Mapping[str, Any], schedule: Shifted) -> list[Decision]:
    """Return the decisions for these slots of a job, oldest first."""
    begun = max(filter(None, (job["anchor_at"], job["starts_at"])))
    found = sorted((slot, nominal) for slot, nominal in islice(overtaken(schedule), MOST_OVERTAKEN) if slot >= begun)
    shifts = dict(reversed(found))  # of several nominal instants the first
    return [
        Decision(slot, "missed", OVERTAKEN, None, None, None, interval_start=slot_before(schedule, slot),
                 nominal_at=None if slot == nominal else nominal)
        for slot, nominal in sorted(shifts.items())
    ]  # fmt: skip
