"""Sentry Crons: which monitor a job's columns make."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("sentry_sdk")

from pgsched.contrib.sentry import monitor_of, schedule_of, slug_of

NOTHING = {"has_gaps_or_end": False, "alert_after_failures": None, "max_lateness_s": None, "max_duration_s": None}


def job(**columns: Any) -> dict[str, Any]:
    return {"name": "j", "schedule": "0 2 * * *", "timezone": "UTC", **NOTHING, **columns}


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("0 2 * * *", {"type": "crontab", "value": "0 2 * * *"}),
        ("*/5  9-17 * jan,feb mon-fri", {"type": "crontab", "value": "*/5 9-17 * jan,feb mon-fri"}),
        ("@daily", {"type": "crontab", "value": "@daily"}),
        ("@every 90m", {"type": "interval", "value": 90, "unit": "minute"}),
        ("@every 7200s", {"type": "interval", "value": 2, "unit": "hour"}),
        ("@every 2d", {"type": "interval", "value": 2, "unit": "day"}),
        ("@every 90s", None),
        ("@every 0m", None),
        ("@after 10m", None),
        ("30 0 2 * * *", None),
        ("0 2 L * *", None),
        ("0 2 * * 5#3", None),
        ("0 2 * * *; 0 14 * * *", None),
        ("", None),
    ],
)
def test_a_schedule_is_sent_only_where_sentry_has_the_same(schedule: str, expected: dict[str, Any] | None) -> None:
    assert schedule_of(schedule) == expected


def test_lengths_of_time_are_whole_minutes() -> None:
    found = monitor_of(job(max_lateness_s=61.0, max_duration_s=5.0, alert_after_failures=2))
    assert found is not None
    assert (found["checkin_margin"], found["max_runtime"], found["failure_issue_threshold"]) == (2, 1, 2)
    assert monitor_of(job()) == {"schedule": {"type": "crontab", "value": "0 2 * * *"}, "timezone": "UTC"}
    assert monitor_of(job(schedule=None)) is None
    bounded = job(has_gaps_or_end=True)
    assert monitor_of(bounded) is None, "a calendar, excluded dates, an end: Sentry would miss runs there"


@pytest.mark.parametrize(("name", "slug"), [("nightly", "nightly"), ("a_b-c", "a_b-c")])
def test_a_name_is_its_slug_where_sentry_takes_it(name: str, slug: str) -> None:
    assert slug_of(name) == slug


@pytest.mark.parametrize("name", ["Nightly", "nightly report", "nächtlich", "x" * 200, "日本", "-", "17"])
def test_other_names_get_a_slug_of_their_own(name: str) -> None:
    slug = slug_of(name)
    assert 1 <= len(slug) <= 50
    assert not slug.isdigit(), "Sentry takes no such slug"
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789_-")
    assert slug != slug_of(name + "x")
