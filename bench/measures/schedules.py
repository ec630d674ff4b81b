"""`schedules`: what parsing schedules and finding the next slots costs.

Every figure is wall time in this process, on one core. "Cold": nothing is cached. The promises: parse + one `after` of
an ordinary schedule below 200 us, no call over 50 ms for any expression, zone and time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from random import Random

from bench.report import Result, log_step, median, number, quantile
from pgsched.core.schedule import cron as schedules
from pgsched.core.schedule import zones
from pgsched.core.schedule.cron import Schedule, parse
from pgsched.errors import ScheduleError

ORDINARY = [
    "* * * * *", "*/5 * * * *", "0 * * * *", "0 2 * * *", "30 9 * * 1-5", "0 0 1 * *", "15,45 8-18 * * MON-FRI",
    "0 0 * * SUN", "*/10 * * * * *", "0 4 1,15 * *", "0 0 1 1 *", "@every 90s",
]  # fmt: skip
HARD = [
    "0 0 29 2 */7", "* 2 * 3 SUNL", "0 0 1W,15W,31W */2 */7,MON#5", "* * 30 2 1#5", "0 0 29 2 1#5", "0 0 29W 2 *",
    "* 2 */29 2 0#5", "*/5 2 29 2 */7", "59 59 23 31 12 */7", "0 0 */30 2-3 5#5", "* 2 */28 3 0L", "* * 29 2 5#5,1",
    "1 00-42 02 */25 * 4/7,6#3,*/2", "0 */51 * 17,*/5 * TUE-7,TUEL", "* * 1-30,L * 1-6,0#5",
]  # fmt: skip
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Antarctica/Troll", "Africa/Casablanca", "Pacific/Apia"]
NOW = datetime(2026, 3, 28, 12, tzinfo=UTC)
COUNTED = timedelta(days=199)


def forget() -> None:
    """Clear the caches of parsing. Time zones stay loaded, as in any running process."""
    for one in vars(schedules).values():
        if hasattr(one, "cache_clear") and one.__module__ == schedules.__name__:
            one.cache_clear()


def took(call: Callable[[], object]) -> float:
    """Return the seconds of a call; a refused expression counts like any other."""
    began = time.perf_counter()
    with suppress(ScheduleError):
        call()
    return time.perf_counter() - began


def ordinary(rounds: int) -> Iterator[tuple[str, list[float]]]:
    """Measure parse + one `after` with expressions as people write them."""
    pairs = [(text, zone) for text in ORDINARY for zone in ZONES]
    rng, cold, warm = Random(1), [], []
    for _ in range(rounds):
        text, zone = rng.choice(pairs)
        start = NOW + timedelta(seconds=rng.randrange(300 * 86_400))
        forget()
        cold.append(took(lambda text=text, zone=zone, start=start: parse(text, zone).after(start)))  # type: ignore[misc]
        warm.append(took(lambda text=text, zone=zone, start=start: parse(text, zone).after(start)))  # type: ignore[misc]
    yield "ordinary, first parse + after", cold
    yield "ordinary, known schedule, after", warm


def anything(rounds: int) -> Iterator[tuple[str, list[float]]]:
    """Measure each call by itself, with hard and random expressions, at times of a century."""
    rng = Random(2)
    figures: dict[str, list[float]] = {"parse": [], "after": [], "last": [], "count": []}
    for text in [*HARD * 10, *(random_expression(rng) for _ in range(rounds))]:
        zone, start = rng.choice(ZONES), datetime(2000, 1, 1, tzinfo=UTC) + timedelta(days=rng.random() * 36_500)
        forget()
        figures["parse"].append(took(lambda text=text, zone=zone: parse(text, zone)))  # type: ignore[misc]
        try:
            schedule = parse(text, zone)
        except ScheduleError:
            continue
        measure(schedule, start, figures)
    for name, seconds in figures.items():
        yield f"anything, {name}", seconds


def measure(schedule: Schedule, start: datetime, figures: dict[str, list[float]]) -> None:
    figures["after"].append(took(lambda: schedule.after(start)))
    figures["last"].append(took(lambda: schedule.last(start, start + COUNTED)))
    figures["count"].append(took(lambda: schedule.count(start, start + COUNTED)))


def random_expression(rng: Random) -> str:
    """Return five or six random fields of lists, ranges and steps; days may have L, W and #."""

    def column(low: int, high: int, special: tuple[str, ...] = ()) -> str:
        a, b = sorted((rng.randint(low, high), rng.randint(low, high)))
        plain = ("*", f"*/{rng.randint(1, high)}", str(a), f"{a}-{b}", f"{a}-{b}/{rng.randint(1, high)}", f"{a},{b}")
        return ",".join(rng.choice((*plain, *special)) for _ in range(rng.choice((1, 1, 2, 3))))

    days = column(1, 31, ("L", "LW", f"{rng.randint(1, 31)}W"))
    weekdays = column(0, 6, (f"{rng.randint(0, 6)}#{rng.randint(1, 5)}", f"{rng.randint(0, 6)}L"))
    clock = [column(0, 59), column(0, 59), column(0, 23)][rng.randrange(2) :]
    return " ".join([*clock, days, column(1, 12), weekdays])


def measured(rounds: int) -> Result:
    """Measure everything in this process; the server is not used."""
    for name in ZONES:
        zones.zone(name)
    title = f"Schedules: {rounds:,} rounds, tz database {zones.tzdata_version()}"
    result = Result("schedules", title, ["", "calls", "median", "99 %", "worst", "over 50 ms"])
    for name, seconds in (*ordinary(rounds), *anything(rounds)):
        us = [one * 1e6 for one in seconds]
        figures = {"median_us": median(us), "p99_us": quantile(us, 0.99), "worst_us": max(us)}
        late = sum(one > 0.05 for one in seconds)
        result.rows.append([name, number(len(us)), *[number(one, 1, " us") for one in figures.values()], number(late)])
        result.data[name] = {"calls": len(us), **figures, "over_50_ms": late}
        log_step(f"schedules: {' '.join(result.rows[-1])}")
    return result
