"""Command lines in this process, on the test's database."""

from tests.support.fixtures import no_settings, pgsched, process

__all__ = ["no_settings", "pgsched", "process"]
