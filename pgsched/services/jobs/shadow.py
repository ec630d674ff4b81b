"""Compare the slots of jobs with the log of the scheduler that still runs the work: `pgsched shadow report`.

Invariant: memory is bounded. A log streams; of each start of a compared job two numbers are kept, of others a count.

The time that is compared is the one that both sides know. The log knows it from its first to its last line, this
database from the first slot of a job to the last decided one. In a Kubernetes listing it begins for each job with its
first Job.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta, tzinfo
from itertools import islice, pairwise
from typing import Any, Protocol

from pgsched.core.model import Row
from pgsched.core.planning.job_schedule import first_allowed, job_calendar, whole_schedule
from pgsched.core.schedule.cron import Schedule
from pgsched.core.shadow.comparing import EARLY_S, ComparedTime, Comparison, compare, instant
from pgsched.core.shadow.csv_log import CsvReader
from pgsched.core.shadow.kubernetes import MOST_BYTES, KubernetesReader
from pgsched.core.shadow.log_lines import guess_format, split_lines
from pgsched.core.shadow.matching import Matcher, read_mapping
from pgsched.core.shadow.stamps import StampReader
from pgsched.core.shadow.starts import Start
from pgsched.core.shadow.syslog import SyslogReader
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs.jobs import unknown_job
from pgsched.db.queries.reports.live import database_now
from pgsched.db.queries.reports.shadow import compared_jobs, decided_slots, slots_page
from pgsched.errors import InputError, ScheduleError

MOST_JOBS = 20_000
MOST_STARTS = 10_000_000  # of compared jobs
MOST_TEXTS = 10_000  # different commands that mean no job
MOST_SLOTS = 5_000_000  # of one job
INSTANT = timedelta(microseconds=1)
Reader = SyslogReader | CsvReader | KubernetesReader


class Readable(Protocol):
    """A file that is read piece by piece."""

    def read(self, size: int, /) -> bytes:
        """Return the next bytes, at most `size`; none at the end."""
        ...


@dataclass(frozen=True, slots=True)
class Log:
    """A log to read: its name, its open file, and its format (None: it is guessed)."""

    name: str
    file: Readable
    form: str | None = None


@dataclass(frozen=True, slots=True)
class Question:
    """What is compared.

    `since`, `until`: only this time; None: all that both sides know.
    `tolerance`: how late a start may be and still belong to its slot, beside the job's jitter.
    `names`: these jobs; None: those in mode shadow.
    `by_schedule`: compare with the slots that the schedules give, not with those that were decided.
    `zone`: of wall clocks in the log.
    """

    since: datetime | None = None
    until: datetime | None = None
    tolerance: timedelta = timedelta(minutes=1)
    names: Sequence[str] | None = None
    by_schedule: bool = False
    zone: tzinfo = UTC


@dataclass(slots=True)
class Unmatched:
    """A logged command, or name, that is no compared job's. `meant`: the job that it may be."""

    text: str
    count: int
    first: datetime
    last: datetime
    meant: str | None = None


@dataclass(slots=True)
class ShadowReport:
    """What two schedulers did at the same time.

    `begin`, `end`: the first and the last time of the logs. `starts`: starts in them.
    `jobs`: those that differ first. `unmatched`: the most frequent first; `more_unmatched`: starts beyond those.
    """

    begin: datetime
    end: datetime
    starts: int
    jobs: list[Comparison] = field(default_factory=list)
    unmatched: list[Unmatched] = field(default_factory=list)
    more_unmatched: int = 0

    @property
    def differ(self) -> bool:
        """Whether any job differs."""
        return any(one.differs for one in self.jobs)

    @property
    def compared(self) -> int:
        """How many jobs have a slot or a start in the time that both sides know."""
        return sum(one.matched + one.only_here + one.only_there > 0 for one in self.jobs)

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return asdict(self) | {"differ": self.differ, "compared": self.compared}


@dataclass(slots=True)
class Starts:
    """The starts of all logs. `at`, `due`: by group, when each was, and for when it was planned, in s since 1970."""

    at: dict[int, array[float]] = field(default_factory=dict)
    due: dict[int, array[float]] = field(default_factory=dict)
    others: dict[str, Unmatched] = field(default_factory=dict)
    count: int = 0
    kept: int = 0
    more: int = 0
    begin_s: float | None = None
    end_s: float | None = None

    def add(self, start: Start, group: int | None) -> None:
        """Count a start. Raises InputError beyond MOST_STARTS."""
        self.count += 1
        if group is None:
            return self._add_other(start)
        self.kept += 1
        if self.kept > MOST_STARTS:
            raise InputError(f"log: more than {MOST_STARTS:,} starts of these jobs: give --since", "since")
        self.at.setdefault(group, array("d")).append(start.at_s)
        self.due.setdefault(group, array("d")).append(start.at_s if start.due_s is None else start.due_s)
        return None

    def _add_other(self, start: Start) -> None:
        at = instant(start.at_s)
        known = self.others.get(start.what)
        if known is not None:
            known.count, known.first, known.last = known.count + 1, min(known.first, at), max(known.last, at)
        elif len(self.others) < MOST_TEXTS:
            self.others[start.what] = Unmatched(start.what, 1, at, at)
        else:
            self.more += 1

    def reach(self, begin_s: float | None, end_s: float | None) -> None:
        """Extend the time that the logs cover."""
        known = [one for one in (begin_s, end_s, self.begin_s, self.end_s) if one is not None]
        if known:
            self.begin_s, self.end_s = min(known), max(known)


def read_report(
    conn: Connection[Any], logs: Iterable[Log], question: Question, mapping: Iterable[str] | None = None
) -> ShadowReport:
    """Compare the jobs with the logs. Raises InputError, NotFound.

    `mapping`: lines of a CSV with logged texts and the jobs that they mean.
    """
    jobs = find_jobs(conn, question.names)
    names = [job["name"] for job in jobs]
    matcher = Matcher(jobs, None if mapping is None else read_mapping(mapping, names))
    found, partial = read_logs(logs, matcher, question, database_now(conn))
    if found.begin_s is None or found.end_s is None or not found.count:
        raise InputError("log: no start of any command was found in it; is it a log of cron, and of this time?", "log")
    if found.end_s <= found.begin_s and not partial:
        raise InputError("log: its first and its last time are one instant: there is nothing to compare", "log")
    report = ShadowReport(instant(found.begin_s), instant(found.end_s), found.count, more_unmatched=found.more)
    by_name = {job["name"]: job for job in jobs}
    for group, members in enumerate(matcher.groups):
        report.jobs.append(compare_group(conn, [by_name[name] for name in members], found, group, question, partial))
    report.jobs.sort(key=lambda one: (not one.differs, one.jobs))
    report.unmatched = sorted(found.others.values(), key=lambda one: (-one.count, one.text))
    missing = [group for group in range(len(matcher.groups)) if group not in found.at]
    hints = matcher.hints([one.text for one in report.unmatched], missing)
    report.unmatched = [replace(one, meant=hints.get(one.text)) for one in report.unmatched]
    return report


def find_jobs(conn: Connection[Any], names: Sequence[str] | None) -> list[Row]:
    """Return the jobs to compare. Raises NotFound for an unknown name, InputError where there are none or too many."""
    jobs = compared_jobs(conn, names, MOST_JOBS + 1)
    known = {job["name"] for job in jobs}
    for name in names or ():
        if name not in known:
            raise unknown_job(conn, name)
    if not jobs:
        raise InputError("job: no job is in mode shadow: `pgsched job mode NAME shadow`, or name jobs by --job", "job")
    if len(jobs) > MOST_JOBS:
        raise InputError(f"job: more than {MOST_JOBS:,} jobs are in mode shadow: name some by --job", "job")
    return jobs


def read_logs(logs: Iterable[Log], matcher: Matcher, question: Question, now: datetime) -> tuple[Starts, bool]:
    """Read all logs; return their starts, and whether each job is only known from its first start on."""
    found, partial = Starts(), False
    begin_s = question.since.timestamp() if question.since else float("-inf")
    end_s = question.until.timestamp() if question.until else float("inf")
    for log in logs:
        stamps = StampReader(now, question.zone)
        head = log.file.read(1 << 16)
        form = log.form or guess_format(log.name, head)
        reader: Reader
        if form == "kubernetes":
            reader, partial = KubernetesReader(stamps), True
            starts = reader.read(read_whole(head, log.file))
        else:
            reader = CsvReader(stamps) if form == "csv" else SyslogReader(stamps)
            starts = reader.read(split_lines(chained(head, log.file.read)))
        margin_s = question.tolerance.total_seconds()
        for start in starts:
            if begin_s - margin_s <= start.at_s <= end_s + margin_s:
                found.add(start, matcher.find(start.what, cut=start.cut))
        found.reach(reader.begin_s, reader.end_s)
    return found, partial


def chained(head: bytes, read: Callable[[int], bytes]) -> Callable[[int], bytes]:
    """Return a function that reads on behind what was read already."""
    pieces = [head]

    def read_on(size: int) -> bytes:
        return pieces.pop() if pieces and pieces[0] else read(size)

    return read_on


def read_whole(head: bytes, file: Readable) -> str:
    """Return a whole file as text. Raises InputError beyond MOST_BYTES."""
    text = bytearray(head)
    while piece := file.read(1 << 20):
        text += piece
        if len(text) > MOST_BYTES:
            raise InputError(f"log: a listing of more than {MOST_BYTES:,} bytes: list each namespace by itself", "log")
    return text.decode("utf-8", "replace")


def compare_group(
    conn: Connection[Any], jobs: Sequence[Row], found: Starts, group: int, question: Question, partial: bool
) -> Comparison:
    """Compare the slots of jobs that are one to the log with their starts."""
    names = tuple(job["name"] for job in jobs)
    at, due = found.at.get(group, array("d")), found.due.get(group, array("d"))
    if any(one > other for one, other in pairwise(due)):  # several logs, or one that is not in order
        pairs = sorted(zip(due, at, strict=True))
        at, due = array("d", [one for _, one in pairs]), array("d", [one for one, _ in pairs])
    span = span_of(conn, jobs, found, question, due[0] if partial and due else None)
    if span is None:
        return Comparison(names)
    slots, late = slots_of_group(conn, jobs, span, question)
    return compare(names, slots, late, at, due, span)


def span_of(
    conn: Connection[Any], jobs: Sequence[Row], found: Starts, question: Question, first_s: float | None
) -> ComparedTime | None:
    """Return the time that both sides know of all these jobs; None: there is none.

    `first_s`: the first start of these jobs, where the log says nothing about the time before it.
    """
    known = [(found.begin_s, found.end_s), (first_s, None)]
    asked = [None if one is None else one.timestamp() for one in (question.since, question.until)]
    known.append((asked[0], asked[1]))
    for job in jobs:
        if (of_job := known_span(conn, job, question)) is None:
            return None
        known.append(of_job)
    begin_s = max(begin for begin, _ in known if begin is not None)
    end_s = min(end for _, end in known if end is not None)
    tolerance = question.tolerance + max(job["jitter"] for job in jobs)
    return ComparedTime(begin_s, end_s, tolerance.total_seconds()) if begin_s <= end_s else None


def slots_of_group(
    conn: Connection[Any], jobs: Sequence[Row], span: ComparedTime, question: Question
) -> tuple[array[float], set[float]]:
    """Return the slots of these jobs, sorted, and those that were decided late. Raises InputError beyond MOST_SLOTS."""
    slots, late = array("d"), set[float]()
    first, last = instant(span.begin_s - span.tolerance_s - 1), instant(span.end_s + EARLY_S)
    for job in jobs:
        for slot, is_late in slots_of(conn, job, first, last, question):
            slots.append(slot.timestamp())
            if is_late:
                late.add(slots[-1])
            if len(slots) > MOST_SLOTS:
                raise InputError(f"job: {job['name']} has more than {MOST_SLOTS:,} slots: give --since", "since")
    return array("d", sorted(slots)), late


def known_span(conn: Connection[Any], job: Row, question: Question) -> tuple[float, float] | None:
    """Return the time for which the slots of a job are known, in seconds since 1970; None: none are."""
    schedule = schedule_of(job)
    if question.by_schedule:
        return None if schedule is None else (float("-inf"), float("inf"))
    if job["known_until"] is None:
        return None
    begun = max(job["anchor_at"], job["created_at"])
    first = next(iter(slots_page(conn, job["id"], begun - INSTANT, job["known_until"], 1)), None)
    if schedule is not None:
        expected = first_allowed(schedule, job_calendar(job), schedule.after(begun))
        begins = expected if first is None else first["covers_from"] or first["scheduled_at"]
        begun = begun if begins is None or begins == expected else begins  # older rows have been pruned
    return begun.timestamp(), job["known_until"].timestamp()


def schedule_of(job: Row) -> Schedule | None:
    """Return the schedule of a job; None where its slots cannot be computed."""
    if job["schedule"] is None:
        return None
    try:
        found = whole_schedule(job)
    except ScheduleError:
        return None
    return None if found.fixed_delay is not None else found


def slots_of(
    conn: Connection[Any], job: Row, first: datetime, last: datetime, question: Question
) -> Iterator[tuple[datetime, bool]]:
    """Yield the slots of a job in (first, last], each with whether it was decided late."""
    schedule = schedule_of(job)
    if question.by_schedule:
        dates = job_calendar(job)
        for slot in schedule.between(first, last) if schedule is not None else ():
            if dates.excluded(slot) is None:
                yield slot, False
        return
    for row in decided_slots(conn, job["id"], first, job["known_until"]):
        begun = row["covers_from"]
        if (begun or row["scheduled_at"]) > last:
            break
        if begun is None or begun == row["scheduled_at"] or schedule is None:
            yield row["scheduled_at"], row["would_miss"]
            continue
        dates = job_calendar(job)
        stretch = schedule.between(max(begun - INSTANT, first), min(row["covers_until"], last))
        for slot in islice(stretch, MOST_SLOTS):
            if dates.excluded(slot) is None:
                yield slot, True
