"""Logs of other schedulers: what is a start in them, and when it was."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.shadow.csv_log import CsvReader
from pgsched.core.shadow.kubernetes import KubernetesReader
from pgsched.core.shadow.log_lines import LONGEST, check_format, guess_format, split_lines
from pgsched.core.shadow.stamps import StampReader
from pgsched.core.shadow.syslog import SyslogReader
from pgsched.errors import InputError

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


def at(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def lines_of(text: str) -> list[tuple[int, bytes]]:
    return [*split_lines(BytesIO(text.encode("utf-8", "surrogateescape")).read)]


def syslog(text: str, zone: Any = UTC, now: datetime = NOW) -> list[tuple[str, float]]:
    return [(one.what, one.at_s) for one in SyslogReader(StampReader(now, zone)).read(lines_of(text))]


def test_lines_have_their_numbers_across_pieces_and_long_ones_are_skipped() -> None:
    text = b"a\n\nb\n" + b"x" * (LONGEST + 1) + b"\nc\n" + b"y" * (3 * LONGEST)
    for size in (1, 2, 7, 1 << 16, 1 << 30):
        stream = BytesIO(text)
        assert [*split_lines(limited(stream, size))] == [(1, b"a"), (3, b"b"), (5, b"c")]


def limited(stream: BytesIO, size: int) -> Callable[[int], bytes]:
    return lambda _: stream.read(size)


def test_a_line_without_an_end_takes_no_memory() -> None:
    pieces = iter([b"x" * (1 << 16)] * 500)
    tracemalloc.start()
    assert [*split_lines(lambda _: next(pieces, b""))] == []
    assert tracemalloc.get_traced_memory()[1] < 4_000_000
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("name", "head", "source"),
    [
        ("cron.log", b"Nov 28 00:17:01 host CRON[1]: (root) CMD (x)\n", "syslog"),
        ("runs.csv", b"name,at\n", "csv"),
        ("runs.CSV.gz", b"name,at\n", "csv"),
        ("-", b' {"apiVersion": "v1", "items": []}', "kubernetes"),
        ("-", b'{"__REALTIME_TIMESTAMP": "1"}', "syslog"),
        ("-", b"", "syslog"),
    ],
)
def test_the_format_is_guessed(name: str, head: bytes, source: str) -> None:
    assert guess_format(name, head) == source


def test_an_unknown_format_is_refused() -> None:
    with pytest.raises(InputError, match='format: "journal" is not one of syslog, csv, kubernetes'):
        check_format("journal")


# ---- syslog


@pytest.mark.parametrize(
    "line",
    [
        "Nov 28 00:17:01 web-1 CRON[1234]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)",
        "<78>Nov 28 00:17:01 web-1 CRON[1234]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)",
        "Nov 28 00:17:01 web-1 CROND[1234]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)",
        "Nov 28 00:17:01 web-1 /usr/sbin/cron[1234]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)",
        "Nov 28 00:17:01 web-1 CRON[1234]: (root) CMD ([1235]    cd / && run-parts --report /etc/cron.hourly)",
        "Nov 28 00:17:01 CRON[1234]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)\r",
        "2026-11-28T00:17:01+00:00 web-1 CRON[1234]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)",
        "2026-11-28T01:17:01.000000+01:00 web-1 CRON[1]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)",
        "2026-11-28T01:17:01+0100 web-1 CRON[1234]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)",
        "2026-11-28 00:17:01 web-1 CRON[1234]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)",
        "1795825021.000000 web-1 CRON[1234]: (root) CMD (   cd / && run-parts --report /etc/cron.hourly)",
        "<78>1 2026-11-28T00:17:01Z web-1 CRON 1234 - - (root) CMD (   cd / && run-parts --report /etc/cron.hourly)",
        '<78>1 2026-11-28T00:17:01.0Z web-1 CRON 1234 ID47 [a@1 b="c\\]"][d@2] \ufeff(root) CMD (   cd / && run-parts'
        " --report /etc/cron.hourly)",
        "Nov 28 00:17:01 web-1 crond[1234]: USER root pid 1235 cmd    cd / && run-parts --report /etc/cron.hourly",
    ],
)
def test_a_start_is_read_from_each_form_of_line(line: str) -> None:
    ((what, when),) = syslog(line)
    assert (what.strip(), when) == ("cd / && run-parts --report /etc/cron.hourly", at("2026-11-28T00:17:01Z"))


@pytest.mark.parametrize(
    "entry",
    [
        {"__REALTIME_TIMESTAMP": "1795825021000000", "SYSLOG_IDENTIFIER": "CRON", "MESSAGE": "(root) CMD (x y)"},
        {"__REALTIME_TIMESTAMP": "1795825029000000", "_SOURCE_REALTIME_TIMESTAMP": "1795825021000000",
         "_COMM": "cron", "MESSAGE": "(root) CMD (x y)"},
        {"__REALTIME_TIMESTAMP": "1795825021000000", "SYSLOG_IDENTIFIER": "CRON", "MESSAGE": [*b"(root) CMD (x y)"]},
    ],
)  # fmt: skip
@pytest.mark.parametrize("before", ["", "data: ", "\x1e"])
def test_a_start_is_read_from_an_entry_of_the_journal(entry: dict[str, Any], before: str) -> None:
    assert syslog(before + json.dumps(entry)) == [("x y", at("2026-11-28T00:17:01Z"))]


@pytest.mark.parametrize(
    "line",
    [
        "Nov 28 00:17:01 web-1 CRON[1234]: (root) CMDEND (x)",
        "Nov 28 00:17:01 web-1 CRON[1234]: (root) END (x)",
        "Nov 28 00:17:01 web-1 CRON[1234]: pam_unix(cron:session): session opened for user root",
        "Nov 28 00:17:01 web-1 sshd[1234]: (root) CMD (x)",
        "Nov 31 00:17:01 web-1 CRON[1234]: (root) CMD (x)",
        "Foo 28 00:17:01 web-1 CRON[1234]: (root) CMD (x)",
        "2026-13-28T00:17:01Z web-1 CRON[1234]: (root) CMD (x)",
        "(root) CMD (x)",
        '{"MESSAGE": "(root) CMD (x)"',
        '{"MESSAGE": {"a": "CMD"}, "SYSLOG_IDENTIFIER": "CRON"}',
        '{"MESSAGE": [256, "CMD"], "SYSLOG_IDENTIFIER": "CRON", "__REALTIME_TIMESTAMP": "1795825021000000"}',
        '{"MESSAGE": "(root) CMD (x)", "SYSLOG_IDENTIFIER": "CRON", "__REALTIME_TIMESTAMP": 17}',
        "[" * 60_000 + "CMD",
        "{" + '"a":{' * 10_000 + "CMD",
    ],
)
def test_other_lines_are_passed_over(line: str) -> None:
    assert syslog(line) == []


@settings(deadline=None)
@given(
    st.text(max_size=200), st.sampled_from(["", "Nov 28 00:17:01 h CRON[1]: (root) CMD (", '{"MESSAGE": "CMD', "<1>1 "])
)
def test_no_line_stops_the_reading(text: str, before: str) -> None:
    syslog(f"{before}{text}\nNov 28 00:17:01 h CRON[1]: (root) CMD (x)")


def test_a_command_with_brackets_is_whole_and_one_that_is_cut_is_marked() -> None:
    reader = SyslogReader(StampReader(NOW, UTC))
    text = "Nov 28 00:17:01 h CRON[1]: (root) CMD (a (b))\nNov 28 00:17:01 h CRON[1]: (root) CMD (a --long"
    assert [(one.what, one.cut) for one in reader.read(lines_of(text))] == [("a (b)", False), ("a --long", True)]


def test_the_log_covers_the_time_from_its_first_to_its_last_line() -> None:
    reader = SyslogReader(StampReader(NOW, UTC))
    text = "Nov 27 00:00:00 h kernel: up\nNov 28 00:17:01 h CRON[1]: (root) CMD (x)\nNov 28 06:00:00 h sshd[1]: bye\n"
    assert len([*reader.read(lines_of(text))]) == 1
    assert (reader.begin_s, reader.end_s) == (at("2026-11-27T00:00Z"), at("2026-11-28T06:00Z"))


# ---- times


@pytest.mark.parametrize(
    ("now", "stamp", "expected"),
    [
        ("2027-01-10T00:00Z", "Dec 20 10:00:00", "2026-12-20T10:00Z"),
        ("2027-01-10T00:00Z", "Jan  5 10:00:00", "2027-01-05T10:00Z"),
        ("2027-01-10T00:00Z", "Jan 10 10:00:00", "2027-01-10T10:00Z"),  # a clock that is ahead by less than a day
        ("2027-01-10T00:00Z", "Jan 12 10:00:00", "2026-01-12T10:00Z"),
        ("2027-01-10T00:00Z", "Feb 29 10:00:00", "2024-02-29T10:00Z"),
        ("2027-01-10T00:00Z", "Dec 31 23:59:60", "2026-12-31T23:59:59Z"),
    ],
)
def test_the_year_is_the_last_one_that_is_not_in_the_future(now: str, stamp: str, expected: str) -> None:
    assert StampReader(datetime.fromisoformat(now), UTC).read(stamp) == at(expected)


def test_a_wall_clock_is_read_in_the_zone_and_twice_in_the_repeated_hour() -> None:
    stamps = StampReader(NOW, BERLIN)
    found = [
        stamps.read(f"Oct 25 {clock}")
        for clock in ("01:30:00", "02:30:00", "02:59:00", "02:01:00", "02:30:00", "03:10:00")
    ]
    expected = ["2026-10-24T23:30Z", "2026-10-25T00:30Z", "2026-10-25T00:59Z", "2026-10-25T01:01Z", "2026-10-25T01:30Z",
                "2026-10-25T02:10Z"]  # fmt: skip
    assert found == [at(one) for one in expected]
    assert StampReader(NOW, BERLIN).read("2026-07-01T12:00:00") == at("2026-07-01T10:00Z")


NIGHTLY = ["Oct 25 01:17:01", "Oct 25 02:17:01", "Oct 25 02:17:02", "Oct 25 03:17:01"]
REPEATED = ["2026-10-24T23:17:01Z", "2026-10-25T00:17:01Z", "2026-10-25T01:17:02Z", "2026-10-25T02:17:01Z"]


def test_the_same_work_in_the_same_minute_is_the_second_pass() -> None:
    """Debian's own hourly line may be the only one of a night."""
    text = "".join(f"{stamp} host CRON[1]: (root) CMD (x)\n" for stamp in NIGHTLY)
    assert [when for _, when in syslog(text, BERLIN)] == [at(one) for one in REPEATED]
    others = text.replace("02:17:02 host CRON[1]: (root) CMD (x)", "02:17:02 host CRON[1]: (root) CMD (y)")
    assert syslog(others, BERLIN)[2] == ("y", at("2026-10-25T00:17:02Z"))
    rows = "".join(f"x,2026-10-25 {stamp[7:]}\n" for stamp in NIGHTLY)
    assert [one.at_s for one in CsvReader(StampReader(NOW, BERLIN)).read(lines_of(rows))] == [
        at(one) for one in REPEATED
    ]


def test_lines_of_other_programs_say_when_the_hour_begins_anew() -> None:
    lines = [("02:17:01", "CRON[1]: (root) CMD (x)"), ("02:50:00", "sshd[1]: a"), ("02:01:00", "sshd[1]: b"),
             ("02:30:01", "CRON[1]: (root) CMD (y)")]  # fmt: skip
    text = "".join(f"Oct 25 {clock} host {rest}\n" for clock, rest in lines)
    assert [when - at("2026-10-25T00:00Z") for _, when in syslog(text, BERLIN)] == [1021, 3600 + 1801]


def test_what_follows_the_second_pass_of_a_minute_is_in_it_too() -> None:
    lines = [("02:17:01", "x"), ("02:17:01", "x"), ("02:17:03", "y"), ("02:20:01", "z"), ("02:20:01", "z")]
    text = "".join(f"Oct 25 {clock} host CRON[1]: (root) CMD ({what})\n" for clock, what in lines)
    assert [when - at("2026-10-25T00:00Z") for _, when in syslog(text, BERLIN)] == [1021, 4621, 4623, 4801, 4801]


@pytest.mark.parametrize(
    "last", ["Nov 28 00:1", "    a further line", '{"MESSAGE": "cut', "", "Foo 31 00:17:01 host x: y"]
)
@pytest.mark.parametrize("between", [0, 200])
def test_a_log_ends_with_its_last_line_that_has_a_time(last: str, between: int) -> None:
    lines = ["Nov 28 00:17:01 h CRON[1]: (root) CMD (x)", "Nov 28 04:00:00 h kernel: y", *["  more"] * between, last]
    reader = SyslogReader(StampReader(NOW, UTC))
    assert len([*reader.read(lines_of("\n".join(lines)))]) == 1
    end = "2026-11-28T00:17:01Z" if between else "2026-11-28T04:00:00Z"
    assert (reader.begin_s, reader.end_s) == (at("2026-11-28T00:17:01Z"), at(end))


@pytest.mark.parametrize(
    "text", ["1795825021", "1795825021.0", "1795825021000", "1795825021000000", "2026-11-28T00:17:01Z",
             "2026-11-28 00:17:01 UTC", "2026-11-28 00:17:01.000 +0000", "2026-11-28T00:17:01,000+00:00",
             "2026-11-28 01:17:01+01"]
)  # fmt: skip
def test_times_of_programs_are_read(text: str) -> None:
    assert StampReader(NOW, BERLIN).read(text) == at("2026-11-28T00:17:01Z")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "12",
        "2026",
        "99999999999999999999",
        "0001-01-01T00:00:00+23:59",
        "2026-02-30T00:00Z",
        "٢٠٢٦-11-28T00:17",
    ],
)
def test_other_texts_are_no_times(text: str) -> None:
    assert StampReader(NOW, UTC).read(text) is None


# ---- CSV


def from_csv(text: str) -> list[tuple[str, float]]:
    return [(one.what, one.at_s) for one in CsvReader(StampReader(NOW, UTC)).read(lines_of(text))]


@pytest.mark.parametrize(
    "text",
    [
        "nightly,2026-11-28T02:00:01Z\nother,2026-11-28T03:00:00Z\n",
        "2026-11-28T02:00:01Z,nightly\n2026-11-28T03:00:00Z,other",
        "\ufeffname,started_at,exit\nnightly,2026-11-28T02:00:01Z,0\nother,2026-11-28T03:00:00Z,1\n",
        "Time;Host;Command\r\n2026-11-28T02:00:01Z;a;nightly\r\n2026-11-28T03:00:00Z;b;other\r\n",
        "nightly\t1795831201\nother\t1795834800\n",
        '"nightly","2026-11-28 02:00:01"\n\n"other","2026-11-28 03:00:00"\n',
    ],
)
def test_starts_are_read_from_a_csv(text: str) -> None:
    assert from_csv(text) == [("nightly", at("2026-11-28T02:00:01Z")), ("other", at("2026-11-28T03:00:00Z"))]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a,b\n", "line 1: expected a name and a time"),
        ("2026-11-28T02:00:01Z\n", "line 1: expected a name and a time"),
        ("a,2026-11-28\na,tomorrow\n", 'line 2: "tomorrow" is not a time'),
        ("a,2026-11-28T00:00Z\n\nb\n", "line 3: 1 columns, at least 2 are needed"),
        ('a,2026-11-28T00:00Z\n"b\n', "line 2: unexpected end of data"),
    ],
)
def test_a_wrong_row_is_named(text: str, reason: str) -> None:
    with pytest.raises(InputError) as refused:
        from_csv(text.replace("2026-11-28\n", "2026-11-28T00:00Z\n"))
    assert str(refused.value).startswith(f"log: {reason}")


# ---- Kubernetes


def a_job(name: str, began: str, owner: str | None = "report", **notes: str) -> dict[str, Any]:
    owners = [{"kind": "CronJob", "name": owner}] if owner else []
    about = {"name": name, "namespace": "etl", "uid": name, "ownerReferences": owners, "annotations": notes}
    return {"kind": "Job", "metadata": about, "status": {"startTime": began}}


def kubernetes(text: str) -> list[tuple[str, float, float | None]]:
    return [(one.what, one.at_s, one.due_s) for one in KubernetesReader(StampReader(NOW, UTC)).read(text)]


PLANNED = {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-11-28T03:00:00+01:00"}
FIRST = a_job("report-29930040", "2026-11-28T02:00:07Z", **PLANNED)
SECOND = a_job("report-29930100", "2026-11-28T03:00:02Z")


def test_starts_are_read_from_a_listing() -> None:
    found = kubernetes(json.dumps({"kind": "List", "items": [FIRST, SECOND]}))
    assert found[0] == ("etl/report", at("2026-11-28T02:00:07Z"), at("2026-11-28T02:00Z"))
    assert found[1] == ("etl/report", at("2026-11-28T03:00:02Z"), 60.0 * 29930100)


def test_a_watch_tells_of_each_job_once() -> None:
    events = [{"type": kind, "object": one} for kind in ("ADDED", "MODIFIED") for one in (FIRST, SECOND)]
    assert len(kubernetes("\n".join(json.dumps(event) for event in events))) == 2
    assert len(kubernetes(json.dumps(FIRST) + json.dumps(SECOND))) == 2


def test_jobs_that_people_or_others_made_are_no_starts() -> None:
    manual = a_job("report-manual", "2026-11-28T02:00:07Z", **{"cronjob.kubernetes.io/instantiate": "manual"})
    own = a_job("once", "2026-11-28T02:00:07Z", owner=None)
    odd: list[Any] = [3, None, {}, {"metadata": 7}, {"metadata": {"ownerReferences": "x"}}, a_job("report-1", "soon")]
    assert kubernetes(json.dumps({"items": [manual, own, *odd]})) == []


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"kind": "Pod"}', "document 1 is no listing of jobs"),
        ("[1]", "document 1 is no listing of jobs"),
        ('{"items": []}\n\n{"items"', "line 3: not JSON"),
        ("[" * 200_000, "line 1: not JSON"),
    ],
)
def test_what_is_no_listing_is_refused(text: str, reason: str) -> None:
    with pytest.raises(InputError) as refused:
        kubernetes(text)
    assert str(refused.value).startswith(f"log: {reason}")
