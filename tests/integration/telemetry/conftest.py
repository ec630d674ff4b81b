"""Fixtures: real workers that tests observe from outside, and commands in processes of their own."""

from tests.support.fixtures import fleet, process

__all__ = ["fleet", "process"]
