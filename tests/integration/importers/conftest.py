"""Fixtures that run commands in this process, on the test's database."""

from tests.support.fixtures import no_settings, pgsched

__all__ = ["no_settings", "pgsched"]
