"""Measure a calculation in this thread, in processor time or in calls: other threads and programs do not count."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from typing import Any


def took(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes.

    The garbage collector is off: collecting the garbage of earlier tests takes longer than what is measured.
    """
    gc.disable()
    began = time.thread_time()
    try:
        call()
        return time.thread_time() - began
    finally:
        gc.enable()


def count_calls(work: Callable[[], object]) -> int:
    """Return how many functions, also those of C, are called in this thread while `work` runs."""
    count = 0

    def hear(_frame: Any, event: str, _: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(hear)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
