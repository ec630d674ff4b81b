"""What an importer returns: jobs, what became no job, and why something does not carry over exactly.

Invariant: whatever does not carry over exactly has a remark, and its reason is one of a closed list. However small a
source is, the jobs of an import have at most MOST_CHARACTERS characters: a source may name one text many times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from pgsched.errors import InputError

CRONTAB = "https://manpages.debian.org/crontab.5"
CRONIE = "https://man7.org/linux/man-pages/man5/crontab.5.html"
TIMER = "https://www.freedesktop.org/software/systemd/man/latest/systemd.timer.html"
CALENDAR = "https://www.freedesktop.org/software/systemd/man/latest/systemd.time.html"
SERVICE = "https://www.freedesktop.org/software/systemd/man/latest/systemd.service.html"
UNIT = "https://www.freedesktop.org/software/systemd/man/latest/systemd.unit.html"
CRONJOB = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/"
K8S_JOB = "https://kubernetes.io/docs/concepts/workloads/controllers/job/"
POD = "https://kubernetes.io/docs/concepts/workloads/pods/"
ROBFIG = "https://pkg.go.dev/github.com/robfig/cron/v3"
CELERY = "https://docs.celeryq.dev/en/stable/userguide/periodic-tasks.html"
CELERY_CRONTAB = "https://docs.celeryq.dev/en/stable/reference/celery.schedules.html"
CELERY_CALLS = "https://docs.celeryq.dev/en/stable/userguide/calling.html"
CELERY_ROUTES = "https://docs.celeryq.dev/en/stable/userguide/routing.html"
CELERY_TABLES = "https://django-celery-beat.readthedocs.io/en/latest/"
PG_CRON = "https://github.com/citusdata/pg_cron"
APSCHEDULER = "https://apscheduler.readthedocs.io/en/3.x/userguide.html"
APS_CRON = "https://apscheduler.readthedocs.io/en/3.x/modules/triggers/cron.html"


MOST_CHARACTERS = 64 * 1024 * 1024  # of all jobs; a plan reads a file of 16 MiB


class Reason(Enum):
    """Why something does not carry over exactly: a sentence, and pages of the sources' own documentation.

    `informs`: the job does as it did; the remark only says how. Every other reason means that something differs.
    """

    ENVIRONMENT = ("The value of a variable comes from elsewhere: a file, a secret or the manager.", (SERVICE, POD))
    MAILTO = ("cron mails what a command prints. pgsched keeps it, and sends alerts of failures.", (CRONTAB,))
    PERCENT = ("What follows the first % is the input of the command: stdin.", (CRONTAB,), True)
    AT_REBOOT = ("pgsched cannot start something when a machine boots: leave it to the service manager.",
                 (CRONTAB, TIMER, PG_CRON))  # fmt: skip
    BACKGROUND = ("Processes that a command leaves running are ended with it; cron leaves them alone.", (CRONTAB,))
    USER_COLUMN = ("A job runs as the user of the worker that serves its queue.", (CRONTAB, SERVICE), True)
    USER_LOST = ("Jobs of several users share one queue: each runs as the user of the worker that takes it.",
                 (CRONTAB, SERVICE))  # fmt: skip
    HOME = ("cron starts commands in the home directory of the owner, which is not known here.", (CRONTAB,))
    RANDOM_DELAY = ("The random delay stays the same there; jitter differs from slot to slot.", (CRONIE, TIMER))
    JITTER = ("A random delay is a jitter: below that amount, chosen for each slot.", (TIMER, APS_CRON), True)
    RANDOM_VALUE = ("cron chooses a value when it reads the crontab; here it was chosen now.", (CRONIE,), True)
    FLAGS = ("Letters for logs and mail mean nothing here.", ("https://man.openbsd.org/crontab.5", CRONIE), True)
    TIME_ZONE = ("The source names a zone of its own.", (CRONIE, CRONJOB, CELERY, PG_CRON), True)
    CLOCK_CHANGE = ("When clocks change, the source and pgsched run different slots.",
                    (CRONTAB, CALENDAR, ROBFIG, CELERY, APS_CRON, PG_CRON))  # fmt: skip
    CLOCK_CHANGE_KEPT = ("The schedule is written so that it does as the source when clocks change.",
                         (CALENDAR, ROBFIG, CELERY, APS_CRON, PG_CRON), True)  # fmt: skip
    SCHEDULE = ("No schedule of pgsched means exactly this.",
                (CRONTAB, CALENDAR, ROBFIG, CELERY, APS_CRON, PG_CRON))  # fmt: skip
    REPETITION = ("systemd is documented to start a repetition such as 0/7 anew with each day, and does not always.",
                  (CALENDAR, "https://github.com/systemd/systemd/issues/22665"), True)  # fmt: skip
    ANCHOR = ("An interval counts from another instant: the job's start.", (ROBFIG, CELERY, APSCHEDULER), True)
    MONOTONIC = ("The source counts from the boot or from the unit's last start or end.", (TIMER,))
    SYNTAX = ("The source itself does not accept this.", (CRONTAB, TIMER, CRONJOB, CELERY_CRONTAB, PG_CRON))
    UNREADABLE = ("A file of the source cannot be read.", (CRONTAB, UNIT, CRONJOB))
    REFUSED = ("No job can have a value that it has: it is too long, or out of range.",
               (CRONTAB, SERVICE, CRONJOB, CELERY, APSCHEDULER, PG_CRON))  # fmt: skip
    PERSISTENT = ("A missed run is made up for, once: catch_up is latest.", (TIMER,), True)
    WAKE_SYSTEM = ("pgsched does not wake a machine that sleeps.", (TIMER,))
    CLOCK_TRIGGER = ("pgsched does not start jobs because clock or zone of a machine change.", (TIMER,))
    CONDITION = ("The timer has conditions, which systemd asks when the timer starts.", (UNIT,), True)
    ENABLED = ("Which timers are enabled stands in links that are not among the files.", (UNIT,), True)
    TEMPLATE = ("A template without an instance is no unit.", (UNIT,))
    NO_UNIT = ("The unit that the timer starts is not among the files, or is no service.", (TIMER,))
    UNIT_STARTED = ("The service stays a unit: the job starts it with systemctl on its machine.", (SERVICE,), True)
    CONCURRENCY_POLICY = ("What happens to a slot while an earlier run is active differs.", (CRONJOB,))
    FORBID = ("Forbid starts the latest missed slot when the earlier run ends; so does overlap here.", (CRONJOB,), True)
    STARTING_DEADLINE = ("Slots later than the deadline are missed: catch_up_window.", (CRONJOB,), True)
    SUSPENDED = ("The source had it suspended: it is paused, also in mode shadow.",
                 (UNIT, CRONJOB, CELERY_TABLES, APSCHEDULER, PG_CRON), True)  # fmt: skip
    WORKER_IMAGE = ("The job runs in the container of the worker of its queue: same image, mounts and account.",
                    (POD,), True)  # fmt: skip
    CONTAINERS = ("A run is one process in one container.", (POD, K8S_JOB))
    NO_COMMAND = ("The command is in the image, which is not read.", (POD,))
    RETRIES = ("Attempts are counted or spaced in another manner.", (K8S_JOB, SERVICE))
    ACTIVE_DEADLINE = ("The deadline holds for all attempts together; timeout is of one attempt.", (K8S_JOB,))
    HISTORY = ("Runs are kept by time and not by number.", (CRONJOB,), True)
    SOLAR = ("pgsched has no schedules by sunrise and sunset.", (CELERY,))
    MISFIRE_GRACE = ("How late a slot may start is decided by catch_up_window.", (APSCHEDULER,), True)
    COALESCE = ("Late slots become one run, or all run: catch_up.", (APSCHEDULER,), True)
    TASK_NAME = ("A task is registered in the --app of a worker, under the name that the job has.",
                 (CELERY, APSCHEDULER), True)  # fmt: skip
    ARGUMENTS = ("Arguments are JSON: positional ones or named ones.", (CELERY, APSCHEDULER))
    MAX_INSTANCES = ("One run more than that waits here; there it is skipped.", (APSCHEDULER,))
    EXECUTOR = ("An executor is a queue, which workers of its own may serve.", (APSCHEDULER,), True)
    JITTER_ADDS_UP = ("Each random delay there moves all later runs; jitter moves one.", (APSCHEDULER,))
    PICKLE = ("The pickle holds what no job store of APScheduler holds, and is not read.", (APSCHEDULER,))
    COUNTDOWN = ("A run starts at its slot; the delay of each message has no column.", (CELERY_CALLS,))
    EXPIRES = ("A run that has not started by then is missed: start_deadline or ends_at.", (CELERY_CALLS,), True)
    QUEUE = ("The queue of its messages could not be found out.", (CELERY_ROUTES,))
    PRIORITY = ("Whether a high number goes first depends on the broker.", (CELERY_CALLS,))
    MESSAGE = ("pgsched has no broker: options of the message mean nothing here.", (CELERY_CALLS,), True)
    LINKS = ("What follows a task is not read: use after_jobs or after=.", (CELERY_CALLS,))
    OPTION = ("No column has this option.", (CELERY_CALLS,))
    NOWFUN = ("The schedule has a clock of its own, which is not asked.", (CELERY,))
    RELATIVE = ("Runs are rounded down to the unit of their interval.", (CELERY,), True)
    OWN_JOB = ("The job is housekeeping of Celery itself; pgsched does not need it.", (CELERY,), True)
    ONE_OFF = ("The job runs once: max_runs is 1.", (CELERY_TABLES,), True)
    IGNORED = ("The source ignores a part of what stands there; so does the job.", (PG_CRON,), True)
    DOM_AND_DOW = ("cron.match_dom_and_dow is on: a day must match both fields of days.", (PG_CRON,), True)
    OWN_JOBS = ("A role sees its own jobs, unless it is a superuser or passes by row security.", (PG_CRON,), True)
    ROLE = ("A job runs with the rights of its owner, who is the role that adds it.", (PG_CRON,))
    DATABASE = ("A job of another database needs workers that know it: --sql-dsn.", (PG_CRON,), True)
    SERVER = ("A job of another server needs workers that know it: --sql-dsn.", (PG_CRON,))
    TRANSACTION = ("A run is one transaction, in which this statement is not allowed.", (PG_CRON,))

    def __init__(self, sentence: str, pages: tuple[str, ...], informs: bool = False) -> None:
        self.sentence = sentence
        self.pages = pages
        self.informs = informs


@dataclass(frozen=True, slots=True)
class Remark:
    """Why something does not carry over exactly, in the words of this job.

    `column`: the column of the job that it is about; None: the job as a whole.
    """

    reason: Reason
    text: str
    column: str | None = None


@dataclass(frozen=True, slots=True)
class ImportedJob:
    """A job. `columns`: as in jobs.yaml. `where`: its place in the source; `source`: what stands there."""

    name: str
    columns: dict[str, Any]
    remarks: list[Remark]
    where: str
    source: str = ""

    @property
    def exact(self) -> bool:
        """Whether the job does what the source did."""
        return all(remark.reason.informs for remark in self.remarks)


@dataclass(frozen=True, slots=True)
class Omitted:
    """Something in the source that became no job, and why."""

    where: str
    source: str
    remark: Remark


@dataclass(slots=True)
class Imported:
    """All that was read.

    `remarks`: those that are about all jobs. `omitted`: what became no job. `characters`: of the jobs that `add` took.
    """

    jobs: list[ImportedJob] = field(default_factory=list)
    remarks: list[Remark] = field(default_factory=list)
    omitted: list[Omitted] = field(default_factory=list)
    characters: int = field(default=0, compare=False)

    def add(self, job: ImportedJob) -> None:
        """Add a job. Raises InputError where the jobs have more than MOST_CHARACTERS characters."""
        self.characters += count_characters(job.columns)
        if self.characters > MOST_CHARACTERS:
            raise InputError(f"the jobs have more than {MOST_CHARACTERS // 2**20} MiB: import the source in parts")
        self.jobs.append(job)

    def all_remarks(self) -> Iterator[Remark]:
        """Yield every remark: about all jobs, about one, and about what became none."""
        yield from self.remarks
        for job in self.jobs:
            yield from job.remarks
        for omitted in self.omitted:
            yield omitted.remark

    def count_reasons(self) -> dict[Reason, int]:
        """Return how many jobs and omitted lines each reason concerns, in the order of the list of reasons."""
        found = Counter(remark.reason for remark in self.remarks)
        for job in self.jobs:
            found.update({remark.reason for remark in job.remarks})
        found.update(omitted.remark.reason for omitted in self.omitted)
        return {reason: found[reason] for reason in Reason if found[reason]}


def merge_imported(parts: Iterable[Imported]) -> Imported:
    """Return all parts as one, each remark about all jobs once. Raises InputError for too many characters."""
    merged = Imported()
    for part in parts:
        for job in part.jobs:
            merged.add(job)
        merged.omitted.extend(part.omitted)
        merged.remarks.extend(remark for remark in part.remarks if remark not in merged.remarks)
    return merged


def count_characters(value: Any) -> int:
    """Return about how many characters the columns of a job have in a file."""
    if isinstance(value, dict):
        return sum(count_characters(key) + count_characters(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return 2 + sum(map(count_characters, value))
    return 8 + (len(value) if isinstance(value, str) else 0)
