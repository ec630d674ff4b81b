"""Fixtures of the container tests: command lines, run in this process or in one of their own."""

from tests.support.fixtures import no_settings, pgsched, process

__all__ = ["no_settings", "pgsched", "process"]
