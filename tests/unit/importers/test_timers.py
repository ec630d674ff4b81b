"""Jobs made of timers: policies, delays, intervals, templates, queues, and almost all of real units exact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pgsched.errors import InputError
from pgsched.importers.imported import Imported, ImportedJob, Reason
from pgsched.importers.systemd.timers import TimerOptions, import_timers
from pgsched.importers.systemd.units import UnitFiles
from pgsched.services.importing.units import read_timers
from tests.support.importing.slots import imported_slots

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SAMPLES = Path(__file__).parent / "samples" / "units"
SERVICE = "[Unit]\nDescription=Runs x\n[Service]\nType=oneshot\nExecStart=/bin/x\n"


def read(*lines: str, service: str = SERVICE, files: Any = None, **options: Any) -> Imported:
    texts = {"a.timer": "[Timer]\n" + "\n".join(lines) + "\n", "a.service": service} if files is None else files
    return import_timers(UnitFiles(texts), TimerOptions(options.pop("timezone", "UTC"), NOW, **options))


def job(*lines: str, **options: Any) -> ImportedJob:
    imported = read(*lines, **options)
    assert len(imported.jobs) == 1, imported.omitted
    return imported.jobs[0]


def reasons(found: ImportedJob) -> list[Reason]:
    return [remark.reason for remark in found.remarks]


def test_a_timer_becomes_a_job() -> None:
    found = job("OnCalendar=*-*-* 02:30")
    assert found.exact and (found.name, found.where, found.source) == ("a", "a.timer", "OnCalendar=*-*-* 02:30")
    assert {name: value for name, value in found.columns.items() if name != "args"} == {
        "description": "Runs x", "schedule": "30 2 * * *", "timezone": "UTC", "kind": "command", "task": "/bin/x",
        "queue": "root", "overlap": "skip", "catch_up": "skip", "max_attempts": 1,
    }  # fmt: skip


@pytest.mark.parametrize(("lines", "columns", "found"), [
    (["Persistent=true"], {"catch_up": "latest", "catch_up_window": timedelta(days=3600)}, [Reason.PERSISTENT]),
    (["RandomizedDelaySec=1h"], {"jitter": timedelta(hours=1)}, [Reason.JITTER]),
    (["RandomizedDelaySec=1h", "FixedRandomDelay=yes"], {"jitter": timedelta(hours=1)}, [Reason.RANDOM_DELAY]),
    (["RandomizedDelaySec=0"], {}, []),
    (["AccuracySec=12h"], {}, []),
    (["WakeSystem=yes"], {}, [Reason.WAKE_SYSTEM]),
    (["OnClockChange=on", "OnTimezoneChange=on"], {}, [Reason.CLOCK_TRIGGER, Reason.CLOCK_TRIGGER]),
    (["OnBootSec=5min"], {}, [Reason.AT_REBOOT]),
    (["OnUnitActiveSec=1h"], {"schedule": "0 0 * * *"}, [Reason.MONOTONIC]),
    (["OnCalendar=nonsense"], {"schedule": "0 0 * * *"}, [Reason.SYNTAX]),
    (["SomethingNew=1"], {}, [Reason.SCHEDULE]),
    (["[Unit]", "ConditionVirtualization=!container"], {}, [Reason.CONDITION]),
])  # fmt: skip
def test_settings_of_a_timer(lines: list[str], columns: dict[str, Any], found: list[Reason]) -> None:
    imported = job("OnCalendar=daily", *lines)
    assert {name: imported.columns[name] for name in columns} == columns
    assert reasons(imported) == found


@pytest.mark.parametrize(("lines", "schedule", "overlap"), [
    (["OnBootSec=15min", "OnUnitActiveSec=1d"], "@every 1d", "buffer_one"),
    (["OnActiveSec=1", "OnUnitActiveSec=90s"], "@every 1m30s", "buffer_one"),
    (["OnUnitInactiveSec=10min"], "@after 10m", "skip"),
])  # fmt: skip
def test_intervals_count_from_other_instants(lines: list[str], schedule: str, overlap: str) -> None:
    found = job(*lines)
    assert (found.columns["schedule"], found.columns["overlap"]) == (schedule, overlap)
    assert Reason.MONOTONIC in reasons(found) and not found.exact


@pytest.mark.parametrize(("files", "reason"), [
    ({"a.timer": "[Timer]\nOnBootSec=5min\n", "a.service": SERVICE}, Reason.AT_REBOOT),
    ({"a.timer": "[Timer]\n", "a.service": SERVICE}, Reason.SYNTAX),
    ({"a.timer": "[Timer]\nOnCalendar=x y z\n", "a.service": SERVICE}, Reason.SYNTAX),
    ({"a.timer": "[Timer]\nOnUnitActiveSec=1us\n", "a.service": SERVICE}, Reason.SCHEDULE),
    ({"a.timer": "[Timer]\nOnCalendar=daily\n"}, Reason.NO_UNIT),
    ({"a.timer": "[Timer]\nOnCalendar=daily\nUnit=b.target\n", "a.service": SERVICE}, Reason.NO_UNIT),
    ({"a@.timer": "[Timer]\nOnCalendar=daily\n", "a@.service": SERVICE}, Reason.TEMPLATE),
    ({"a.timer": "[Timer]\nOnCalendar=%H\n", "a.service": SERVICE}, Reason.SCHEDULE),
])  # fmt: skip
def test_what_becomes_no_job(files: dict[str, str], reason: Reason) -> None:
    imported = read(files=files)
    assert imported.jobs == [] and [one.remark.reason for one in imported.omitted] == [reason]


def test_an_instance_of_a_template() -> None:
    files = UnitFiles(
        {"b@.timer": "[Timer]\nOnCalendar=%i\nUnit=run@%i.service\n",
         "run@.service": SERVICE.replace("/bin/x", "/bin/x %i")},
        instances=["b@daily.timer", "b@weekly.timer"], masked=frozenset({"c.timer"}),
    )  # fmt: skip
    imported = import_timers(files, TimerOptions("UTC", NOW))
    assert [(one.name, one.columns["schedule"], one.columns["args"]["argv"]) for one in imported.jobs] == [
        ("b@daily", "0 0 * * *", ["daily"]), ("b@weekly", "0 0 * * mon", ["weekly"]),
    ]  # fmt: skip
    assert [(one.where, one.remark.reason) for one in imported.omitted] == [("c.timer", Reason.NO_UNIT)]


def test_the_user_of_a_service_is_a_queue() -> None:
    service = SERVICE + "User=shop\n"
    found = job("OnCalendar=daily", service=service)
    assert found.columns["queue"] == "shop" and found.exact
    found = job("OnCalendar=daily", service=service, queue="{user}@web1")
    assert found.columns["queue"] == "shop@web1" and found.exact
    found = job("OnCalendar=daily", service=service, queue="web1")
    assert found.columns["queue"] == "web1" and reasons(found) == [Reason.USER_LOST]


def test_a_service_that_remains_is_started_once_only() -> None:
    found = job("OnCalendar=daily", service=SERVICE + "RemainAfterExit=yes\n")
    assert Reason.SCHEDULE in reasons(found) and found.columns["task"] == "systemctl"


def test_almost_all_timers_of_real_machines_are_exact() -> None:
    imported = read_timers([str(SAMPLES)], TimerOptions("UTC", NOW))
    jobs = {one.name: one for one in imported.jobs}
    assert imported.omitted == [] and len(jobs) > 20
    assert sum(one.exact for one in imported.jobs) / len(jobs) >= 0.95
    assert {reason for reason in imported.count_reasons() if not reason.informs} == {Reason.MONOTONIC}
    assert jobs["backup@home"].columns["schedule"] == "15 3 * * *"
    assert jobs["backup@mail"].columns["args"]["argv"] == ["/srv/mail", "--name", "backup@mail.service"]
    assert jobs["raid-check"].columns["args"]["argv"] == ["--duration", "6 hours"]
    for one in imported.jobs:
        if not one.columns["schedule"].startswith("@"):
            assert imported_slots(one.columns, NOW, 3)


def test_a_timer_that_no_link_enables_is_paused() -> None:
    texts = {f"{name}.timer": "[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n" for name in "ab"}
    texts |= {f"{name}.service": SERVICE for name in "abc"} | {"c.timer": "[Timer]\nOnCalendar=daily\n"}
    options = TimerOptions("UTC", NOW)
    found = import_timers(UnitFiles(texts, enabled=frozenset({"a.timer"})), options)
    assert [job.columns.get("paused") for job in found.jobs] == [None, True, None]
    assert reasons(found.jobs[1]) == [Reason.SUSPENDED]
    assert all("paused" not in job.columns for job in import_timers(UnitFiles(texts), options).jobs)


def test_a_drop_in_that_cannot_be_read_is_a_difference() -> None:
    texts = {"a.timer": "[Timer]\nOnCalendar=daily\n", "a.service": SERVICE}
    files = UnitFiles(texts, [{"a.service": {"x.conf": InputError("is a binary file")}}])
    (found,) = import_timers(files, TimerOptions("UTC", NOW)).jobs
    assert [(one.reason, one.text) for one in found.remarks] == [
        (Reason.UNREADABLE, "a.service.d/x.conf: is a binary file")
    ]
