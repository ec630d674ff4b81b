"""Fixtures of the CLI tests: command lines, run in this process or in one of their own, and logins of roles."""

from tests.support.fixtures import no_settings, pgsched, process
from tests.support.logins import logins

__all__ = ["logins", "no_settings", "pgsched", "process"]
