"""Fixtures: commands in processes of their own."""

from tests.support.fixtures import process

__all__ = ["process"]
