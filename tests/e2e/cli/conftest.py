"""Command lines in processes of their own."""

from tests.support.fixtures import no_settings, pgsched, process
from tests.support.logins import logins

__all__ = ["logins", "no_settings", "pgsched", "process"]
