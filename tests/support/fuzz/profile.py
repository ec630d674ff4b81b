"""How many inputs a test that draws its inputs gets, and which.

In CI each fuzz test gets the same few inputs every time, so that no test is flaky. With PGSCHED_FUZZ=nightly there are
more than 100,000 inputs, and new ones each night:

    PGSCHED_FUZZ=nightly pytest tests -m "long or not long" -k fuzz -n 2 --timeout 7200

A failure prints its input. Add that input to the test with `@example(...)`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

NIGHTLY = os.environ.get("PGSCHED_FUZZ") == "nightly"
# How many inputs: (in CI, nightly).
FUNCTION = (15, 400)
PART = (5, 400)  # for functions that only others call
TABLE = (25, 3_000)
PURE = (60, 4_000)
COMMAND = (4, 120)


def fuzz(size: tuple[int, int], *inputs: SearchStrategy[Any], **named: SearchStrategy[Any]) -> Callable[[Any], Any]:
    """Do the same as hypothesis' `given`, with as many inputs as the profile says."""
    chosen = settings(
        max_examples=size[NIGHTLY],
        derandomize=not NIGHTLY,
        database=None,
        deadline=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
    return lambda test: pytest.mark.fuzz(chosen(given(*inputs, **named)(test)))


def examples(some: int, nightly: int) -> Callable[[Any], Any]:
    """Say how many inputs hypothesis' `given` draws, without a limit of time for each."""
    chosen = settings(max_examples=nightly if NIGHTLY else some, deadline=None)
    return lambda test: pytest.mark.fuzz(chosen(test))
