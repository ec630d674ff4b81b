"""Django's priorities (-100 to 100, higher goes first) as pgsched's (0 to 9, lower goes first).

Invariant: a run of a higher class goes first. Runs of one class go in the order in which they are due.

| Django | 81 to 100 | 61 to 80 | 41 to 60 | 21 to 40 | 1 to 20 | 0 | -1 to -25 | -26 to -50 | -51 to -75 | to -100 |
|---|---|---|---|---|---|---|---|---|---|---|
| pgsched | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 | 8 | 9 |

Source: `Task.priority` in docs.djangoproject.com/en/stable/ref/tasks/.
"""

from __future__ import annotations

LOWEST, HIGHEST = -100, 100
MIDDLE = 5
UPWARDS, DOWNWARDS = 20, 25  # values of Django in each class above and below 0


def priority_of(value: float) -> int:
    """Return pgsched's priority for one of Django's, which may be a float without a fraction."""
    number = int(value)
    return MIDDLE - -(-number // UPWARDS) if number > 0 else MIDDLE + -(number // DOWNWARDS)


def django_value_of(priority: int) -> int:
    """Return the value of Django that is nearest to 0 among those of one of pgsched's priorities."""
    if priority < MIDDLE:
        return (MIDDLE - 1 - priority) * UPWARDS + 1
    return 0 if priority == MIDDLE else -(priority - MIDDLE - 1) * DOWNWARDS - 1
