"""The allowed values of each policy column: one tuple for each set of values. And presets, as of cron or Kubernetes.

Invariant: the checks of the schema, of declarations, of forms and of the API allow exactly these values
(tests/unit/core/test_policy_values.py).

A preset is a short way to write columns. The row holds plain values, and nothing remembers the preset. Every preset
decides the same columns, so a job that changes from one preset to another keeps nothing of the first.
docs/concepts/policies.md says where each value comes from (tests/unit/core/test_presets.py compares).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from enum import IntEnum
from typing import Any

from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

# What happens to a due slot while earlier runs of its job are not finished.
OVERLAP = ("allow", "skip", "buffer_one", "buffer_all", "replace", "terminate")
# Which late slots run.
CATCH_UP = ("latest", "skip", "earliest", "all")
# What happens to a slot at an excluded time.
ON_EXCLUDED = ("skip", "next_business_day", "previous")
# How the wait between attempts grows.
BACKOFF = ("exponential", "linear", "fixed")
# Which slots of the jobs that a job waits for a slot needs.
AFTER_MATCH = ("same", "latest", "since_last")
# Whether slots of a job become runs, or are only recorded ("shadow").
MODES = ("run", "shadow")
# What happens to a run when a run that it waits for does not succeed.
ON_FAILURE = ("cancel", "run_anyway", "wait")
# What a second enqueue with the same unique key does.
ON_CONFLICT = ("return", "reject", "replace", "keep_time", "merge")


# What happens to an enqueue into a full queue.
ON_FULL = ("reject", "shed_oldest")
# What can be paused: everything, a queue or a task.
PAUSED = ("all", "queue", "task")
# What the programs that use a lock call it.
LOCK_KINDS = ("lock", "election")


class Phase(IntEnum):
    """The coarse state of a run that the indexes use: `runs.phase` follows from `runs.state`."""

    WAITING = 0  # for other runs, the overlap policy or limits
    SCHEDULED = 1  # until an instant
    CLAIMABLE = 2  # queued, or claimed and running
    ENDED_WELL = 3
    ENDED_BADLY = 4


LONGEST = timedelta(days=3600)  # ten years, the longest length of time that a column takes

# None is the default of the column. For the attempts of a run, it is the default of the task.
PRESETS: dict[str, dict[str, Any]] = {
    "cron": {
        "overlap": "allow", "retry_within": None,
        "misfire_after": timedelta(minutes=1), "catch_up": "skip", "catch_up_window": None, "start_deadline": None,
        "max_attempts": 1, "backoff": None, "backoff_base": None, "backoff_max": None, "backoff_jitter": None,
    },
    "kubernetes": {
        "overlap": "allow", "retry_within": None,
        "misfire_after": timedelta(minutes=1), "catch_up": "latest", "catch_up_window": LONGEST,
        "start_deadline": None,
        "max_attempts": 7, "backoff": "exponential", "backoff_base": timedelta(seconds=10),
        "backoff_max": timedelta(minutes=6), "backoff_jitter": 0.0,
    },
    "temporal": {
        "overlap": "skip", "retry_within": None,
        "misfire_after": timedelta(minutes=1), "catch_up": "earliest", "catch_up_window": timedelta(days=365),
        "start_deadline": None,
        "max_attempts": 1000, "backoff": "exponential", "backoff_base": timedelta(seconds=1),
        "backoff_max": timedelta(seconds=100), "backoff_jitter": 0.0,
    },
    "celery": {
        "overlap": "allow", "retry_within": None,
        "misfire_after": timedelta(minutes=1), "catch_up": "latest", "catch_up_window": LONGEST,
        "start_deadline": None,
        "max_attempts": 1, "backoff": None, "backoff_base": None, "backoff_max": None, "backoff_jitter": None,
    },
}  # fmt: skip


def apply_preset(like: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a preset and the given ones; a given column wins, also with the value None.

    `like`: the name of a preset, or None for no preset. Raises InputError for an unknown name.
    """
    if like is None:
        return dict(given)
    if like not in PRESETS:
        raise InputError(f'like: "{like}" is not one of {", ".join(PRESETS)}{did_you_mean(like, PRESETS)}', "like")
    return {**PRESETS[like], **given}


def describe_preset(like: str, given: Collection[str]) -> str:
    """Describe the columns that a preset sets beside the given ones: `overlap allow, max_attempts 1`."""
    columns = {column: value for column, value in PRESETS[like].items() if column not in given and value is not None}
    return ", ".join(f"{column} {preset_value_text(value)}" for column, value in columns.items())


def preset_value_text(value: Any) -> str:
    """Format a value of a preset as options and SQL take it: `365 days`, `10 seconds`, `0`, `allow`."""
    if isinstance(value, timedelta):
        seconds = int(value.total_seconds())
        size, unit = next(one for one in ((86_400, "day"), (60, "minute"), (1, "second")) if seconds % one[0] == 0)
        return f"{seconds // size} {unit}{'s' if seconds != size else ''}"
    return f"{value:g}" if isinstance(value, float) else str(value)
