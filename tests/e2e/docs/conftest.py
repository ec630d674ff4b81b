"""Fixtures of the docs tests.

No setting of the caller's environment reaches a page. Tests that let hours pass do not begin near a full hour.
"""

from tests.support.fixtures import no_full_hour, no_settings, pgsched, process

__all__ = ["no_full_hour", "no_settings", "pgsched", "process"]
