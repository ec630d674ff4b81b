"""Check in a recorded history of attempts that no concurrency limit, rate or order was ever violated.

An attempt is recorded with the database's times: from its claim until it was settled, or taken back from a dead worker.
Read a history from a database, or from a file of JSON lines that `--save` wrote:

    python -m pgsched.chaos.checks.limits --dsn DSN --save history.jsonl --key customer=2 --queue emails=5
    python -m pgsched.chaos.checks.limits history.jsonl --key customer=2 --key-rate api=100/60+10 --ordered account

A limit of keys holds for each key with that prefix. N/P+B: at most N + B starts in any window of P seconds.

A queue's limit holds for the runs that were enqueued after the limit took effect. With --dsn, that time is read from
queues.applied_at; with a file, give it by --since.

The exit code is 1 if something is violated; each violation is a line.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import psycopg

from pgsched.chaos.checks.owners import changes_by_run, ownerships
from pgsched.chaos.history import History

READ = """
SELECT a.run_id, r.queue, r.concurrency_key, extract(epoch FROM a.started_at)::float8,
    extract(epoch FROM a.finished_at)::float8, a.outcome, extract(epoch FROM r.ready_at)::float8,
    extract(epoch FROM r.created_at)::float8
FROM pgsched.attempts a JOIN pgsched.runs r ON r.id = a.run_id WHERE a.started_at IS NOT NULL
UNION ALL
SELECT r.id, r.queue, r.concurrency_key, extract(epoch FROM r.started_at)::float8,
    extract(epoch FROM r.finished_at)::float8, r.state, extract(epoch FROM r.ready_at)::float8,
    extract(epoch FROM r.created_at)::float8
FROM pgsched.runs r WHERE r.started_at IS NOT NULL AND (r.state IN ('succeeded', 'running'))
    AND NOT EXISTS (SELECT FROM pgsched.attempts a WHERE a.run_id = r.id AND a.token = r.token)
"""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt. Times are in seconds since 1970.

    `finished`: None while the attempt runs.
    `ready`: when only limits kept the run from starting.
    `created`: when the run was enqueued.
    """

    run_id: int
    queue: str
    key: str | None
    started: float
    finished: float | None
    outcome: str
    ready: float | None = None
    created: float | None = None


IN_FORCE = "SELECT name, extract(epoch FROM applied_at)::float8 FROM pgsched.queues WHERE applied_at IS NOT NULL"


def limits_in_force_since(conn: psycopg.Connection) -> dict[str, float]:
    """Return when the limit of each queue took effect, in seconds since 1970."""
    return {str(name): float(at) for name, at in conn.execute(IN_FORCE.encode()).fetchall()}


def limited_attempts(attempts: Iterable[Attempt], since: float) -> list[Attempt]:
    """Return the attempts of runs that were enqueued after `since`; only these are limited."""
    return [attempt for attempt in attempts if attempt.created is None or attempt.created > since]


def read_attempts(conn: psycopg.Connection) -> list[Attempt]:
    """Read the history from a database."""
    return [Attempt(*row) for row in conn.execute(READ.encode()).fetchall()]


def load_attempts(path: Path) -> list[Attempt]:
    """Read a saved history."""
    return [Attempt(**json.loads(line)) for line in path.read_text().splitlines()]


def save(history: Iterable[Attempt], path: Path) -> None:
    """Write a history as JSON lines."""
    path.write_text("".join(json.dumps(asdict(attempt)) + "\n" for attempt in history))


def by_key(history: Iterable[Attempt], prefix: str) -> dict[str, list[Attempt]]:
    """Group the attempts by their key, for the keys that the limit `prefix` applies to."""
    found: dict[str, list[Attempt]] = defaultdict(list)
    for attempt in history:
        if attempt.key is not None and (attempt.key == prefix or attempt.key.startswith(f"{prefix}:")):
            found[attempt.key].append(attempt)
    return found


def most_at_once(attempts: Iterable[Attempt]) -> tuple[int, float]:
    """Return the greatest number of attempts that ran at the same time, and when it was reached.

    An attempt that ends at an instant makes room for one that starts at the same instant.
    """
    events = []
    for attempt in attempts:
        events.append((attempt.started, 1))
        if attempt.finished is not None:
            events.append((attempt.finished, -1))
    now, most, when = 0, 0, 0.0
    for at, step in sorted(events):
        now += step
        if now > most:
            most, when = now, at
    return most, when


def most_starts(attempts: Iterable[Attempt], period: float) -> tuple[int, float]:
    """Return the greatest number of starts in any window of `period` seconds, and when that window begins."""
    starts = sorted(attempt.started for attempt in attempts)
    most, when, first = 0, 0.0, 0
    for place, start in enumerate(starts):
        while start - starts[first] >= period:
            first += 1
        if place - first + 1 > most:
            most, when = place - first + 1, starts[first]
    return most, when


def check_concurrency(name: str, attempts: Sequence[Attempt], limit: int) -> Iterator[str]:
    """Yield a line if more than `limit` attempts ran at the same time."""
    most, when = most_at_once(attempts)
    if most > limit:
        yield f"{name}: {most} at once at {when:.6f}, {limit} are allowed"


def check_rate(name: str, attempts: Sequence[Attempt], rate: int, period: float, burst: int) -> Iterator[str]:
    """Yield a line if more than `rate` + `burst` attempts started in any window of `period` seconds."""
    most, when = most_starts(attempts, period)
    if most > rate + burst:
        yield f"{name}: {most} starts in {period:g} s from {when:.6f} on, {rate} + {burst} are allowed"


def check_order(name: str, attempts: Sequence[Attempt]) -> Iterator[str]:
    """Yield a line for each run that started before its turn.

    A run holds its key from its first start until its last attempt has ended. Runs start in the order in which they
    became ready.
    """
    spans: dict[int, list[float]] = {}
    for attempt in sorted(attempts, key=lambda a: a.started):
        span = spans.setdefault(attempt.run_id, [attempt.ready or 0.0, attempt.started, 0.0])
        span[2] = max(span[2], float("inf") if attempt.finished is None else attempt.finished)
    in_turn = sorted(spans.items(), key=lambda one: one[1][1])
    for (earlier, before), (later, after) in pairwise(in_turn):
        if after[1] < before[2]:
            yield f"{name}: run {later} started at {after[1]:.6f}, run {earlier} ended at {before[2]:.6f}"
        if (after[0], later) < (before[0], earlier):
            yield f"{name}: run {later} was ready before run {earlier} and started after it"


def find_limit_violations(
    history: Sequence[Attempt],
    keys: dict[str, int] | None = None,
    queues: dict[str, int] | None = None,
    key_rates: dict[str, tuple[int, float, int]] | None = None,
    queue_rates: dict[str, tuple[int, float, int]] | None = None,
    ordered: Iterable[str] = (),
    since: dict[str, float] | None = None,
) -> list[str]:
    """Return every violation as a line; an empty list means that no limit was exceeded.

    `since`: when the limit of each queue took effect, in seconds since 1970.
    """
    begins: Callable[[str], float] = lambda name: (since or {}).get(name, 0.0)  # noqa: E731
    in_queue: Callable[[str], list[Attempt]] = lambda name: limited_attempts(  # noqa: E731
        (a for a in history if a.queue == name), begins(name)
    )
    found: list[str] = []
    for prefix, limit in (keys or {}).items():
        for key, attempts in by_key(history, prefix).items():
            found += check_concurrency(f"key {key}", attempts, limit)
    for name, limit in (queues or {}).items():
        found += check_concurrency(f"queue {name}", in_queue(name), limit)
    for prefix, rate in (key_rates or {}).items():
        for key, attempts in by_key(history, prefix).items():
            found += check_rate(f"key {key}", attempts, *rate)
    for name, rate in (queue_rates or {}).items():
        found += check_rate(f"queue {name}", in_queue(name), *rate)
    for prefix in ordered:
        for key, attempts in by_key(history, prefix).items():
            found += check_order(f"key {key}", attempts)
    return found


def check_recorded_limits(history: History) -> Iterator[str]:
    """Check that no limit in the history's settings was exceeded.

    Attempts are counted in the order of the journal's numbers, so the result does not depend on any clock.
    """
    keys = {run.id: run.key for run in history.runs if run.key is not None}
    spans = [
        one for run_id, changes in changes_by_run(history).items() if run_id in keys for one in ownerships(changes)
    ]
    attempts = [
        Attempt(one.run_id, "", keys[one.run_id], one.claimed.seq, one.released.seq if one.released else None, "")
        for one in spans
    ]
    for name, most in history.settings.get("limits", {}).items():
        for key, group in by_key(attempts, name).items():
            number, when = most_at_once(group)
            if number > most:
                yield f"key {key}: {number} at once at entry {when:.0f} of the journal, {most} are allowed"


def parse_limit(text: str) -> tuple[str, int]:
    """Parse NAME=N."""
    name, _, number = text.rpartition("=")
    return name, int(number)


def parse_since(text: str) -> tuple[str, float]:
    """Parse NAME=SECONDS."""
    name, _, at = text.rpartition("=")
    return name, float(at)


def parse_rate(text: str) -> tuple[str, tuple[int, float, int]]:
    """Parse NAME=N/P+B: N starts in P seconds, and B more in a burst."""
    name, _, figures = text.rpartition("=")
    starts, _, figures = figures.partition("/")
    period, _, burst = figures.partition("+")
    return name, (int(starts), float(period), int(burst))


def main() -> int:
    """Run the command line: print the violations, and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, help="a saved history")
    parser.add_argument("--dsn", help="read the history of this database")
    parser.add_argument("--save", type=Path, help="save what was read")
    parser.add_argument("--key", type=parse_limit, action="append", default=[], metavar="PREFIX=N")
    parser.add_argument("--queue", type=parse_limit, action="append", default=[], metavar="NAME=N")
    parser.add_argument("--key-rate", type=parse_rate, action="append", default=[], metavar="PREFIX=N/P+B")
    parser.add_argument("--queue-rate", type=parse_rate, action="append", default=[], metavar="NAME=N/P+B")
    parser.add_argument("--ordered", action="append", default=[], metavar="PREFIX")
    parser.add_argument("--since", type=parse_since, action="append", default=[], metavar="QUEUE=SECONDS")
    given = parser.parse_args()
    if (given.dsn is None) == (given.file is None):
        parser.error("give a file, or --dsn")
    since = dict(given.since)
    if given.dsn is not None:
        with psycopg.connect(given.dsn, autocommit=True) as conn:
            history = read_attempts(conn)
            since = limits_in_force_since(conn) | since
    else:
        history = load_attempts(given.file)
    if given.save:
        save(history, given.save)
    found = find_limit_violations(
        history, dict(given.key), dict(given.queue), dict(given.key_rate), dict(given.queue_rate), given.ordered, since
    )
    print("\n".join(found) or f"{len(history)} attempts: no limit was exceeded")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
