"""How long a calculation takes: processor time of this thread, so that nothing else that runs here counts."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable


def took(call: Callable[[], object]) -> float:
    """Seconds; without collecting the garbage of the tests before, which takes longer than what is measured here."""
    gc.disable()
    began = time.thread_time()
    try:
        call()
        return time.thread_time() - began
    finally:
        gc.enable()
