"""Check what code declares about a job: the policies, and the types of their values.

Invariant: a wrong declaration is refused where it stands, in the words that the database would use. POLICIES are the
columns of `jobs` that a declaration may set. Each has the check that turns a Python value into the column's value. The
parts of the declaration itself (name, task, schedule, timezone, args) are not among them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypedDict

from pgsched.core import policies
from pgsched.core.input_values import parse_option_duration
from pgsched.core.text import did_you_mean
from pgsched.errors import InputError

Check = Callable[[str, Any], Any]
TEN_YEARS_S = 10 * 360 * 86_400.0  # as PostgreSQL compares intervals: a month has 30 days
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC)
MOST_PARENTS = 100


@dataclass(frozen=True, slots=True)
class JobDeclaration:
    """A job as the code declares it. `policies` holds only the columns that the code sets."""

    name: str
    task: str
    schedule: str
    timezone: str = "UTC"
    args: Any = field(default_factory=dict)
    policies: dict[str, Any] = field(default_factory=dict)


def integer(low: int, high: int) -> Check:
    """Return a check for a whole number from `low` to `high`."""

    def check(name: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool):
            raise InputError(f"{name}: expected a whole number, got {value!r}", name)
        if not low <= value <= high:
            raise InputError(f"{name}: {value} is out of range {low}-{high}", name)
        return int(value)

    return check


def number(low: float, high: float) -> Check:
    """Return a check for a number from `low` to `high`."""

    def check(name: str, value: Any) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool):
            raise InputError(f"{name}: expected a number, got {value!r}", name)
        if not low <= value <= high:
            raise InputError(f"{name}: {value:g} is out of range {low:g}-{high:g}", name)
        return float(value)

    return check


def duration(least_s: float) -> Check:
    """Return a check for seconds, a timedelta or a text such as `1h 30m`, from `least_s` seconds to ten years.

    The check gives a timedelta.
    """

    def check(name: str, value: Any) -> timedelta:
        if isinstance(value, str):
            value = parse_option_duration(name, value)
        seconds = value.total_seconds() if isinstance(value, timedelta) else value
        if not isinstance(seconds, (int, float)) or isinstance(seconds, bool):
            raise InputError(f"{name}: expected seconds, a timedelta or a text such as 1h 30m, got {value!r}", name)
        if not least_s <= seconds <= TEN_YEARS_S:
            raise InputError(f"{name}: {seconds:g} s is out of range {least_s:g} s to 10 years", name)
        return timedelta(seconds=seconds)

    return check


def text(longest: int) -> Check:
    """Return a check for text of 1 to `longest` characters, without control characters or spaces around it."""
    storable = prose(longest)

    def check(name: str, value: Any) -> str:
        found: str = storable(name, value)
        if not found:
            raise InputError(f"{name}: must not be empty", name)
        if any(character < " " or character == "\x7f" for character in found):
            raise InputError(f"{name}: must not contain control characters", name)
        if found != found.strip(" "):
            raise InputError(f"{name}: must not begin or end with a space", name)
        return found

    return check


def prose(longest: int) -> Check:
    """Return a check for any text of at most `longest` characters, such as several lines for people."""

    def check(name: str, value: Any) -> str:
        if not isinstance(value, str):
            raise InputError(f"{name}: expected text, got {value!r}", name)
        if len(value) > longest:
            raise InputError(f"{name}: {len(value)} characters, at most {longest} are allowed", name)
        if "\0" in value:
            raise InputError(f"{name}: must not contain control characters", name)
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise InputError(f"{name}: holds half a surrogate pair, which is not text", name)
        return str.__str__(value)  # a str enum's member has another text of its own

    return check


def one_of(*words: str) -> Check:
    """Return a check for one of these words."""

    def check(name: str, value: Any) -> str:
        if value not in words:
            hint = did_you_mean(value, words) if isinstance(value, str) else ""
            raise InputError(f'{name}: "{value}" is not one of {", ".join(words)}{hint}', name)
        return words[words.index(value)]  # a str enum's member equals its word, but prints differently

    return check


def boolean(name: str, value: Any) -> bool:
    """Check for True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name}: expected True or False, got {value!r}", name)
    return value


def instant(name: str, value: Any) -> datetime:
    """Check for a datetime with a time zone, between the years 1970 and 9000."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise InputError(f"{name}: expected a datetime with a time zone, got {value!r}", name)
    if not EARLIEST <= value <= LATEST:
        raise InputError(f"{name}: {value} is not an instant between 1970 and 9000", name)
    return value


def labels(name: str, value: Any) -> list[str]:
    """Check for a list of at most 100 words."""
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{name}: expected a list of text, got {value!r}", name)
    if len(value) > 100:
        raise InputError(f"{name}: {len(value)} tags, at most 100 are allowed", name)
    return [LABEL(name, item) for item in value]


def jobs_named(name: str, value: Any) -> list[str]:
    """Check for a list of names of at most 100 jobs."""
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{name}: expected a list of the names of jobs, got {value!r}", name)
    found = sorted({LABEL(name, item) for item in value})
    if len(found) > MOST_PARENTS:
        raise InputError(f"{name}: {len(found)} jobs, at most {MOST_PARENTS} are allowed", name)
    return found


def zero_or(check: Check) -> Check:
    """Return a check that also takes 0, which means: not watched, whatever the defaults say."""

    def either(name: str, value: Any) -> Any:
        return check(name, value) if value or isinstance(value, bool) else duration(0)(name, value)

    return either


def url(name: str, value: Any) -> str:
    """Check for a text that begins as a URL of http; the database checks the rest."""
    found: str = text(8000)(name, value)
    if not found.lower().startswith(("http://", "https://")):
        raise InputError(f"{name}: a URL must begin with http:// or https://", name)
    return found


def sink_names(name: str, value: Any) -> list[str]:
    """Check for a list of at most 20 names of sinks."""
    if not isinstance(value, (list, tuple)) or not all(isinstance(item, str) for item in value):
        raise InputError(f"{name}: expected a list of names, got {value!r}", name)
    if len(value) > 20:
        raise InputError(f"{name}: {len(value)} names, at most 20 are allowed", name)
    for item in value:
        if not SINK.fullmatch(item):
            raise InputError(f'{name}: "{item[:60]}" is no name of 1-63 characters a-z, 0-9, - and _', name)
    return list(value)


LABEL = text(200)
SINK = re.compile("[a-z0-9_-]{1,63}")
OUTCOMES = ("succeeded", "dead", "cancelled", "skipped", "missed", "any")


def keep_intervals(name: str, value: Any) -> dict[str, str]:
    """Check how long ended runs are kept, and return the intervals by outcome.

    The value is one duration for all runs, or a mapping from outcomes (or "any") to these.
    """
    given = value if isinstance(value, dict) else {"any": value}
    for outcome in given:
        if outcome not in OUTCOMES:
            raise InputError(f'{name}: "{outcome}" is not one of {", ".join(OUTCOMES)}', name)
    check = duration(0)
    return {outcome: f"{check(name, one).total_seconds():.15g} seconds" for outcome, one in given.items()}


Duration = float | timedelta | str


class JobKeywords(TypedDict, total=False):
    """The policies of `@app.job`: columns of `jobs`, each as code gives it. None takes the default."""

    description: str | None
    queue: str | None
    priority: int | None
    tags: list[str] | tuple[str, ...] | None
    starts_at: datetime | None
    ends_at: datetime | None
    max_runs: int | None
    jitter: Duration | None
    delete_after_run: bool | None
    overlap: Literal["allow", "skip", "buffer_one", "buffer_all", "replace", "terminate"] | None
    max_buffer: int | None
    retry_within: Duration | None
    misfire_after: Duration | None
    catch_up: Literal["latest", "skip", "earliest", "all"] | None
    max_catch_up: int | None
    catch_up_window: Duration | None
    calendar: str | None
    on_excluded: Literal["skip", "next_business_day", "previous"] | None
    start_deadline: Duration | None
    max_attempts: int | None
    timeout: Duration | None
    kill_after: Duration | None
    backoff: Literal["exponential", "linear", "fixed"] | None
    backoff_base: Duration | None
    backoff_max: Duration | None
    backoff_jitter: float | None
    concurrency_key: str | None
    concurrency_limit: int | None
    after_jobs: list[str] | tuple[str, ...] | set[str] | frozenset[str] | None
    after_match: Literal["same", "latest", "since_last"] | None
    paused: bool | None
    mode: Literal["run", "shadow"] | None
    keep: Duration | Mapping[str, Duration] | None
    alert_after_failures: int | None
    max_lateness: Duration | None
    max_duration: Duration | None
    expect_every: Duration | None
    finish_by: Duration | None
    pause_after_failures: int | None
    alert_to: list[str] | tuple[str, ...] | None
    ping_url: str | None


POLICIES: dict[str, Check] = {
    "description": prose(65_536),
    "queue": text(100),
    "priority": integer(0, 9),
    "tags": labels,
    "starts_at": instant,
    "ends_at": instant,
    "max_runs": integer(1, 2**31 - 1),
    "jitter": duration(0),
    "delete_after_run": boolean,
    "overlap": one_of(*policies.OVERLAP),
    "max_buffer": integer(1, 100_000),
    "retry_within": duration(0),
    "misfire_after": duration(0),
    "catch_up": one_of(*policies.CATCH_UP),
    "max_catch_up": integer(1, 10_000),
    "catch_up_window": duration(0),
    "calendar": text(200),
    "on_excluded": one_of(*policies.ON_EXCLUDED),
    "start_deadline": duration(1),
    "max_attempts": integer(1, 1000),
    "timeout": duration(0.001),
    "kill_after": duration(0),
    "backoff": one_of(*policies.BACKOFF),
    "backoff_base": duration(0),
    "backoff_max": duration(0),
    "backoff_jitter": number(0, 1),
    "concurrency_key": text(200),
    "concurrency_limit": integer(0, 1_000_000),
    "after_jobs": jobs_named,
    "after_match": one_of(*policies.AFTER_MATCH),
    "paused": boolean,
    "mode": one_of(*policies.MODES),
    "keep": keep_intervals,
    "alert_after_failures": integer(0, 1000),
    "max_lateness": zero_or(duration(1)),
    "max_duration": zero_or(duration(1)),
    "expect_every": zero_or(duration(1)),
    "finish_by": zero_or(duration(1)),
    "pause_after_failures": integer(1, 1000),
    "alert_to": sink_names,
    "ping_url": url,
}


def check_policies(given: dict[str, Any]) -> dict[str, Any]:
    """Return the policies of a job with a schedule as values of their columns.

    Raises InputError, naming the policy, for a wrong one, and for policies that exclude each other.
    """
    for name in given:
        if name not in POLICIES:
            raise InputError(
                f"{name}: no such policy; known are {', '.join(POLICIES)}{did_you_mean(name, POLICIES)}", name
            )
    found = {name: POLICIES[name](name, value) for name, value in given.items() if value is not None}
    for name, problem in conflicts(found):
        raise InputError(f"{name}: {problem}", name)
    return found


def conflicts(given: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is wrong between the policies of a job with a schedule: `job_error` says the same in the database."""
    starts_at, ends_at = given.get("starts_at"), given.get("ends_at")
    if starts_at is not None and ends_at is not None and ends_at <= starts_at:
        yield "ends_at", "must be later than starts_at"
    overlap = given.get("overlap", "skip")
    if "retry_within" in given and overlap != "skip":
        yield "retry_within", f'is for overlap "skip" alone, not "{overlap}"'
    if "start_deadline" in given and given["start_deadline"] <= given.get("jitter", timedelta(0)):
        yield "start_deadline", "must be longer than jitter"
    if given.get("delete_after_run"):
        yield "delete_after_run", "is for jobs that run once; this one has a schedule"
