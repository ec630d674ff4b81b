"""Make jobs of the lines of a crontab.

Invariant: a job does what cron did with its line: same command, shell, variables, directory, input and zone. Whatever
cannot be so has a remark.

What cron does is in crontab(5) and cron(8) of Debian: SHELL is /bin/sh and PATH is /usr/bin:/bin unless the crontab
says otherwise; a command begins in HOME. What is due starts beside whatever runs, once, and what was missed is not made
up for. The command sees the zone of the machine, also where cronie's CRON_TZ gives the schedule another.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pgsched.core.policies import PRESETS
from pgsched.core.schedule import zones
from pgsched.core.schedule.cron import parse
from pgsched.errors import ScheduleError
from pgsched.importers.clock_changes import Rule, describe_change, first_difference
from pgsched.importers.crontab.fields import LineRefused, translate_fields, translate_macro
from pgsched.importers.crontab.lines import BadLine, Entry, Setting, read_crontab
from pgsched.importers.file_values import omit_refused
from pgsched.importers.imported import Imported, ImportedJob, Omitted, Reason, Remark
from pgsched.importers.job_names import JobNames, clean_name, left_running, name_of_command
from pgsched.importers.variables import split_own

DEFAULT_PATH = "/usr/bin:/bin"
DEFAULT_SHELL = "/bin/sh"
MOST_NAMED, LONGEST_SHOWN = 20, 300  # jobs, and characters of a setting, that the head names
# Settings that are for cron itself.
FOR_CRON = {"MAILTO", "MAILFROM", "CONTENT_TYPE", "CONTENT_TRANSFER_ENCODING", "CRON_TZ", "RANDOM_DELAY", "MLS_LEVEL",
            "LOGNAME", "USER", "START_HOURS_RANGE", "NO_MAIL_OUTPUT"}  # fmt: skip
POLICIES = {name: PRESETS["cron"][name] for name in ("overlap", "catch_up", "max_attempts")}
# What depends on the directory in which a command starts: a program or an argument by a relative path, a redirection.
RELATIVE = re.compile(r"(?:^|[;&|({]\s*)[A-Za-z0-9_][\w.-]*/|(?:^|[\s;&|({=])\.\.?/|(?<![<>&])[<>]+\s*[A-Za-z0-9_]")
CHANGES_DIRECTORY = re.compile(r"\bcd\s+[\"']?[/~$]")


@dataclass(frozen=True, slots=True)
class CrontabOptions:
    """How a crontab is to be read.

    `label`: what stands before `line 12`, for a file of several. `timezone`: of the machine. `owner`: the user whose
    crontab it is, if that is known. `user_column`: each line has a user before its command. `queue`: of all jobs;
    `{user}` in it stands for the user. `home`: the directory in which commands start, where it is not that of the user;
    `home_of`: the home directory of a user, or None. `prefix`: what all names begin with.
    """

    timezone: str
    now: datetime
    label: str = ""
    owner: str | None = None
    user_column: bool = False
    queue: str | None = None
    home: str | None = None
    home_of: Callable[[str], str | None] = field(default={"root": "/root"}.get)
    prefix: str | None = None


def import_crontab(text: str, options: CrontabOptions, names: JobNames | None = None) -> Imported:
    """Return the jobs of a crontab. `names`: those of the same import that are taken."""
    reading = _Reading(options, names or JobNames(), text)
    for line in reading.lines:
        if isinstance(line, Setting):
            reading.set_variable(line)
        elif isinstance(line, BadLine):
            reading.omit(line, line.remark)
        else:
            reading.add_entry(line)
    reading.add_mail()
    return omit_refused(reading.imported)


class _Reading:
    """One crontab that is being read: the settings so far, and the jobs."""

    def __init__(self, options: CrontabOptions, names: JobNames, text: str) -> None:
        self.imported = Imported()
        self.lines = list(read_crontab(text, user_column=options.user_column))
        self._options = options
        self._names = names
        self._variables: dict[str, str] = {}
        self._mail: list[tuple[str, list[str]]] = []  # settings of MAILTO, each with the jobs below it
        entries = [line for line in self.lines if isinstance(line, Entry)]
        self._users = {line.user for line in entries}
        self._alone = len(entries) == 1

    def set_variable(self, line: Setting) -> None:
        """Note a setting, which holds for the lines below it."""
        self._variables[line.name] = line.value
        shown = f"{self._where(line.number)}: {line.name}={line.value}"
        if line.name == "MAILTO":
            self._mail.append((shown if line.value else "", []))
        if line.name == "CRON_TZ" and line.value:
            text = f"{shown}: read as cronie does; the cron of Debian would ignore it"
            self.imported.remarks.append(Remark(Reason.TIME_ZONE, text))

    def add_mail(self) -> None:
        """Say which jobs lose their mail: those below a MAILTO that is not empty."""
        for shown, names in self._mail:
            if shown and names:
                more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
                text = f"{shown[:LONGEST_SHOWN]}: no mail from {', '.join(names[:MOST_NAMED])}{more}:"
                text += " see alert_after_failures, and --alert-apprise"
                self.imported.remarks.append(Remark(Reason.MAILTO, text))

    def omit(self, line: Entry | BadLine, remark: Remark) -> None:
        """Note a line that becomes no job."""
        self.imported.omitted.append(Omitted(self._where(line.number), line.text, remark))

    def add_entry(self, line: Entry) -> None:
        """Make a job of a line, or note why not."""
        remarks: list[Remark] = []
        try:
            schedule = self._schedule(line, remarks)
        except LineRefused as refusal:
            self.omit(line, refusal.remark)
            return
        columns: dict[str, Any] = {"schedule": schedule, "timezone": self._zone(remarks)}
        self._check_clock_changes(columns, remarks)
        columns |= self._command(line, remarks)
        columns |= self._queue(line, remarks)
        columns |= POLICIES | self._delay(remarks)
        if "s" in line.flags:  # OpenBSD: a single instance
            columns["overlap"] = "skip"
        if others := line.flags - {"s"}:
            shown = " ".join(sorted(others)).replace("n", "-n").replace("q", "-q")
            remarks.append(Remark(Reason.FLAGS, f"{shown} is left out"))
        job = ImportedJob(self._name(line), columns, remarks, self._where(line.number), line.text)
        self.imported.add(job)
        if self._mail:
            self._mail[-1][1].append(job.name)

    def _where(self, number: int) -> str:
        return f"{self._options.label} line {number}".strip()

    def _schedule(self, line: Entry, remarks: list[Remark]) -> str:
        if len(line.times) == 1:
            return translate_macro(line.times[0])
        schedule, found = translate_fields(list(line.times), f"{self._options.label}\n{line.text}")
        remarks.extend(found)
        try:
            parse(schedule)
        except ScheduleError as error:  # 30 February
            raise LineRefused(f"{error}, neither here nor in cron", Reason.SCHEDULE) from None
        return schedule

    def _zone(self, remarks: list[Remark]) -> str:
        wanted = self._variables.get("CRON_TZ")
        if not wanted:
            return self._options.timezone
        try:
            zones.zone(wanted)
        except ScheduleError as error:
            remarks.append(Remark(Reason.SCHEDULE, f"CRON_TZ={wanted}: {error.reason}", "timezone"))
            return self._options.timezone
        return wanted

    def _check_clock_changes(self, columns: dict[str, Any], remarks: list[Remark]) -> None:
        change = first_difference([columns["schedule"]], columns["timezone"], Rule.VIXIE, self._options.now)
        if change is not None:
            text = f"{describe_change(change)}: cron starts it several times after that, pgsched once"
            remarks.append(Remark(Reason.CLOCK_CHANGE, text, "schedule"))

    def _command(self, line: Entry, remarks: list[Remark]) -> dict[str, Any]:
        shell = self._variables.get("SHELL") or DEFAULT_SHELL
        env = {name: value for name, value in self._variables.items() if name not in FOR_CRON}
        env, own = split_own({"PATH": DEFAULT_PATH} | env)
        remarks += own
        env.pop("SHELL", None)
        args: dict[str, Any] = {"env": env}
        if found := left_running(line.command):
            text = f"{found}: what still runs when the command ends is killed; let the command wait for it"
            remarks.append(Remark(Reason.BACKGROUND, text, "task" if shell == DEFAULT_SHELL else "args"))
        if shell != DEFAULT_SHELL:
            args = {"argv": ["-c", line.command], "env": {**args["env"], "SHELL": shell}}
        if self._options.timezone != "UTC":
            args["env"].setdefault("TZ", self._options.timezone)
        user = self._user(line)
        home = env.get("HOME") or self._options.home or (self._options.home_of(user) if user else None)
        if home:
            args["env"].setdefault("HOME", home)
            args["cwd"] = home
        elif RELATIVE.search(line.command) and not CHANGES_DIRECTORY.search(line.command):
            text = f"it seems to name a file relative to the home directory of {user or 'the owner'}: set cwd"
            remarks.append(Remark(Reason.HOME, text, "args"))
        if line.stdin:
            args["stdin"] = line.stdin
            remarks.append(Remark(Reason.PERCENT, "its input is stdin", "args"))
        if shell == DEFAULT_SHELL:
            return {"kind": "shell", "task": line.command, "args": args}
        return {"kind": "command", "task": shell, "args": args}

    def _user(self, line: Entry) -> str | None:
        return re.split(r"[:/]", line.user)[0] if line.user else self._options.owner

    def _queue(self, line: Entry, remarks: list[Remark]) -> dict[str, Any]:
        user = self._user(line)
        pattern = self._options.queue
        if user is None:
            return {} if pattern is None else {"queue": clean_name(pattern.replace("{user}", "default"))}
        queue = clean_name((pattern or "{user}").replace("{user}", user))
        if len(self._users) > 1 and "{user}" not in (pattern or "{user}"):
            remarks.append(Remark(Reason.USER_LOST, f"it ran as {user}; --queue has no {{user}}", "queue"))
        else:
            text = f"jobs of {user}: serve the queue {queue} with a worker of that user, or --run-as {user}"
            if (remark := Remark(Reason.USER_COLUMN, text)) not in self.imported.remarks:
                self.imported.remarks.append(remark)
        return {"queue": queue}

    def _delay(self, remarks: list[Remark]) -> dict[str, Any]:
        wanted = self._variables.get("RANDOM_DELAY", "")
        if not wanted.isdecimal() or not 0 < int(wanted[:9]) <= 1440 * 365:
            return {}
        text = f"RANDOM_DELAY={wanted}: cronie chooses the share of these minutes once, when it starts"
        remarks.append(Remark(Reason.RANDOM_DELAY, text, "jitter"))
        return {"jitter": timedelta(minutes=int(wanted[:9]))}

    def _name(self, line: Entry) -> str:
        prefix = self._options.prefix
        found = name_of_command(line.command, "")
        if prefix is None:
            return self._names.take(found or f"line-{line.number}")
        if self._alone or not found or found == prefix:
            return self._names.take(prefix)
        return self._names.take(f"{prefix}-{found}")
