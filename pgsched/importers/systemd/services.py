"""Make the command of a job from a service, or let the job start the service as a unit.

Invariant: a command does what the service did. A service with any setting that a command cannot have (a sandbox,
limits, a file of variables, conditions) stays a unit: the job starts it by `systemctl start --wait`.

What the settings mean is in systemd.service(5) and systemd.exec(5). A service of the system starts in `/`, with a fixed
PATH and in the zone of the machine. The commands of `Type=oneshot` run one after the other until one fails.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pgsched.importers.imported import Reason, Remark
from pgsched.importers.systemd.command_lines import CommandRefused, ServiceCommand, parse_commands, parse_environment
from pgsched.importers.systemd.time_spans import parse_span
from pgsched.importers.systemd.units import FALSE, Unit, UnresolvedSpecifier
from pgsched.importers.variables import split_own

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"
ONESHOT, SIMPLE = ("oneshot",), ("simple", "exec")
# Settings that a command has as well. Those in UNCHANGED change nothing that a run does or what becomes of it.
CARRIED = {
    "Type", "ExecStart", "ExecStartPre", "ExecStartPost", "Environment", "WorkingDirectory", "User", "Group",
    "TimeoutStartSec", "TimeoutStopSec", "TimeoutSec", "RuntimeMaxSec", "SuccessExitStatus", "Nice",
    "IOSchedulingClass", "IOSchedulingPriority",
}  # fmt: skip
UNCHANGED = {"SyslogIdentifier", "SyslogFacility", "SyslogLevel", "LogLevelMax", "LogRateLimitIntervalSec",
             "LogRateLimitBurst", "TimeoutAbortSec", "GuessMainPID", "SendSIGKILL", "TTYReset"}  # fmt: skip
UNCHANGED_VALUES = {
    "StandardInput": {"null"}, "KillMode": {"control-group"}, "KillSignal": {"SIGTERM", "15"}, "Restart": {"no"},
    "StandardOutput": {"journal", "inherit", "journal+console", "syslog", "null"}, "RemainAfterExit": FALSE,
    "StandardError": {"journal", "inherit", "journal+console", "syslog", "null"}, "Slice": {"system.slice"},
}  # fmt: skip
SWITCHES = ("Private", "Protect", "NoNew", "Restrict", "Lock", "MemoryDeny", "Remove", "Dynamic", "Delegate")
# Settings of [Unit] that make a start do more than run the service.
UNIT_CHANGES = ("Condition", "Assert", "Requires", "Requisite", "BindsTo", "Conflicts", "OnFailure", "OnSuccess",
                "JoinsNamespaceOf", "RefuseManualStart", "Wants", "Upholds")  # fmt: skip
ALWAYS_THERE = {"network.target", "network-online.target", "time-sync.target", "nss-lookup.target", "basic.target",
                "local-fs.target", "sysinit.target"}  # fmt: skip
NO_MATTER = {"Wants": ALWAYS_THERE, "Requires": ALWAYS_THERE, "Conflicts": {"shutdown.target"}}
IO_CLASSES = {"0": "none", "1": "realtime", "2": "best-effort", "3": "idle"}
IO_NUMBERS = {"none": "0", "realtime": "1", "best-effort": "2", "idle": "3"}
# Signals that end a service of Type=simple well, as exit codes of a shell.
GOOD_SIGNALS = {"SIGHUP": 129, "SIGINT": 130, "SIGPIPE": 141, "SIGTERM": 143}
MOST_NAMED = 6


@dataclass(frozen=True, slots=True)
class ServiceJob:
    """The columns of a job that runs a service, the user that it runs as, and remarks."""

    columns: dict[str, Any]
    user: str | None
    remarks: tuple[Remark, ...]


def service_job(service: Unit, *, timezone: str, of_users: bool, start_units: bool) -> ServiceJob:
    """Return what runs a service. `start_units`: each service stays a unit."""
    why = ["--start-units"] if start_units else list(dict.fromkeys(_settings_of_a_unit(service)))
    if not why:
        try:
            return _as_command(service, timezone, of_users)
        except (CommandRefused, UnresolvedSpecifier, ValueError) as error:
            why = [str(error)]
    return _as_unit(service, why, of_users)


def _as_unit(service: Unit, why: list[str], of_users: bool) -> ServiceJob:
    more = f" and {len(why) - MOST_NAMED} more" if len(why) > MOST_NAMED else ""
    text = f"it has {', '.join(why[:MOST_NAMED])}{more}; its timer has to be off"
    argv = ["--user"] * of_users + ["start", "--wait", service.name]
    columns = {"kind": "command", "task": "systemctl", "args": {"argv": argv, "env": {"PATH": PATH}, "cwd": "/"}}
    return ServiceJob(columns, None if of_users else "root", (Remark(Reason.UNIT_STARTED, text, "task"),))


def _settings_of_a_unit(service: Unit) -> Iterator[str]:
    """Yield the settings that a command cannot have."""
    for name, value in service.items("Unit"):
        if name.startswith(UNIT_CHANGES) and not set(value.split()) <= NO_MATTER.get(name, set()):
            yield name
    for name, value in service.items("Service"):
        if name in CARRIED or name in UNCHANGED or value in UNCHANGED_VALUES.get(name, ()):
            continue
        if not (name.startswith(SWITCHES) and value.lower() in FALSE):
            yield f"{name}={value}" if len(value) < 20 else name
    kind = service.value("Service", "Type") or "simple"
    if kind not in ONESHOT + SIMPLE:
        yield f"Type={kind}"
    group, user = service.value("Service", "Group"), service.value("Service", "User")
    if group is not None and group != (user or "root"):
        yield f"Group={group}"
    if kind in SIMPLE and service.values("Service", "ExecStartPost"):
        yield "ExecStartPost"


def _as_command(service: Unit, timezone: str, of_users: bool) -> ServiceJob:
    variables = parse_environment(service)
    oneshot = service.value("Service", "Type") in ONESHOT
    before, commands, after = (
        [one for value in service.values("Service", name) for one in parse_commands(service, value, variables)]
        for name in ("ExecStartPre", "ExecStart", "ExecStartPost")
    )
    if not commands or (len(commands) > 1 and not oneshot):
        raise CommandRefused(f"{len(commands)} commands in ExecStart")
    if len(before) + len(commands) + len(after) > 1 and service.values("Service", "SuccessExitStatus"):
        raise CommandRefused("SuccessExitStatus for several commands")
    user = service.value("Service", "User")
    variables, remarks = split_own(variables)
    env = {"PATH": PATH} | ({"TZ": timezone} if timezone != "UTC" else {})
    args: dict[str, Any] = {"env": env | variables}
    directory = _directory(service, of_users)
    if directory is not None:
        args["cwd"] = directory
    columns = _command_columns([*before, *commands, *after], _wrapper(service), args)
    columns |= _limits(service, oneshot)
    codes = _success_codes(service, oneshot)
    if codes != [0]:
        columns["success_codes"] = codes
    resolved = None if user is None else service.resolve(user)
    return ServiceJob(columns, resolved or (None if of_users else "root"), tuple(remarks))


def _command_columns(commands: list[ServiceCommand], wrapper: list[str], args: dict[str, Any]) -> dict[str, Any]:
    if len(commands) == 1 and not commands[0].may_fail:
        program, *argv = [*wrapper, *commands[0].words]
        return {"kind": "command", "task": program, "args": {"argv": argv, **args} if argv else args}
    texts = []
    for command in commands:
        text = shlex.join([*wrapper, *command.words])
        texts.append(f"{{ {text} || :; }}" if command.may_fail else text)
    return {"kind": "shell", "task": " && ".join(texts), "args": args}


def _directory(service: Unit, of_users: bool) -> str | None:
    found = service.value("Service", "WorkingDirectory")
    if found is None:
        return None if of_users else "/"
    directory = service.resolve(found)
    if not directory.startswith("/"):
        raise CommandRefused(f"WorkingDirectory={found}")
    return directory


def _wrapper(service: Unit) -> list[str]:
    """Return the programs that set the priority of a command."""
    words: list[str] = []
    nice = service.value("Service", "Nice")
    if nice is not None:
        words += ["nice", "-n", str(int(nice))]
    io_class = service.value("Service", "IOSchedulingClass")
    level = service.value("Service", "IOSchedulingPriority")
    if io_class is not None or level is not None:
        name = IO_CLASSES.get(io_class or "2", io_class or "")
        if name not in IO_NUMBERS:
            raise CommandRefused(f"IOSchedulingClass={io_class}")
        words += ["ionice", "-c", IO_NUMBERS[name]]
        if level is not None and name in ("realtime", "best-effort"):
            words += ["-n", str(int(level))]
    return words


def _limits(service: Unit, oneshot: bool) -> dict[str, timedelta]:
    """Return timeout and kill_after. A start of `oneshot` lasts until its commands have ended."""
    found: dict[str, timedelta] = {}
    both = service.value("Service", "TimeoutSec")
    longest = (
        (service.value("Service", "TimeoutStartSec") or both)
        if oneshot
        else (service.value("Service", "RuntimeMaxSec"))
    )
    length = parse_span(longest) if longest is not None else None
    if length:
        found["timeout"] = length
    stopping = service.value("Service", "TimeoutStopSec") or both
    length = parse_span(stopping) if stopping is not None else None
    if length:
        found["kill_after"] = length
    return found


def _success_codes(service: Unit, oneshot: bool) -> list[int]:
    found = {0} if oneshot else {0, *GOOD_SIGNALS.values()}
    for value in service.values("Service", "SuccessExitStatus"):
        for word in value.split():
            if word.isdecimal() and int(word) <= 255:
                found.add(int(word))
            elif word in GOOD_SIGNALS:
                found.add(GOOD_SIGNALS[word])
            else:
                raise CommandRefused(f"SuccessExitStatus={word}")
    return sorted(found)
