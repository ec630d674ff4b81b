"""Fixtures that run commands: in this process on the test's database, or in a process of their own."""

from tests.support.fixtures import no_settings, pgsched, process

__all__ = ["no_settings", "pgsched", "process"]
