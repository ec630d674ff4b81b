"""The next release (releases.py), made once for each process of the test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.schema.releases import next_release


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the next release."""
    return next_release(tmp_path_factory.mktemp("next"))
