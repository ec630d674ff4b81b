"""Records of output: what they keep and drop, the rows they are stored as, and which output they capture."""

from __future__ import annotations

import io
import logging
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import pytest

from pgsched.core.text import format_log_line
from pgsched.execute.output import record as record_module
from pgsched.execute.output.record import Journal, Record, progress_to_json
from pgsched.execute.output.streams import Streams, capturing
from pgsched.worker.output_pages import OutputRows


def journal(keep_bytes: int = 1 << 20) -> Journal:
    made = Journal(keep_bytes)
    made.on_wake = lambda: None
    return made


def record(keep_bytes: int = 1 << 20) -> Record:
    return Record(journal(keep_bytes), (1, 1), 1)


def said(given: Record) -> str:
    """Take and return all output that a record holds now."""
    taken = given.take()
    return b"".join(data for _, data in [*taken.head, *taken.tail]).decode()


# ---- records


def test_a_record_without_a_reader_keeps_only_the_ends() -> None:
    silent = Record(Journal(1 << 20), (1, 1), 1)
    for _ in range(10_000):
        silent.write("stdout", "x" * 100)
    assert said(silent) == "" and "bytes cut" in (silent.output.text() or "")


def test_small_pieces_are_joined() -> None:
    given = record()
    for _ in range(1000):
        given.write("stdout", "x")
    assert len(given.take().head) == 1


def test_the_middle_is_dropped_by_whole_lines_and_counted() -> None:
    given = record(4000)
    for n in range(1000):
        given.write("stdout", f"{n:09d}\n")
    taken = given.take()
    head, tail = (b"".join(data for _, data in pieces) for pieces in (taken.head, taken.tail))
    assert head.endswith(b"000000099\n") and tail.startswith(b"0000007") and tail.endswith(b"000000999\n")
    assert len(head) + len(tail) + taken.cut_bytes == 10_000
    assert taken.cut_lines == taken.cut_bytes // 10


def test_many_floods_at_once_share_one_limit_of_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_module, "ALL_BYTES", 4 << 20)
    shared = journal()
    records = [Record(shared, (n, n), 1) for n in range(64)]
    for _ in range(40):
        for one in records:
            one.write("stdout", "x" * 65_536)
    kept = 0
    for one in records:
        taken = one.take()
        kept += sum(len(data) for _, data in [*taken.head, *taken.tail])
    assert kept < 3 * (4 << 20)


def test_a_closed_record_takes_nothing() -> None:
    given = record()
    given.close()
    given.write("stdout", "late")
    given.progress(1, None, None)
    assert said(given) == "" and given.take().progress is None


def test_progress_is_reported_once() -> None:
    given = record()
    given.progress(1, 2, None)
    given.progress(2, 2, "done")
    assert given.take().progress == (2, 2, "done")
    assert given.take().progress is None


@pytest.mark.parametrize("endless", [Decimal("1e400"), 10**400])
def test_progress_that_json_cannot_express_is_not_reported(endless: Any) -> None:
    assert progress_to_json((endless, None, None)) is None


# ---- pages


def test_there_is_one_gap_however_often_lines_are_dropped() -> None:
    given, book = record(40_000), OutputRows(30_000)
    rows: dict[int, tuple[str, str]] = {}
    for turn in range(20):
        for n in range(1000):
            given.write("stdout", f"{turn:04d}{n:05d}\n")
        page = book.page((1, 1), 1, given.take(), final=False)
        assert page is not None
        rows = {seq: row for seq, row in rows.items() if not page.lo <= seq < page.hi}
        rows |= {seq: (stream, text) for seq, stream, text in page.lines}
        assert [stream for stream, _ in rows.values()].count("cut") == (turn >= 4)
        ordered = [rows[seq] for seq in sorted(rows)]
        kept = "".join(text for stream, text in ordered if stream != "cut")
        assert kept.startswith("000000000\n") and kept.endswith(f"{turn:04d}00999\n") and len(kept) <= 40_000
        cut = [text for stream, text in ordered if stream == "cut"]
        missing = (turn + 1) * 10_000 - len(kept)
        assert cut == ([f"[... {missing:,} bytes in {missing // 10:,} lines are left out ...]\n"] if missing else [])
        if cut:  # the gap stands where lines are missing
            (place,) = [n for n, (stream, _) in enumerate(ordered) if stream == "cut"]
            before = "".join(text for _, text in ordered[:place])
            assert len(before) == 10_000


def test_a_row_that_grows_and_is_dropped_in_one_page_is_written_once() -> None:
    given, book = record(8000), OutputRows(6000)
    given.write("stdout", "h" * 1999 + "\n" + "first\n")
    book.page((1, 1), 1, given.take(), final=False)
    given.write("stdout", "goes on\n")
    given.write("stderr", "x" * 5990)
    page = book.page((1, 1), 1, given.take(), final=False)
    assert page is not None
    seqs = [seq for seq, _, _ in page.lines]
    assert len(seqs) == len(set(seqs)) and not any(page.lo <= seq < page.hi for seq in seqs)


@pytest.mark.parametrize("seed", range(60))
def test_the_rows_are_the_beginning_and_the_end_of_the_output(seed: int) -> None:
    chance = random.Random(seed)
    cap = chance.choice([400, 4000, 40_000])
    given, book, whole = record(cap), OutputRows(cap - cap // 4), ""
    rows: dict[int, tuple[str, str]] = {}
    for turn in range(40):
        for _ in range(chance.choice([0, 1, 3, 40])):
            text = "x" * chance.choice([0, 1, 10, 100, 3000]) + "\n"
            given.write(chance.choice(["stdout", "stdout", "stderr", "log"]), text)
            whole += text
        if turn == 39:
            given.close()
        page = book.page((1, 1), 1, given.take(), final=given.closed)
        if page is None:
            continue
        seqs = [seq for seq, _, _ in page.lines]
        assert len(seqs) == len(set(seqs))
        rows = {seq: row for seq, row in rows.items() if not page.lo <= seq < page.hi}
        rows |= {seq: (stream, text) for seq, stream, text in page.lines}
        parts = "".join(text if stream != "cut" else "\0" for stream, text in (rows[seq] for seq in sorted(rows)))
        head, cut, tail = parts.partition("\0")
        assert "\0" not in tail and len(head + tail) <= cap
        assert whole.startswith(head) and whole.endswith(tail) and (cut or head == whole)
        if cut:
            (told,) = [text for stream, text in rows.values() if stream == "cut"]
            missing = whole[len(head) : len(whole) - len(tail)]
            assert told == f"[... {len(missing):,} bytes in {missing.count(chr(10)):,} lines are left out ...]\n"


# ---- streams


@contextmanager
def in_place(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[io.StringIO, io.StringIO]]:
    """Install the streams in a process in which logging is not set up.

    This is no fixture, because pytest installs its own streams and handlers between the phases of a test.
    """
    out, err, root = io.StringIO(), io.StringIO(), logging.getLogger()
    with monkeypatch.context() as patch:
        patch.setattr(root, "handlers", [])
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        level = root.level
        root.setLevel(logging.WARNING)
        streams = Streams()
        streams.install()
        try:
            yield out, err
        finally:
            streams.remove()
            assert (sys.stdout, sys.stderr, root.level) == (out, err, logging.WARNING)
            root.setLevel(level)


def test_without_logging_set_up_records_from_info_on_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    given = record()
    with in_place(monkeypatch), capturing(given):
        logging.getLogger("a").debug("low")
        logging.getLogger("a").info("some %s", "thing")
        try:
            raise ValueError("it")
        except ValueError:
            logging.getLogger("a").exception("bad")
    text = said(given)
    assert text.startswith("INFO a: some thing\nERROR a: bad\nTraceback") and text.endswith("ValueError: it\n")


def test_a_warning_outside_an_attempt_still_reaches_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    with in_place(monkeypatch) as (_, err):
        logging.getLogger("a").info("not this")
        logging.getLogger("a").warning("this")
    assert err.getvalue() == "this\n"


@pytest.mark.parametrize("propagate", [True, False])
def test_a_line_that_logging_writes_to_the_stream_is_kept_once(
    propagate: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, logger = record(), logging.getLogger(f"own{propagate}")
    logger.propagate = propagate
    with in_place(monkeypatch) as (out, err), capturing(given):
        logger.addHandler(logging.StreamHandler(sys.stderr))
        logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
        logger.warning("once")
    assert said(given) == "once\n"
    assert (out.getvalue(), err.getvalue()) == ("once\n" if propagate else "", "once\n")


def test_text_printed_outside_an_attempt_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    given = record()
    with in_place(monkeypatch) as (out, _):
        with capturing(given):
            print("in")
        print("out")
    assert said(given) == "in\n"
    assert out.getvalue() == "in\nout\n"


# ---- lines


@pytest.mark.parametrize(
    ("text", "fields", "line"),
    [
        ("imported", {"rows": 5, "file": "a.csv"}, "imported rows=5 file=a.csv\n"),
        ("x", {"why": "two words", "empty": ""}, "x why='two words' empty=''\n"),
        ("x", {"nl": "a\nb"}, "x nl='a\\nb'\n"),
    ],
)
def test_a_logged_line_is_one_line(text: str, fields: dict[str, object], line: str) -> None:
    assert format_log_line(text, fields) == line


def test_a_value_whose_text_raises_is_shown_by_its_type() -> None:
    class Bad:
        def __str__(self) -> str:
            raise RuntimeError

    assert format_log_line("x", {"bad": Bad()}) == "x bad='<Bad: its text raises RuntimeError>'\n"
