"""Fixtures of the chaos tests: a fleet of real worker processes."""

from tests.support.fixtures import fleet

__all__ = ["fleet"]
