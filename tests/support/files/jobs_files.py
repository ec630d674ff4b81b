"""Files of jobs for tests: a model from text, a state from a model, and random values of every column."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

from pgsched.core.jobs_file.model.columns import COLUMNS, JOB, What
from pgsched.core.jobs_file.model.entries import JobsFile, State, Stored
from pgsched.core.jobs_file.model.loading import load
from pgsched.core.jobs_file.model.spans import Span
from pgsched.core.jobs_file.texts.reading import read_document
from pgsched.core.policies import AFTER_MATCH, ON_EXCLUDED

NOW = datetime(2026, 11, 27, 10, tzinfo=UTC)
WORDS = (
    *("a", "b c", "on", "1e3", "0x1f", "0o7", "null", "~", "22:00", "- x", "a: b", "#c", "<<", "'q'", '"', "é☃𝄞", "="),
    *("2026-12-24", "1_000", "yes", "*x", "&y", "!z", "%t", "@r", "`", "{", "[", ",", "?", "|", ">", ".inf", "0777"),
)  # fmt: skip
ZONES = ("UTC", "Europe/Berlin", "America/New_York")
SCHEDULES = (
    *("0 2 * * *", "*/5 * * * *", "@daily", "@every 90s", "30 2 * * 1-5", "15 30 1 * * *"),
    *("*/15 8-18 * * mon-fri; 0 22 * * *", "@daily;30 2 1W,15 * *"),
)


def file_of(text: str, name: str = "jobs.yaml") -> JobsFile:
    return load(read_document(name, text.encode()))


def state_of(file: JobsFile, owner: str | None, now: datetime = NOW, **facts: Any) -> State:
    """Return the state of a database in which everything is as the file says."""
    row = {"id": 1, "run_count": 0, "error": None, "anchor_at": now, "decided_until": now, "next_run_at": now}
    row |= {"shifts": None} | facts
    stored = {
        entry.key: Stored(entry.what, entry.name, entry.values, owner, row=row if entry.what is What.JOB else {})
        for entry in file.entries.values()
    }
    return State(now, stored, dict.fromkeys(stored, owner) if owner is not None else {})


class RandomValues:
    """Random values of columns, as a file's model has them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def text(self, longest: int = 40) -> str:
        return " ".join(self.rng.choice(WORDS) for _ in range(self.rng.randint(1, 4)))[:longest].strip() or "x"

    def prose(self) -> str:
        return self.rng.choice(["\n", "\n\n", " ", "\t", "\n  "]).join(
            self.text() for _ in range(self.rng.randint(1, 4))
        )

    def span(self) -> Span:
        rng = self.rng
        microseconds = rng.choice([1_500_000, 90 * 10**6, 3_600 * 10**6, 86_399_123_456])
        return Span(rng.choice([0, 0, 0, 1, 13]), rng.choice([0, 0, 1, 40]), microseconds)

    def json(self, depth: int = 0) -> Any:
        rng = self.rng
        kind = rng.randint(0, 8 if depth < 3 else 5)
        if kind >= 7:
            return {self.text(): self.json(depth + 1) for _ in range(rng.randint(0, 3))}
        if kind == 6:
            return [self.json(depth + 1) for _ in range(rng.randint(0, 3))]
        return rng.choice([None, True, False, rng.randint(-(10**18), 10**18), rng.random() * 10 ** rng.randint(-9, 9),
                           self.text(), self.prose(), "", -0.0, 1.0])  # fmt: skip

    def dates(self) -> list[str]:
        first, found = date(2027, 1, 1), []
        for _ in range(self.rng.randint(1, 3)):
            first += timedelta(days=self.rng.randint(1, 30))
            last = first + timedelta(days=self.rng.choice([0, 0, 3]))
            found.append(f"{first}{'' if first == last else f'..{last}'}" + self.rng.choice(["", f": {self.text()}"]))
            first = last
        return found

    def times(self) -> list[dict[str, Any]]:
        rng = self.rng
        choices: list[Callable[[], dict[str, Any]]] = [
            lambda: {"from": str(date(2027, 1, rng.randint(1, 28)))},
            lambda: {"from": "2027-02-01", "until": str(date(2027, 2, rng.randint(1, 28))), "reason": self.text()},
            lambda: {"weekdays": rng.sample(["sun", "mon", "sat"], rng.randint(1, 3))},
            lambda: {"from_time": str(time(rng.randint(0, 9))), "until_time": str(time(rng.randint(10, 23), 30))},
            lambda: {"from_time": "18:00:30.25", "until_time": "24:00", "weekdays": ["fri"], "from": "2027-03-01"},
        ]
        return [rng.choice(choices)() for _ in range(rng.randint(1, 4))]

    def watched(self) -> dict[str, Any]:
        """Return what is watched, as a job and the defaults of alerts have it."""
        lengths = ("max_lateness", "max_duration", "expect_every", "finish_by")
        return {
            "alert_after_failures": self.rng.randint(0, 9),
            **{name: self.rng.choice([str(self.span()), 0]) for name in lengths},
            "alert_to": self.rng.choice([[], ["ops"], ["mail", "on-call_2"]]),
        }

    def job(self) -> dict[str, Any]:
        """Return a job as a file has it: a random half of the columns, with values that go together."""
        rng = self.rng
        kind = rng.choice(["task", "shell", "sql"])
        values: dict[str, Any] = {
            "description": self.prose(), "kind": kind, "task": self.text() if kind == "task" else self.prose(),
            "args": {self.text(): self.json() for _ in range(2)} if kind == "task" else {}, "queue": self.text(),
            "priority": rng.randint(0, 9), "tags": [self.text() for _ in range(3)], "timezone": rng.choice(ZONES),
            "starts_at": "2027-01-01 00:00+01:00", "ends_at": "2028-01-01 12:30:00.5+00:00",
            "max_runs": rng.randint(1, 99),
            "jitter": str(self.span()), "excluded_dates": self.dates(), "on_excluded": rng.choice(ON_EXCLUDED),
            "overlap": rng.choice(["allow", "skip"]), "max_buffer": rng.randint(1, 99),
            "misfire_after": str(self.span()),
            "catch_up": rng.choice(["all", "latest", "skip"]), "max_catch_up": rng.randint(1, 99),
            "catch_up_window": str(self.span()), "max_attempts": rng.randint(1, 9),
            "timeout": str(self.span()), "kill_after": str(self.span()), "backoff": rng.choice(["linear", "fixed"]),
            "backoff_base": str(self.span()), "backoff_max": str(self.span()),
            "backoff_jitter": rng.choice([0, 0.125, 1]),
            "success_codes": [0, rng.randint(1, 9)], "retry_codes": [rng.randint(10, 20)], "dead_codes": [99],
            "concurrency_key": "k-" + self.text(), "concurrency_limit": rng.randint(0, 9),
            "after_match": rng.choice(AFTER_MATCH), "mode": rng.choice(["run", "shadow"]),
            "keep": {"dead": str(self.span()), "any": str(self.span())}, **self.watched(),
            "pause_after_failures": rng.randint(1, 9), "ping_url": "https://example.com/" + str(rng.randint(1, 9)),
        }  # fmt: skip
        job = {name: value for name, value in values.items() if name in {"kind", "task"} or rng.random() < 0.5}
        if job.get("overlap", "skip") == "skip" and rng.random() < 0.3:
            job["retry_within"] = str(self.span())
        if rng.random() < 0.3:
            job["start_deadline"] = "800 days"
        if rng.random() < 0.8:
            job["schedule"] = rng.choice(SCHEDULES)
        elif rng.random() < 0.5:
            job |= {"run_at": "2027-06-01 00:00:00+00:00", "delete_after_run": rng.random() < 0.5}
        if rng.random() < 0.3:
            job |= {"paused": True, "paused_reason": self.prose(), "paused_by": self.text(), "resume_from": "pause"}
        return job

    def file(self, jobs: int) -> dict[str, Any]:
        """Return the values of a file with something in each section."""
        rng = self.rng
        names = [f"{self.text()} {n}" for n in range(jobs)]
        found: dict[str, Any] = {}
        for at, name in enumerate(names):
            found[name] = self.job()
            if at and rng.random() < 0.3:
                found[name]["after"] = sorted(rng.sample(names[:at], min(at, 2)))
            if rng.random() < 0.3:
                found[name]["calendar"] = "holidays"
        rate = {"rate": rng.randint(1, 99), "rate_period": str(Span(microseconds=rng.randint(1000, 10**9)))}
        return {
            "jobs": found,
            "queues": {self.text(): {"max_depth": 7, "on_full": "shed_oldest", **rate},
                       "q": {"fair": True, "ageing": "9s", "keep": "3 days", "concurrency_limit": 4}},
            "limits": {"customer": {"concurrency": 2, "ordered": True, "weight": 9}, "l": {**rate, "rate_burst": 5}},
            "pauses": [{"what": "queue", "name": "q", "reason": self.prose(), "resume_at": "2090-01-01 00:00+00:00"},
                       {"what": "all"}, {"what": "task", "name": self.text()}],
            "calendars": {"holidays": {"description": self.prose(), "times": self.times()}, "empty": {}},
            "retention": {"keep": {"any": "9 days"}, "archive": True, "keep_minutes": "36 hours"},
            "alerts": {**self.watched(), "dead_runs": rng.randint(1, 9), "dead_runs_within": "10 minutes"},
        }  # fmt: skip


def every_column_is_random(files: list[dict[str, Any]]) -> None:
    """Check that the files together use each column of jobs."""
    used = {column for file in files for job in file["jobs"].values() for column in job}
    assert {*JOB} - used == set()
    assert COLUMNS[What.JOB] is JOB
