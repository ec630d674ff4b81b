"""Calendar events for tests: a list in the manner of real timers, and a generator."""

from __future__ import annotations

from hypothesis import strategies as st

EVENTS = [
    "minutely", "hourly", "daily", "weekly", "monthly", "quarterly", "semiannually", "yearly", "*-*-* 6,18:00",
    "Sun 3:10", "Mon..Fri 10:00", "*:0/5", "*-*-* *:09,39:00", "*-*-* 07..23:30", "Sun *-*-1..7 1:00", "*:*:0/15",
    "Mon *-05~07/1", "*-*~01", "Sat *-*~07/1 5:00", "Sun *-*-13", "Wed, 17:48", "0/7:00", "*-3..5~2 1:00",
    "Tue,Thu *-*-8..14 2:00:30", "*-*-1/3", "2..4:0", "00,12:00:00", "Mon..Sat 08..18/2:15", "*-*-* 02:30", "*:30",
    "1,15:45", "Fri *-*-1..14,22..28 12:00", "*-2-29", "Mon,Wed..Fri 9..17:0/20", "*-1..6/2-5 4:05:06", "*-12-24..26",
    "Sat *-*-1/2 20:00", "Mon *-*-29..31", "*-*-* 23:59:59", "sunday 02:00..59/20",
]  # fmt: skip
INEXPRESSIBLE = ["*-02~03", "Fri *-*-13", "Mon *-*-2..8", "*-*~02", "*:*:0/1.5", "Tue *-*~03"]


def component(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    ordered = st.tuples(number, number).filter(lambda two: two[0] < two[1])
    ranges = ordered.map(lambda two: f"{two[0]}..{two[1]}")
    steps = (
        st.tuples(number, st.integers(1, 30)).filter(lambda two: sum(two) <= high).map(lambda two: f"{two[0]}/{two[1]}")
    )
    item = st.one_of(number.map(str), ranges, steps, st.tuples(ranges, st.integers(2, 9)).map("{0[0]}/{0[1]}".format))
    return st.one_of(st.just("*"), st.lists(item, min_size=1, max_size=3).map(",".join))


WEEKDAYS = st.one_of(
    st.just(""), st.sampled_from(["Mon ", "Sun ", "Mon..Fri ", "Sat,Sun ", "Tue,Thu..Sat ", "Mon,Wed,Fri "])
)
DATES = st.one_of(
    st.just("*-*-*"), st.tuples(component(1, 12), component(1, 31)).map("*-{0[0]}-{0[1]}".format),
    st.tuples(component(1, 12), st.sampled_from(["1", "7/1", "2", "1..3", "5"])).map("*-{0[0]}~{0[1]}".format),
)  # fmt: skip
SECONDS = st.sampled_from(["0", "30", "5,10"])
CLOCKS = st.one_of(
    st.tuples(component(0, 23), component(0, 59)).map(":".join),
    st.integers(0, 23).map("{}:00".format),
    st.tuples(component(0, 23), st.integers(0, 59), SECONDS).map("{0[0]}:{0[1]}:{0[2]}".format),
)
ANY_EVENT = st.tuples(WEEKDAYS, DATES, CLOCKS).map("{0[0]}{0[1]} {0[2]}".format)
