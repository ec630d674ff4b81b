"""The database and the program accept the same schedules and time zones.

They refuse all others in the same words.
"""

from __future__ import annotations

import time

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pgsched.core.schedule import grammar, zones
from pgsched.errors import ScheduleError
from tests.support.fuzz.profile import NIGHTLY


def words(*texts: str) -> list[str]:
    return [word for text in texts for word in text.split()]


ITEMS = words(
    "* 0 1 5 7 05 31 59 60 61 99999999999999999999 jan DEC Feb sun MON fri L l LW 15W 32w 0W 5# 5#3 5#03 5#6 FRI#2 8#1 "
    "1#2#3 1#1-5#2 mon#x#1 FRI#2/1#1 1##2 1#2# "
    "5L friL fooL H H/5 H(1-5)/2 R ? */5 */0 */99 5/7 3/1 1-5 5-1 FRI-SUN FRI-MON 5-7 7-7 7-2 SUN-TUE 7-0 0-7 NOV-FEB "
    "L5 l7 L8 L05 Lfri W15 w1 W32 W0 1W,15W W1,W15 L5,5L W15-16 W "
    "1-5/2 1-5/ 1/2/3 - -5 5- 1--2 1-2-3 , ,1 1, 1,,2 *,5 *5 ** # L-3 1-L L/2 15W/2 1.5 +5 é ٣ @daily"
)
INTERVALS = words("90s 1h30m 0s 5m3h 99999d 10000d 10000d1s 1.5h -5s 1h,1m s 1D 000001S 5 ''")
HEADS = words("@every @EVERY @after @After @daily @Daily @midnight @reboot @fortnightly @ TZ=UTC CRON_TZ=UTC tz=")
ENGLISH = words(
    "every each on at the of and in daily hourly weekly monthly everyday day days week weeks month months hour hours "
    "minute minutes min second seconds s m h d monday Mondays tue Tues wednesday thursday FRI saturday sundays sunday "
    "weekday weekdays weekend 9am 9 12 12am 12pm 0 24 25 13pm 9:30 09:05 9:30pm 24:00 9:60 am pm noon midnight first "
    "last 1st 2nd 31st 32nd 0th 15th 15 30 45 60 90 100 1000 o'clock run fortnight * America/New_York Europe/Berlin "
    "UTC gmt Mon/Tue Mars/X"
)
ZONES = words(
    "localtime posix/UTC posix/Europe/Berlin right/Europe/Berlin posixrules CEST PST utc europe/berlin Europe/berlin "
    "EUROPE/BERLIN Mars/Phobos Foo/Bar5 UTC+3 <+03>-3 EST5EDT,M3.2.0,M11.1.0 Etc/GMT+15 Europe Europe/ /Europe/Berlin "
    "America/Argentina ../UTC Europe/../UTC ./UTC tzdata.zi zone.tab +03 GMT+1 é Zürich/Europe"
)

easy = st.sampled_from(["*", "0", "5", "1-5", "*/2", "1,3"])
items = st.lists(st.sampled_from(ITEMS), min_size=1, max_size=3).map(",".join)
columns = st.lists(st.one_of(easy, easy, items), min_size=4, max_size=7)
crons = st.builds(lambda gap, words: gap.join(words), st.sampled_from([" ", "  ", "\t", " \t "]), columns)
heads = st.builds(
    " ".join, st.tuples(st.sampled_from(HEADS), st.sampled_from(["", *INTERVALS, "* * * * *", "90s 90s"]))
)
sentences = st.lists(st.sampled_from(ENGLISH), min_size=1, max_size=6).map(" ".join)
anything = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


@st.composite
def spliced(draw: st.DrawFn) -> str:
    """Draw an expression with a field that joins forms by their own signs, as in `1#2#3` or `5L#1`."""
    parts = st.sampled_from(["1", "5", "1", "5", "7", "mon", "x", "L", "1-5", "*", ""])
    signs = st.sampled_from("####/-,LW")
    joined = draw(parts) + draw(signs) + draw(parts) + draw(signs) + draw(parts)
    fields = ["*"] * 5
    fields[draw(st.sampled_from([4, 4, 4, 2, 0]))] = joined
    return " ".join(fields)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """Draw an expression with a few characters replaced, inserted or removed."""
    text = draw(st.one_of(crons, heads))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from([*"*/-,#LW?@=09 \t\n~é", ""])) + text[at + draw(st.integers(0, 1)) :]
    return text


parts = st.one_of(crons, crons, heads, sentences, mutated(), st.sampled_from(["", " ", "@daily UTC"]))
several = st.lists(parts, min_size=1, max_size=4).map(";".join)
zoned = st.builds(
    "{} {}".format, st.one_of(crons, heads, sentences, several), st.sampled_from(["America/New_York", "utc", "A/b"])
)


def said_by_program(expression: str) -> str | None:
    try:
        grammar.parse_expression(expression)
    except ScheduleError as error:
        return str(error)
    return None


def zone_said_by_program(name: str) -> str | None:
    try:
        zones.zone(name)
    except ScheduleError as error:
        return str(error)
    return None


def said_by_database(db: psycopg.Connection, function: str, values: list[str]) -> list[str | None]:
    query = f"SELECT pgsched.{function}(value) FROM unnest(%s::text[]) WITH ORDINALITY AS v(value, n) ORDER BY n"
    return [row[0] for row in db.execute(query, [values]).fetchall()]


@pytest.mark.fuzz
def test_both_grammars_give_the_same_verdict_on_any_expression(db: psycopg.Connection) -> None:
    @settings(max_examples=250 if NIGHTLY else 80, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.lists(
            st.one_of(crons, heads, mutated(), spliced(), several, sentences, zoned, anything), min_size=1, max_size=20
        )
    )
    def hold(expressions: list[str]) -> None:
        expected = [said_by_program(expression) for expression in expressions]
        found = said_by_database(db, "schedule_error", expressions)
        assert dict(zip(expressions, found, strict=True)) == dict(zip(expressions, expected, strict=True))

    hold()


def test_both_grammars_give_the_same_verdict_on_every_item_in_every_field(db: psycopg.Connection) -> None:
    expressions = [" ".join(["*"] * at + [item] + ["*"] * (5 - at)) for item in ITEMS for at in range(6)]
    expressions += [f"{head} {interval}" for head in HEADS for interval in INTERVALS]
    expressions += ["", " ", "\t", " 0 0 * * *\t", "0 0 * * *\n", "0 " * 300, "* * * * *" + " " * 503, "*" * 513]
    expressions += [
        ";",
        "@daily;",
        ";@daily",
        "@daily ;\t@hourly",
        "@daily;@every 5s",
        "@AFTER 5s ; @daily",
        "@daily;;@daily",
    ]
    expressions += [
        "@daily;0 9 * * 1 UTC",
        "@daily;0 25 * * * UTC",
        "@daily UTC;@hourly",
        "@daily;UTC",
        "mondays;hourly",
    ]
    expressions += ["0 0 * * * ; 0 25 * * *", ";".join(["@daily"] * 20), ";".join(["@daily"] * 21), "@daily;@reboot"]
    assert said_by_database(db, "schedule_error", expressions) == [said_by_program(e) for e in expressions]


def test_both_accept_every_zone_that_the_program_knows(db: psycopg.Connection) -> None:
    names = sorted(zones.names())
    assert said_by_database(db, "timezone_error", names) == [None] * len(names)
    assert [zone_said_by_program(name) for name in names] == [None] * len(names)


def test_both_refuse_the_same_zones_in_the_same_words(db: psycopg.Connection) -> None:
    names = [*ZONES, "", " ", "UTC ", " UTC", "a\nb", "A" * 70, "Europe/" + "B" * 70]
    said = [(zone_said_by_program(name) or "").partition("; did you mean")[0] for name in names]
    assert "" not in said
    found = [(one or "").partition("; did you mean")[0] for one in said_by_database(db, "timezone_error", names)]
    assert found == said


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/Argentina/Ushuaia", "UTC", "CEST", "Mars/Phobos"])
def test_checking_a_zone_does_not_read_the_list_of_all_zones(db: psycopg.Connection, name: str) -> None:
    """The server's list takes it dozens of milliseconds, an ordinary zone a few. Both are timed at the same load."""

    def seconds(statement: str) -> float:
        start = time.perf_counter()
        db.execute(statement.encode())
        return time.perf_counter() - start

    check, all_zones = f"SELECT pgsched.timezone_error('{name}')", "SELECT count(*) FROM pg_timezone_names"
    rounds = [(seconds(check), seconds(all_zones)) for _ in range(5)]
    assert min(one for one, _ in rounds) < min(other for _, other in rounds) / 1.5


def test_the_functions_do_not_depend_on_the_callers_search_path(db: psycopg.Connection) -> None:
    db.execute("SET search_path = ''")
    assert said_by_database(db, "schedule_error", ["61 * * * *"]) == ["minute: 61 is out of range 0-59"]
    assert said_by_database(db, "timezone_error", ["Mars/Phobos"]) == [
        'timezone: "Mars/Phobos" is not a known IANA zone'
    ]
