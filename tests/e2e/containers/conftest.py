"""Where people run it."""

from tests.support.fixtures import no_settings, pgsched, process

__all__ = ["no_settings", "pgsched", "process"]
