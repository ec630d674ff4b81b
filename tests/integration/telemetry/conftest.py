"""Real workers that are observed from outside."""

from tests.support.fixtures import fleet, process

__all__ = ["fleet", "process"]
