"""The test kit: run tasks inline or record what is enqueued, without a database; or drain queues of a real one.

See docs/testing.md. The fixtures are in `pgsched.testing.plugin`, which pytest loads by itself.
"""

from __future__ import annotations

from pgsched.testing.asserting import assert_enqueued, enqueued, refute_enqueued
from pgsched.testing.clock import Clock, DatabaseClock
from pgsched.testing.draining import drain, drain_async
from pgsched.testing.found import Enqueued
from pgsched.testing.recorder import Recorder, inline, record

__all__ = [
    "Clock",
    "DatabaseClock",
    "Enqueued",
    "Recorder",
    "assert_enqueued",
    "drain",
    "drain_async",
    "enqueued",
    "inline",
    "record",
    "refute_enqueued",
]
