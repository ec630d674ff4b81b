"""Fixture of the examples' tests: tests that let hours pass do not begin near a full hour."""

from tests.support.fixtures import no_full_hour

__all__ = ["no_full_hour"]
