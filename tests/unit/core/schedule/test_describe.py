"""A description says exactly what a schedule does: read back, it gives the same times and days."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, datetime, timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.schedule.cron import parse
from pgsched.core.schedule.describe import describe
from pgsched.errors import ScheduleError
from tests.support.simulation.oracle import Meaning, draw
from tests.support.simulation.reading import read

DATES = [date(2027, 1, 1) + timedelta(days=n) for n in range(3 * 365)]


@pytest.mark.parametrize(
    ("expression", "sentence"),
    [
        ("* * * * *", "Every minute"),
        ("*/5 * * * *", "Every 5 minutes"),
        ("0-59/15 * * * *", "Every 15 minutes"),
        ("*/10 * * * *", "Every 10 minutes"),
        ("0 2 * * *", "At 02:00 every day"),
        ("@hourly", "Every hour at minute 0"),
        ("@daily", "At 00:00 every day"),
        ("@midnight", "At 00:00 every day"),
        ("@weekly", "At 00:00 every Sunday"),
        ("@monthly", "At 00:00 on day 1 of the month"),
        ("@yearly", "At 00:00 on 1 January"),
        ("@annually", "At 00:00 on 1 January"),
        ("5 * * * *", "Every hour at minute 5"),
        ("3-59/15 * * * *", "Every 15 minutes from minute 3 of every hour"),
        ("*/7 * * * *", "Every 7 minutes from minute 0 through minute 56 of every hour"),
        ("*/7 9-17 * * *",
         "Every 7 minutes from minute 0 through minute 56 of every hour from 09 through 17, every day"),
        ("0,10,25 * * * *", "At minutes 0, 10 and 25 of every hour"),
        ("0,10,25 2,5,7 * * *", "At minutes 0, 10 and 25 of hours 02, 05 and 07, every day"),
        ("0-4,7,30-59 * * * *", "At minutes 0 through 4, 7 and 30 through 59 of every hour"),
        ("0-15 * * * *", "Every minute from minute 0 through minute 15 of every hour"),
        ("* 2 * * *", "Every minute from 02:00 through 02:59, every day"),
        ("* 9-17 * * *", "Every minute from 09:00 through 17:59, every day"),
        ("* 2,5,7 * * *", "Every minute of hours 02, 05 and 07, every day"),
        ("0 */2 * * *", "Every 2 hours from 00:00 through 22:00, every day"),
        ("30 1/2 * * *", "Every 2 hours from 01:30 through 23:30, every day"),
        ("0 9-17 * * 1-5", "Every hour from 09:00 through 17:00, every day from Monday through Friday"),
        ("*/15 9-17 * * MON-FRI", "Every 15 minutes from 09:00 through 17:45, every day from Monday through Friday"),
        ("0 0,12 * * *", "At 00:00 and 12:00 every day"),
        ("0 0,6,12,18 * * *", "At 00:00, 06:00, 12:00 and 18:00 every day"),
        ("15,45 1,2,3 * * *", "Every 30 minutes from 01:15 through 03:45, every day"),
        ("0,1 5,9 * * *", "At 05:00, 05:01, 09:00 and 09:01 every day"),
        ("30 9 * * MON#1", "At 09:30 on the first Monday of every month"),
        ("0 0 * * 5L", "At 00:00 on the last Friday of every month"),
        ("0 0 * * 0", "At 00:00 every Sunday"),
        ("0 0 * * 7", "At 00:00 every Sunday"),
        ("0 0 * * 1,3,5", "At 00:00 every Monday, Wednesday and Friday"),
        ("0 0 * * FRI-SUN", "At 00:00 every day from Friday through Sunday"),
        ("0 0 * * */2", "At 00:00 every Tuesday, Thursday, Saturday and Sunday"),
        ("0 0 * * MON#1,WED", "At 00:00 on Wednesday and the first Monday of the month"),
        ("0 0 * * 2#2,4L", "At 00:00 on the second Tuesday and the last Thursday of every month"),
        ("0 0 1 * *", "At 00:00 on day 1 of the month"),
        ("0 0 1,15 * *", "At 00:00 on days 1 and 15 of the month"),
        ("0 0 1-7 * *", "At 00:00 on days 1 through 7 of the month"),
        ("0 0 */2 * *", "At 00:00 on every 2nd day from day 1 through day 31 of the month"),
        ("0 0 20/5 * *", "At 00:00 on days 20, 25 and 30 of the month"),
        ("0 0 L * *", "At 00:00 on the last day of the month"),
        ("0 0 L,15 2 *", "At 00:00 on day 15 and the last day of February"),
        ("0 0 15W * *", "At 00:00 on the weekday nearest to day 15 of the month"),
        ("0 0 30W 2 *",
         "At 00:00 on the weekday nearest to day 30 (or to the last day, in a shorter month) of February"),
        ("0 0 LW * *", "At 00:00 on the last weekday of the month"),
        ("0 0 1W,15W,L 2 *",
         "At 00:00 on the last day, the weekday nearest to day 1 and the weekday nearest to day 15 of February"),
        ("0 0 1 * 1", "At 00:00 on day 1 of the month or on Monday"),
        ("0 0 1-7 * 1", "At 00:00 on days 1 through 7 of the month or on Monday"),
        ("0 0 13 * */5", "At 00:00 on day 13 of the month if that is a Friday or Sunday"),
        ("0 0 */13 * 5", "At 00:00 on days 1, 14 and 27 of the month if that is a Friday"),
        ("0 0 10 2 FRI#1", "At 00:00 on day 10 of the month or on the first Friday of the month, in February"),
        ("0 0 L 2 MON#1", "At 00:00 on the last day of the month or on the first Monday of the month, in February"),
        ("0 0 15W * TUE#1",
         "At 00:00 on the weekday nearest to day 15 of the month or on the first Tuesday of the month"),
        ("0 0 */10 2 SAT#3,SAT#4",
         "At 00:00 on every 10th day from day 1 through day 31 of the month if that is the third Saturday or "
         "the fourth Saturday of the month, in February"),
        ("0 0 */10 * 1-5,SAT#2",
         "At 00:00 on every 10th day from day 1 through day 31 of the month if that is a day from Monday "
         "through Friday or the second Saturday of the month"),
        ("0 0 L 2 */6", "At 00:00 on the last day of the month if that is a Saturday or Sunday, in February"),
        ("0 0 2W,20W 2 */5",
         "At 00:00 on the weekday nearest to day 2 and the weekday nearest to day 20 of the month if that is a "
         "Friday or Sunday, in February"),
        ("0 0 1,15,L,10W * WED,FRI#2",
         "At 00:00 on days 1 and 15, the last day and the weekday nearest to day 10 of the month or on "
         "Wednesday and the second Friday of the month"),
        ("0 0 1-31 2 FRI#1", "At 00:00 every day in February"),
        ("0 0 29 2 *", "At 00:00 on 29 February"),
        ("0 0 1 1,7 *", "At 00:00 on day 1 of January and July"),
        ("0 0 1 6-8 *", "At 00:00 on day 1 of every month from June through August"),
        ("0 0 * 1,7 MON", "At 00:00 every Monday in January and July"),
        ("0 0 * 6-8 1-5", "At 00:00 every day from Monday through Friday, from June through August"),
        ("0 0 * 6-8 MON#1", "At 00:00 on the first Monday of every month from June through August"),
        ("* * * 1 *", "Every minute, every day in January"),
        ("*/5 * * * MON", "Every 5 minutes, every Monday"),
        ("*/5 * 1 * *", "Every 5 minutes on day 1 of the month"),
        ("* * * * * *", "Every second"),
        ("*/10 * * * * *", "Every 10 seconds"),
        ("3/20 * * * * *", "Every 20 seconds from second 3 of every minute"),
        ("30 * * * * *", "Every minute at second 30"),
        ("30 */5 * * * *", "Every 5 minutes from minute 0 and second 30 of every hour"),
        ("30 15 * * * *", "Every hour at minute 15 and second 30"),
        ("*/7 * * * * *", "Every 7 seconds from second 0 through second 56 of every minute"),
        ("0,30 0 9-17 * * *", "At seconds 0 and 30 of minute 0 of every hour from 09 through 17, every day"),
        ("*/2 1 * * * *", "Every 2 seconds from second 0 through second 58 of minute 1 of every hour"),
        ("*/10 * 2 * * *", "Every 10 seconds from 02:00:00 through 02:59:50, every day"),
        ("15 30 2 * * *", "At 02:30:15 every day"),
        ("0 30 2 * * *", "At 02:30 every day"),
        ("15 30 2,3 * * MON", "At 02:30:15 and 03:30:15 every Monday"),
        ("@every 1s", "Every second, counted from the job's start"),
        ("@every 90s", "Every 90 seconds, counted from the job's start"),
        ("@every 1h", "Every hour, counted from the job's start"),
        ("@every 24h", "Every 24 hours, counted from the job's start"),
        ("@every 7d", "Every 168 hours, counted from the job's start"),
        ("@every 150m", "Every 2 hours 30 minutes, counted from the job's start"),
        ("@every 3725s", "Every 1 hour 2 minutes 5 seconds, counted from the job's start"),
        ("@EVERY 1m30s", "Every 90 seconds, counted from the job's start"),
        ("@after 10m", "10 minutes after the last run ended"),
        ("@after 1s", "1 second after the last run ended"),
        ("@after 1d", "24 hours after the last run ended"),
    ],
)  # fmt: skip
def test_an_expression_is_described_in_plain_english(expression: str, sentence: str) -> None:
    assert describe(expression) == sentence


@pytest.mark.parametrize(
    ("expression", "zone", "sentence"),
    [
        ("30 9 * * MON#1", "Europe/Berlin", "At 09:30 on the first Monday of every month, Europe/Berlin time"),
        ("0 2 * * *", "UTC", "At 02:00 every day, UTC"),
        ("@hourly", "Asia/Kathmandu", "Every hour at minute 0, Asia/Kathmandu time"),
        ("*/10 * * * *", "Asia/Kathmandu", "Every 10 minutes, Asia/Kathmandu time"),
        ("*/5 * * * *", "Asia/Kathmandu", "Every 5 minutes"),
        ("* * * * *", "Asia/Kathmandu", "Every minute"),
        ("*/7 * * * * *", "UTC", "Every 7 seconds from second 0 through second 56 of every minute"),
        ("* * * 1 *", "UTC", "Every minute, every day in January, UTC"),
        ("@every 90s", "Europe/Berlin", "Every 90 seconds, counted from the job's start"),
    ],
)
def test_the_time_zone_is_named_only_where_it_changes_the_times(expression: str, zone: str, sentence: str) -> None:
    assert describe(expression, zone) == sentence
    assert describe(parse(expression, zone)) == sentence


def test_an_invalid_schedule_is_refused() -> None:
    for expression, zone in [("61 * * * *", "UTC"), ("0 0 30 2 *", "UTC"), ("@daily", "Mars/Phobos")]:
        with pytest.raises(ScheduleError):
            describe(expression, zone)


@settings(max_examples=300, deadline=None)
@given(st.text("0123456789*/,-LW#@aeimnoruv ", max_size=30))
def test_any_text_is_described_in_one_line_or_refused(text: str) -> None:
    with suppress(ScheduleError):
        sentence = describe(text, "Asia/Tokyo")
        assert sentence.isprintable() and sentence[0] in "AE123456789"


def told(meaning: Meaning) -> str | None:
    """Return the sentence; None for an expression that never fires."""
    try:
        return describe(meaning.text)
    except ScheduleError as error:
        assert "never fires" in str(error)
        return None


@pytest.mark.few(3)
@pytest.mark.parametrize("seed", range(12))
def test_a_sentence_read_back_gives_the_same_times_and_days(seed: int) -> None:
    rng = Random(seed)
    for _ in range(30):
        meaning = draw(
            rng, datetime(2026, rng.randint(1, 12), rng.randint(1, 28), rng.randrange(24)), six=rng.random() < 0.3
        )
        sentence = told(meaning)
        if sentence is None:
            continue
        times, on_day = read(sentence)
        expected = {h * 3600 + m * 60 + s for h in meaning.hours for m in meaning.minutes for s in meaning.seconds}
        assert times == expected, (meaning.text, sentence)
        wrong = [day for day in DATES if on_day(day) != meaning.on_day(day)]
        assert wrong == [], (meaning.text, sentence)
