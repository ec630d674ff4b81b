"""The lines about the ends of runs: one each while there are few, summaries while there are many, none when quiet."""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

import pytest

from pgsched import log
from pgsched.core.model import DONE, Claim, Outcome, Result, Settlement
from pgsched.core.wording import format_seconds
from pgsched.worker.observers.events import NO_EVENTS, NoEvents
from pgsched.worker.observers.run_lines import MOST_LINES, UNSETTLED_S, RunLines

FAILED = Outcome(Result.FAILED, error="ValueError: boom")


def claim(number: int, attempt: int = 1) -> Claim:
    return Claim(number, UUID(int=number), attempt, 3, "default", 5, "task", "shop.welcome", {})


def settle(lines: RunLines, count: int, outcome: Outcome = DONE, verdict: str = "succeeded", first: int = 1) -> None:
    claims = [claim(number) for number in range(first, first + count)]
    lines.settled([Settlement.of(one, outcome) for one in claims], [verdict] * count)
    counts = dict(lines.verdicts)
    counts[verdict] = counts.get(verdict, 0) + count
    lines.verdicts = counts


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "pgsched")
    return caplog


def texts(said: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in said.records]


def test_a_success_is_one_line_with_its_time(said: pytest.LogCaptureFixture) -> None:
    lines = RunLines(NO_EVENTS)
    assert lines.wants_times
    lines.attempt_ended(claim(42), 100.0, 100.0124)
    settle(lines, 1, first=42)
    assert texts(said) == ["run 42 shop.welcome succeeded in 12 ms"]


def test_a_failure_is_a_warning_and_a_dead_run_an_error(said: pytest.LogCaptureFixture) -> None:
    lines = RunLines(NO_EVENTS)
    lines.attempt_ended(claim(7), 0.0, 1.5)
    lines.attempt_failed(claim(7), FAILED, 5.0, {"job": 3})
    settle(lines, 1, FAILED, "scheduled", first=7)
    lines.attempt_failed(claim(7, attempt=3), FAILED, 5.0, {})
    settle(lines, 1, FAILED, "dead", first=7)
    assert [(record.levelname, record.getMessage()) for record in said.records] == [
        ("WARNING", "run 7 shop.welcome failed in 1.5 s, attempt 1 of 3, again in 5 s: ValueError: boom job=3"),
        ("WARNING", "run 7 shop.welcome failed, attempt 3 of 3: ValueError: boom"),
        ("ERROR", "run 7 shop.welcome is dead after attempt 1; see: pgsched run show 7"),
    ]


def test_many_runs_are_one_line_and_their_times_are_not_wanted(said: pytest.LogCaptureFixture) -> None:
    lines = RunLines(NO_EVENTS)
    settle(lines, MOST_LINES)
    assert len(texts(said)) == MOST_LINES and lines.wants_times
    settle(lines, 1000)
    settle(lines, 500, FAILED, "dead")
    assert not lines.wants_times
    infos = [record.getMessage() for record in said.records if record.levelno == logging.INFO]
    errors = [record for record in said.records if record.levelno == logging.ERROR]
    assert (len(infos), len(errors)) == (MOST_LINES, MOST_LINES)
    said.clear()

    async def watched() -> None:
        watch = asyncio.create_task(lines.watch())
        await asyncio.sleep(0)
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)

    asyncio.run(watched())
    (summary,) = texts(said)
    assert summary.startswith("1,500 attempts in ") and summary.endswith(": 1,000 succeeded, 500 dead")


def test_a_first_burst_stops_the_measuring_before_anything_is_settled(said: pytest.LogCaptureFixture) -> None:
    lines = RunLines(NO_EVENTS)
    for number in range(MOST_LINES):
        assert lines.wants_times
        lines.attempt_ended(claim(number), 0.0, 1.0)
    assert not lines.wants_times


def test_times_are_wanted_again_soon_after_many_lost_claims(said: pytest.LogCaptureFixture) -> None:
    lines = RunLines(NO_EVENTS)
    for number in range(MOST_LINES):
        lines.attempt_ended(claim(number), 0.0, 1.0)
    lines._turn(2.0)
    assert not lines.wants_times, "they may still be settled"
    lines._turn(1.1 + UNSETTLED_S)
    assert lines.wants_times


def test_a_quiet_worker_measures_and_formats_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "pgsched")
    lines = RunLines(NO_EVENTS)
    assert not lines.wants_times
    settle(lines, 5)
    lines.attempt_failed(claim(1), FAILED, None, {})
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_an_observer_of_times_gets_them_also_while_there_are_many(said: pytest.LogCaptureFixture) -> None:
    class Meter(NoEvents):
        wants_times = True
        times = 0

        def attempt_ended(self, claim: Claim, started: float, now: float) -> None:
            self.times += 1
            self.wants_times = self.times < 2

    lines = RunLines(meter := Meter())
    settle(lines, 1000)
    assert lines.wants_times
    lines.attempt_ended(claim(1), 0.0, 1.0)
    lines.attempt_ended(claim(2), 0.0, 1.0)
    assert meter.times == 2 and not lines.wants_times
    meter.wants_times = True  # as after a look at its times, between two attempts
    assert lines.wants_times


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0004, "0.4 ms"), (0.0124, "12 ms"), (1.234, "1.23 s"), (59.0, "59 s"), (125.0, "2m 5s")]
)
def test_times_are_short(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


@pytest.mark.parametrize(("fmt", "shown"), [("console", "run 1 x succeeded"), ("json", '"run": 1')])
def test_people_read_a_sentence_and_programs_fields(fmt: str, shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    log.configure("info", fmt, process=2)
    log.get("worker").info("run ended", run=1, task="x", **{log.PLAIN: "run 1 x succeeded"})
    line = capsys.readouterr().err
    assert shown in line and "process" in line
    assert ("run ended" in line) is (fmt == "json") and "plain" not in line and "part=" not in line
