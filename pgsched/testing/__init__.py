"""The test kit: record or run what a test enqueues without a database, or drain the queues of a real one.

See docs/how-to/testing.md. The fixtures are in `pgsched.testing.plugin`, which pytest loads by itself. Therefore the
names below are imported when first used, and cost nothing in a project whose tests do not use them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pgsched.testing.asserting import assert_enqueued as assert_enqueued
    from pgsched.testing.asserting import enqueued as enqueued
    from pgsched.testing.asserting import refute_enqueued as refute_enqueued
    from pgsched.testing.clock import Clock as Clock
    from pgsched.testing.clock import DatabaseClock as DatabaseClock
    from pgsched.testing.draining import drain as drain
    from pgsched.testing.draining import drain_async as drain_async
    from pgsched.testing.found import Enqueued as Enqueued
    from pgsched.testing.recorder import Recorder as Recorder
    from pgsched.testing.recorder import inline as inline
    from pgsched.testing.recorder import record as record

_HOMES = {
    "Clock": "clock",
    "DatabaseClock": "clock",
    "Enqueued": "found",
    "Recorder": "recorder",
    "assert_enqueued": "asserting",
    "drain": "draining",
    "drain_async": "draining",
    "enqueued": "asserting",
    "inline": "recorder",
    "record": "recorder",
    "refute_enqueued": "asserting",
}
__all__ = [*_HOMES]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pgsched.testing' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"pgsched.testing.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
