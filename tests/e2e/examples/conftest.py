"""Tests in which hours pass keep off the full hour."""

from tests.support.fixtures import no_full_hour

__all__ = ["no_full_hour"]
