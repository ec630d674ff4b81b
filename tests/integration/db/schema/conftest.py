"""Fixture of the schema tests: the next release (tests/support/schema/releases.py), made once per process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.schema.releases import next_release


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the next release."""
    return next_release(tmp_path_factory.mktemp("next"))
