"""Fixtures: an app on the test's database, logins of the roles, and no start near a full hour.

The last fixture is for tests that move the clock, because their jobs are due at full hours.
"""

from tests.support.fixtures import app, greet, no_full_hour
from tests.support.logins import logins

__all__ = ["app", "greet", "logins", "no_full_hour"]
