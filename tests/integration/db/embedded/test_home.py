"""Where the embedded server has its home, and that it refuses one that others own or may write to."""

from __future__ import annotations

import os
import sys
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


def test_the_data_directory_follows_the_environment_and_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PGSCHED_HOME", str(tmp_path / "here"))
    assert embedded_server.data_dir() == tmp_path / "here"
    monkeypatch.delenv("PGSCHED_HOME")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert embedded_server.data_dir() == Path("/var/lib/pgsched")
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_DATA_HOME", "/data/of/me")
    assert embedded_server.data_dir() == Path("/data/of/me/pgsched")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert embedded_server.data_dir() == Path("/home/me/.local/share/pgsched")
