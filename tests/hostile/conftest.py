"""Fixtures of the hostile tests: logins of the roles, and the work of bob, which those logins must not disturb."""

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
    """The work of bob, done by two worker processes, one of which leads."""
    with victim_on(logins, db, tmp_path) as begun:
        yield begun
