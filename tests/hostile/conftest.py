"""Logins of the roles, and somebody else's work that must not notice what they do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.fixtures import app, pgsched
from tests.support.hostile.victim import Victim, victim_on
from tests.support.logins import Logins, logins

__all__ = ["app", "logins", "pgsched", "victim"]


@pytest.fixture
def victim(logins: Logins, db: psycopg.Connection[Any], tmp_path: Path) -> Iterator[Victim]:
    """Bob's work, done by two worker processes of which one leads."""
    with victim_on(logins, db, tmp_path) as begun:
        yield begun
