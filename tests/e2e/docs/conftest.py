"""Nothing of the caller's environment reaches a page, and tests in which hours pass keep off the full hour."""

from tests.support.fixtures import no_full_hour, no_settings, pgsched, process

__all__ = ["no_full_hour", "no_settings", "pgsched", "process"]
