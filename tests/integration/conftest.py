"""An app on the test's database, logins of the roles; tests in which hours pass keep off the full hour."""

from tests.support.fixtures import app, greet, no_full_hour
from tests.support.logins import logins

__all__ = ["app", "greet", "logins", "no_full_hour"]
