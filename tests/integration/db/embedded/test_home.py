"""The embedded server refuses a home directory that others own or may write to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pgsched.db.embedded import server as embedded_server
from pgsched.errors import EmbeddedUnavailable


def test_a_home_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    home.chmod(0o777)
    with pytest.raises(EmbeddedUnavailable, match="may be written by every user: set PGSCHED_HOME"):
        embedded_server.acquire(home)
    home.chmod(0o755)
    if os.geteuid() == 0:
        os.chown(home, 65534, 0)
        with pytest.raises(EmbeddedUnavailable, match=r"belongs to another user \(uid 65534\): set PGSCHED_HOME"):
            embedded_server.acquire(home)
        os.chown(home, 0, 0)
    (home / "embedded.start").symlink_to(home / "elsewhere")
    with pytest.raises(EmbeddedUnavailable, match=r"embedded\.start"):
        embedded_server.acquire(home)
    assert not (home / "elsewhere").exists()
