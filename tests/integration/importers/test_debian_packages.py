"""Crontabs and timers of Debian packages, as they are: each line is exact, or says why not.

The packages are downloaded into a temporary folder, and nothing of them is kept. Without apt-get, dpkg-deb and an
archive of Debian the test is skipped.
"""

from __future__ import annotations

import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml

from pgsched.core.schedule.cron import parse
from pgsched.importers.imported import Imported, Reason, merge_imported
from pgsched.importers.jobs_text import write_jobs_file
from pgsched.importers.systemd.timers import TimerOptions
from pgsched.services.importing.crontabs import CrontabSource, read_crontabs
from pgsched.services.importing.units import read_timers
from tests.support.importing.slots import away_from_changes, imported_slots
from tests.support.importing.systemd_time import SystemdEvent
from tests.support.importing.vixie import Vixie

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]
LIMIT_S = 600
NOW = datetime(2026, 5, 1, tzinfo=UTC)
PACKAGES = [
    "amavisd-new", "anacron", "apt", "awstats", "btrfsmaintenance", "cacti", "certbot", "dpkg", "e2fsprogs",
    "etckeeper", "fwupd", "logcheck", "logrotate", "man-db", "mdadm", "munin", "php-common", "plocate",
    "postgresql-common", "roundcube-core", "rsnapshot", "snapper", "sysstat", "systemd", "util-linux",
]  # fmt: skip
UNITS = ("lib/systemd/system", "usr/lib/systemd/system")
ZONES = ["UTC", "Europe/Berlin"]


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return the folders of the packages that the archive has, each with its crontabs and units."""
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        pytest.skip("no apt-get here")
    folder = tmp_path_factory.mktemp("packages")
    download(PACKAGES, folder)
    for archive in [*folder.glob("*.deb")]:
        subprocess.run(
            ["dpkg-deb", "-x", archive, folder / archive.name.partition("_")[0]], check=True, timeout=LIMIT_S
        )
        archive.unlink()
    found = sorted(folder.iterdir())
    if not found:
        pytest.skip("no archive of Debian can be reached from here")
    assert len(found) >= 20, [path.name for path in found]
    return found


def download(names: list[str], folder: Path) -> None:
    """Download packages, all by one call, which reads apt's lists once; each by itself if the archive lacks one."""
    done = subprocess.run(
        ["apt-get", "download", "-qq", *names], cwd=folder, capture_output=True, timeout=LIMIT_S, check=False
    )
    if done.returncode != 0 and len(names) > 1:
        for name in names:
            download([name], folder)


def crontabs(packages: list[Path], zone: str) -> Imported:
    places = [path / "etc" / "cron.d" for path in packages]
    return merge_imported(read_crontabs(CrontabSource(str(place), zone, NOW)) for place in places if place.is_dir())


def timers(packages: list[Path], zone: str) -> Imported:
    places = [path / units for path in packages for units in UNITS]
    return merge_imported(read_timers([str(place)], TimerOptions(zone, NOW)) for place in places if place.is_dir())


def lines_of(packages: list[Path]) -> int:
    """Return how many lines of the crontabs have a command."""
    texts = [file.read_text() for path in packages for file in (path / "etc" / "cron.d").glob("*") if file.is_file()]
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return sum(
        bool(line) and not line.startswith("#") and not line.split("=")[0].strip().isidentifier() for line in lines
    )


@pytest.mark.parametrize("zone", ZONES)
def test_each_line_of_a_crontab_is_exact_or_says_why_not(packages: list[Path], zone: str) -> None:
    imported = crontabs(packages, zone)
    assert len(imported.jobs) + len(imported.omitted) == lines_of(packages) > 15
    assert {one.remark.reason for one in imported.omitted} <= {Reason.AT_REBOOT}
    assert sum(job.exact for job in imported.jobs) / len(imported.jobs) >= 0.95
    for job in imported.jobs:
        times = " ".join(job.source.split()[:5]) if not job.source.startswith("@") else job.source.split()[0]
        assert imported_slots(job.columns, NOW, 500) == Vixie(times, zone).slots(NOW, 500), job
    assert len(yaml.safe_load(write_jobs_file(imported, title="All"))["jobs"]) == len(
        {job.name for job in imported.jobs}
    )


@pytest.mark.parametrize("zone", ZONES)
def test_each_timer_is_exact_or_says_why_not(packages: list[Path], zone: str) -> None:
    imported = timers(packages, zone)
    files = {name for path in packages for units in UNITS for name in names_of_timers(path / units)}
    assert {one.where for one in (*imported.jobs, *imported.omitted)} == files and len(files) > 20
    assert {one.remark.reason for one in imported.omitted} <= {Reason.TEMPLATE, Reason.AT_REBOOT, Reason.NO_UNIT}
    inexact = {remark.reason for job in imported.jobs for remark in job.remarks if not remark.reason.informs}
    assert inexact <= {Reason.MONOTONIC, Reason.CLOCK_CHANGE} - ({Reason.CLOCK_CHANGE} if zone == "UTC" else set())
    for job in imported.jobs:
        parse(job.columns["schedule"], job.columns["timezone"])
        if job.source.count("=") == 1 and job.source.startswith("OnCalendar="):
            ours = imported_slots(job.columns, NOW, 500)
            theirs = SystemdEvent(job.source.removeprefix("OnCalendar="), zone).slots(NOW, 500)
            if not job.exact:
                last = min(ours[-1], theirs[-1])
                ours, theirs = (away_from_changes([s for s in one if s <= last], zone) for one in (ours, theirs))
            assert ours == theirs, job


def names_of_timers(folder: Path) -> list[str]:
    return [path.name for path in (folder.iterdir() if folder.is_dir() else ()) if path.suffix == ".timer"]
