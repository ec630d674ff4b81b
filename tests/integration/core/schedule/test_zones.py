"""Every process uses the time zones of the `tzdata` package, whatever zone files the host has."""

from __future__ import annotations

import subprocess
import sys
import zoneinfo
from importlib.resources import files
from pathlib import Path

import pytest

from pgsched.core.schedule import zones
from pgsched.core.schedule.cron import parse
from pgsched.errors import ScheduleError
from tests.support.paths import ROOT

pytestmark = pytest.mark.packages

ASK = """
import sys, zoneinfo
from datetime import UTC, datetime
from pgsched.core.schedule import zones
from pgsched.core.schedule.cron import parse
noon = datetime(2026, 7, 1, 12, tzinfo=UTC)
print(zoneinfo.ZoneInfo("Europe/Berlin").utcoffset(noon), parse("0 12 * * *", "Europe/Berlin").after(noon).hour)
print(zoneinfo.TZPATH == (sys.argv[1],))
"""


def test_altered_zone_files_of_the_host_do_not_change_schedules(tmp_path: Path) -> None:
    (tmp_path / "Europe").mkdir()
    tokyo = files("tzdata").joinpath("zoneinfo", "Asia", "Tokyo").read_bytes()
    (tmp_path / "Europe" / "Berlin").write_bytes(tokyo)
    done = subprocess.run(
        [sys.executable, "-c", ASK, str(tmp_path)],
        env={"PYTHONTZPATH": str(tmp_path), "PATH": "/usr/bin:/bin"}, cwd=ROOT,
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    # The user's own code still reads the host's file for Berlin (Tokyo's UTC+9); schedules use the real UTC+2.
    assert done.stdout.split() == ["9:00:00", "10", "True"]


def test_a_zone_that_only_the_host_knows_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "Mars").write_bytes(files("tzdata").joinpath("zoneinfo", "UTC").read_bytes())
    monkeypatch.setattr(zoneinfo, "TZPATH", (str(tmp_path),))
    with pytest.raises(ScheduleError, match="not a known IANA zone"):
        zones.zone("Mars")


def test_every_zone_of_the_tz_database_is_read_once() -> None:
    for name in zones.names():
        assert zones.zone(name).key == name
        assert parse("0 12 * * *", name).timezone == name
    assert zones.zone("Europe/Berlin") is zones.zone("Europe/Berlin")


def test_the_release_of_the_tz_database_is_known() -> None:
    year, letter = zones.tzdata_version()[:4], zones.tzdata_version()[4:]
    assert int(year) >= 2024 and letter.isalpha()
