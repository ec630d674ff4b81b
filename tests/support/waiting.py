"""Wait in tests for a condition, never for a fixed time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import pytest

T = TypeVar("T")


def wait_until(condition: Callable[[], T], timeout: float = 30.0, what: str = "the condition") -> T:
    """Poll until `condition()` is true, and return its value; fail the test with `what` after `timeout` seconds."""
    deadline = time.monotonic() + timeout
    pause = 0.01
    while not (value := condition()):
        if time.monotonic() > deadline:
            pytest.fail(f"waited {timeout:g} s for {what}; the last value was {value!r}", pytrace=True)
        time.sleep(pause)
        pause = 0.02
    return value
