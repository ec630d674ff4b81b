"""Services that timers start: as commands where that is the same, and else as units that the job starts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.importers.imported import Reason
from pgsched.importers.systemd.command_lines import CommandRefused, parse_commands, split_quoted
from pgsched.importers.systemd.services import PATH, service_job
from pgsched.importers.systemd.time_spans import parse_span
from pgsched.importers.systemd.units import Unit, UnitFiles, drop_in_names


def unit(*lines: str, name: str = "a.service", section: str = "Service") -> Unit:
    found = Unit(name)
    found.read(f"[{section}]\n" + "\n".join(lines) + "\n")
    return found


def columns(*lines: str, **options: Any) -> dict[str, Any]:
    service = unit("Type=oneshot", *lines) if not options.get("kind") else unit(*lines)
    return service_job(service, timezone="UTC", of_users=False, start_units=False).columns


def words(value: str, **variables: str) -> list[tuple[str, ...]]:
    return [one.words for one in parse_commands(unit(name="a@in-st.service"), value, variables)]


@pytest.mark.parametrize(("value", "found"), [
    ("/bin/a b  c", [("/bin/a", "b", "c")]),
    ("/bin/a 'b c' \"d 'e'\" f\"g h\"i", [("/bin/a", "b c", "d 'e'", "fg hi")]),
    (r"/bin/a \x41 \101 \t| a\sb '\"' \\", [("/bin/a", "A", "A", "\t|", "a b", '"', "\\")]),
    ("/bin/a ; /bin/b x", [("/bin/a",), ("/bin/b", "x")]),
    ("/bin/a ';' \\; x;y", [("/bin/a", ";", ";", "x;y")]),
    ("/bin/a ${V} $V x$V ${V}y $$V", [("/bin/a", "p  q", "p", "q", "x$V", "p  qy", "$V")]),
    ("/bin/a %i %I %n %p %% %N", [("/bin/a", "in-st", "in/st", "a@in-st.service", "a", "%", "a@in-st")]),
    (":/bin/a $V", [("/bin/a", "$V")]),
    ("/bin/a ''", [("/bin/a", "")]),
])  # fmt: skip
def test_command_lines_have_the_arguments_of_systemd(value: str, found: list[tuple[str, ...]]) -> None:
    assert words(value, V="p  q") == found


@pytest.mark.parametrize("value", ["/bin/a 'x", "$V a", "@/bin/a b", "!/bin/a", "+/bin/a", "/bin/a $NO", "|/bin/a"])
def test_command_lines_that_cannot_be_carried_over(value: str) -> None:
    with pytest.raises(CommandRefused):
        words(value, V="x")


@settings(deadline=None, max_examples=300)
@given(st.text(st.sampled_from("ab $'\"\\;{}%x0 \t"), max_size=40))
def test_any_command_line_is_read_or_refused(text: str) -> None:
    try:
        split_quoted(text)
    except CommandRefused:
        assert text.count("'") + text.count('"') > 0


def test_one_command_is_a_command() -> None:
    assert columns("ExecStart=/usr/bin/x --all") == {
        "kind": "command", "task": "/usr/bin/x", "args": {"argv": ["--all"], "env": {"PATH": PATH}, "cwd": "/"},
    }  # fmt: skip


def test_several_commands_run_until_one_fails() -> None:
    found = columns("ExecStartPre=-/bin/p 'a b'", "ExecStart=/bin/x", "ExecStart=/bin/y", "ExecStartPost=/bin/z")
    assert found["kind"] == "shell" and found["task"] == "{ /bin/p 'a b' || :; } && /bin/x && /bin/y && /bin/z"


def test_settings_that_a_job_has_as_well() -> None:
    found = columns(
        "ExecStart=/bin/x", "Environment=A=1 'B=x y'", "Environment=C=%p", "WorkingDirectory=/srv", "User=shop",
        "TimeoutStartSec=2h", "TimeoutStopSec=90", "SuccessExitStatus=2 SIGTERM", "Nice=5", "IOSchedulingClass=idle",
        "StandardOutput=journal", "PrivateTmp=no", "SyslogIdentifier=x",
    )  # fmt: skip
    assert found == {
        "kind": "command", "task": "nice", "success_codes": [0, 2, 143], "timeout": timedelta(hours=2),
        "kill_after": timedelta(seconds=90),
        "args": {"argv": ["-n", "5", "ionice", "-c", "3", "/bin/x"], "cwd": "/srv",
                 "env": {"PATH": PATH, "A": "1", "B": "x y", "C": "a"}},
    }  # fmt: skip


def test_a_simple_service_may_end_by_a_signal() -> None:
    found = columns("ExecStart=/bin/x", "RuntimeMaxSec=60", "TimeoutStartSec=5", kind="simple")
    assert (found["success_codes"], found["timeout"]) == ([0, 129, 130, 141, 143], timedelta(minutes=1))


def test_the_zone_of_the_machine_is_that_of_the_command() -> None:
    job = service_job(unit("ExecStart=/bin/x"), timezone="Asia/Tokyo", of_users=False, start_units=False)
    assert job.columns["args"]["env"]["TZ"] == "Asia/Tokyo" and job.user == "root"
    job = service_job(unit("ExecStart=/bin/x", "User=anna"), timezone="UTC", of_users=False, start_units=False)
    assert job.user == "anna"
    job = service_job(unit("ExecStart=/bin/x"), timezone="UTC", of_users=True, start_units=False)
    assert (job.user, "cwd" in job.columns["args"]) == (None, False)


@pytest.mark.parametrize("line", [
    "ProtectSystem=full", "EnvironmentFile=/etc/default/x", "MemoryMax=1G", "DynamicUser=yes", "Restart=on-failure",
    "ExecCondition=/bin/c", "ExecStopPost=/bin/c", "Group=other", "Type=notify", "KillMode=process", "StateDirectory=x",
    "WorkingDirectory=~", "SuccessExitStatus=DATAERR", "IOSchedulingClass=best-effort-ish", "User=%H", "UMask=0077",
    "StandardOutput=append:/var/log/x", "Nice=high", "ExecStart=/bin/second", "Environment=A='x", "TimeoutStopSec=soon",
])  # fmt: skip
def test_other_services_stay_units(line: str) -> None:
    service = unit("ExecStart=/bin/x", line)
    job = service_job(service, timezone="UTC", of_users=False, start_units=False)
    assert (job.columns["task"], job.columns["args"]["argv"]) == ("systemctl", ["start", "--wait", "a.service"])
    assert [remark.reason for remark in job.remarks] == [Reason.UNIT_STARTED] and job.user == "root"


@pytest.mark.parametrize("line", [
    "ConditionACPower=true", "Requires=b.service", "OnFailure=mail@%n.service", "Wants=b.service",
])  # fmt: skip
def test_conditions_and_needs_of_a_unit_keep_it_a_unit(line: str) -> None:
    service = unit("ExecStart=/bin/x")
    service.read(f"[Unit]\n{line}\n")
    assert service_job(service, timezone="UTC", of_users=True, start_units=False).columns["args"]["argv"] == [
        "--user", "start", "--wait", "a.service",
    ]  # fmt: skip
    service = unit("ExecStart=/bin/x")
    service.read("[Unit]\nWants=network-online.target\nAfter=network-online.target\n")
    assert service_job(service, timezone="UTC", of_users=False, start_units=False).columns["task"] == "/bin/x"
    assert service_job(service, timezone="UTC", of_users=False, start_units=True).columns["task"] == "systemctl"


@pytest.mark.parametrize(("text", "seconds"), [
    ("50", 50), ("5h 30min", 19_800), ("1h30m", 5400), ("2 h", 7200), ("55s500ms", 55.5), ("1y 12month", 63_115_200),
    ("1w", 604_800), ("300ms20s 5day", 432_020.3), ("0", 0),
])  # fmt: skip
def test_time_spans(text: str, seconds: float) -> None:
    found = parse_span(text)
    assert found is not None and found.total_seconds() == seconds


def test_other_texts_are_no_time_spans() -> None:
    assert parse_span("infinity") is None
    for text in ("", "x", "5 fortnights", "-5", "1e3", "5;"):
        with pytest.raises(ValueError, match="time span"):
            parse_span(text)


def test_unit_files_are_read_as_systemd_reads_them() -> None:
    found = Unit("a.service")
    found.read(
        "A=lost\n[X]\nA=1\nA=2\n # c\n;c\nB = a \\\n# between\n  b \\\n  c\nC=x\nno setting\n[Y]\nA=3\n[X]\nC=\nD=\\\n"
    )
    assert found.values("X", "A") == ["1", "2"] and found.value("Y", "A") == "3"
    assert found.value("X", "B") == "a    b    c" and found.value("X", "C") is None


def test_drop_ins_and_templates() -> None:
    drop_ins = {"a@.service": {"1.conf": "[S]\nA=\nA=2\n"}, "a@x.service": {"2.conf": "[S]\nB=%i\n"}}
    files = UnitFiles({"a@.service": "[S]\nA=1\nB=1\n"}, [drop_ins])
    found = files.load("a@x.service")
    assert found is not None and (found.values("S", "A"), found.resolve(found.value("S", "B") or "")) == (["2"], "x")
    assert files.load("b.service") is None


def test_drop_ins_of_several_directories() -> None:
    """They are applied in the order of their names; of two with one name that of the first directory counts."""
    first = {"a-b.service": {"50-local.conf": "[S]\nA=\nA=local\n", "30.conf": None, "20.conf": "[S]\nB=first\n"}}
    second = {
        "a-b.service": {
            "10-vendor.conf": "[S]\nA=\nA=vendor\n",
            "20.conf": "[S]\nB=second\n",
            "30.conf": "[S]\nC=masked\n",
        },
        "a-.service": {"40.conf": "[S]\nD=prefix\n"},
        "service": {"20.conf": "[S]\nB=type\n", "60.conf": "[S]\nE=type\n"},
    }
    found = UnitFiles({"a-b.service": "[S]\nA=0\n"}, [first, second]).load("a-b.service")
    assert found is not None
    assert [found.values("S", name) for name in "ABCDE"] == [["local"], ["first"], [], ["prefix"], ["type"]]


@pytest.mark.parametrize(("name", "found"), [
    ("a.timer", ["a.timer"]), ("a-b-c.timer", ["a-b-c.timer", "a-b-.timer", "a-.timer"]),
    ("a-b@x-y.timer", ["a-b@x-y.timer", "a-b@.timer", "a-@.timer"]), ("-a.timer", ["-a.timer"]),
])  # fmt: skip
def test_the_directories_of_drop_ins_of_a_unit(name: str, found: list[str]) -> None:
    assert list(drop_in_names(name)) == found


def test_several_commands_with_their_own_exit_codes_stay_a_unit() -> None:
    several = columns("ExecStart=/bin/a", "ExecStart=/bin/b", "SuccessExitStatus=1")
    assert several["task"] == "systemctl"
    assert columns("ExecStart=/bin/a", "SuccessExitStatus=1")["success_codes"] == [0, 1]


def test_a_variable_that_pgsched_sets_is_left_out() -> None:
    service = unit("Type=oneshot", "Environment=PGSCHED_X=1 B=2", "ExecStart=/bin/a $B")
    found = service_job(service, timezone="UTC", of_users=False, start_units=False)
    assert found.columns["args"]["env"] == {"PATH": PATH, "B": "2"}
    assert [one.reason for one in found.remarks] == [Reason.ENVIRONMENT]
