"""Real workers that are observed from outside."""

from tests.support.fixtures import fleet

__all__ = ["fleet"]
