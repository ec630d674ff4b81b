"""Jobs made of crontabs: commands, variables, directories, users, queues, names, and which lines are exact."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pgsched.core.schedule.cron import parse
from pgsched.importers.crontab.importing import CrontabOptions, import_crontab
from pgsched.importers.imported import Imported, Reason, merge_imported
from pgsched.importers.job_names import JobNames, name_of_command

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SAMPLES = Path(__file__).parent / "samples"


def read(text: str, zone: str = "Europe/Berlin", **options: Any) -> Imported:
    return import_crontab(text, CrontabOptions(zone, NOW, **options))


def columns(text: str, **options: Any) -> dict[str, Any]:
    imported = read(text, **options)
    assert len(imported.jobs) == 1, imported
    return imported.jobs[0].columns


def sample_crontabs(zone: str) -> Imported:
    names = JobNames()
    parts = []
    for path in sorted(SAMPLES.glob("*/*")):
        if path.parent.name in ("cron.d", "users"):
            system = path.parent.name == "cron.d"
            options = CrontabOptions(zone, NOW, str(path), None, system, prefix=path.name if system else None)
            parts.append(import_crontab(path.read_text(), options, names))
    return merge_imported(parts)


def test_a_line_becomes_a_job_that_does_what_cron_did() -> None:
    assert columns("15 2 * * * /usr/local/bin/dump --all\n") == {
        "schedule": "15 2 * * *",
        "timezone": "Europe/Berlin",
        "kind": "shell",
        "task": "/usr/local/bin/dump --all",
        "args": {"env": {"PATH": "/usr/bin:/bin", "TZ": "Europe/Berlin"}},
        "overlap": "allow",
        "catch_up": "skip",
        "max_attempts": 1,
    }


def test_variables_hold_for_the_lines_below_them() -> None:
    text = "0 1 * * * a\nPATH=/opt/bin\nB='x y'\nHOME=/srv\nTZ=Asia/Tokyo\nMAILTO=me\n0 2 * * * b\n"
    first, second = read(text).jobs
    assert first.columns["args"] == {"env": {"PATH": "/usr/bin:/bin", "TZ": "Europe/Berlin"}}
    env = {"PATH": "/opt/bin", "B": "x y", "HOME": "/srv", "TZ": "Asia/Tokyo"}
    assert second.columns["args"] == {"env": env, "cwd": "/srv"}


def test_another_shell_is_a_command_that_gets_the_line() -> None:
    found = columns("SHELL=/bin/bash\n* * * * * [[ a == b ]]\n", zone="UTC")
    assert (found["kind"], found["task"]) == ("command", "/bin/bash")
    assert found["args"] == {"argv": ["-c", "[[ a == b ]]"], "env": {"PATH": "/usr/bin:/bin", "SHELL": "/bin/bash"}}


@pytest.mark.parametrize("command", [
    "pgrep -x etl || /opt/etl/run >>/var/log/etl.log 2>&1 &", "nohup /opt/x &", "(a; b) & echo done", "setsid /opt/x",
    "daemon -- /opt/x", "/sbin/start-stop-daemon --start --background --exec /opt/x", "a & wait; b &",
    "screen -dmS x /opt/x", "sleep 30 && touch /tmp/w &", "[ -x a ] && exec setsid a",
])  # fmt: skip
def test_a_process_that_is_left_running_is_a_difference(command: str) -> None:
    (job,) = read(f"0 3 * * * {command}\n").jobs
    assert [remark.reason for remark in job.remarks if not remark.reason.informs] == [Reason.BACKGROUND]


@pytest.mark.parametrize("command", [
    "a && b", "a 2>&1", "a >& x", "a &> x", "a |& b", "curl 'http://x/?a=1&b=2'", 'b "a & c"', "a \\& b",
    "a & b & wait",
    "nohup a", "setsid --wait a", "service daemon restart", "echo a >&2", "tmux new-session", "a <&0",
])  # fmt: skip
def test_other_signs_leave_no_process(command: str) -> None:
    assert all(job.exact for job in read(f"0 3 * * * {command}\n").jobs)


def test_the_jobs_that_lose_their_mail_are_named() -> None:
    text = "0 1 * * * a\nMAILTO=me\n0 2 * * * b\n0 3 * * * c\nMAILTO=\n0 4 * * * d\nMAILTO=you\n0 5 * * * e\n"
    found = [remark.text for remark in read(text).remarks if remark.reason is Reason.MAILTO]
    assert [one.partition(": see")[0] for one in found] == [
        "line 2: MAILTO=me: no mail from b, c", "line 7: MAILTO=you: no mail from e",
    ]  # fmt: skip
    many = "MAILTO=me\n" + "".join(f"{n} 2 * * * b\n" for n in range(30))
    assert " and 10 more: see" in read(many).remarks[0].text


def test_the_user_of_a_line_is_a_queue() -> None:
    imported = read("1 1 * * * root a\n2 2 * * * anna:staff/daemon b\n", user_column=True)
    assert [job.columns["queue"] for job in imported.jobs] == ["root", "anna"]
    assert [job.columns["args"].get("cwd") for job in imported.jobs] == ["/root", None]
    assert [remark.reason for remark in imported.remarks] == [Reason.USER_COLUMN] * 2
    assert all(job.exact for job in imported.jobs)


def test_one_queue_for_several_users_loses_them() -> None:
    text = "1 1 * * * root a\n2 2 * * * anna b\n"
    imported = read(text, user_column=True, queue="web1")
    assert [[remark.reason for remark in job.remarks] for job in imported.jobs] == [[Reason.USER_LOST]] * 2
    imported = read(text, user_column=True, queue="{user}@web1")
    assert [job.columns["queue"] for job in imported.jobs] == ["root@web1", "anna@web1"]
    assert all(job.exact for job in imported.jobs)


def test_the_owner_of_a_crontab_gives_its_directory_and_queue() -> None:
    found = columns("1 1 * * * a\n", owner="anna", home_of={"anna": "/home/anna"}.get)
    assert (found["args"]["cwd"], found["args"]["env"]["HOME"], found["queue"]) == ("/home/anna", "/home/anna", "anna")


@pytest.mark.parametrize(("command", "says_so"), [
    ("./dump.sh", True), ("bin/dump", True), ("dump > out.txt", True), ("cat ../x", True), ("cd /srv && ./dump", False),
    ("/usr/bin/x a/b", False), ("curl https://a.example/b", False), ("x 2>&1 >/dev/null", False), ("x >&2", False),
])  # fmt: skip
def test_a_relative_path_needs_the_home_directory(command: str, says_so: bool) -> None:
    job = read(f"1 1 * * * {command}\n").jobs[0]
    assert [remark.reason for remark in job.remarks] == [Reason.HOME] * says_so


def test_cronie_s_zone_and_delay() -> None:
    job = read("CRON_TZ=Asia/Tokyo\nRANDOM_DELAY=45\n0 9 * * * a\n").jobs[0]
    assert (job.columns["timezone"], job.columns["jitter"]) == ("Asia/Tokyo", timedelta(minutes=45))
    assert job.columns["args"]["env"]["TZ"] == "Europe/Berlin"
    assert [remark.reason for remark in job.remarks] == [Reason.RANDOM_DELAY]
    wrong = read("CRON_TZ=Nowhere/Else\n0 9 * * * a\n").jobs[0]
    assert (wrong.columns["timezone"], wrong.remarks[0].reason) == ("Europe/Berlin", Reason.SCHEDULE)


@pytest.mark.parametrize(("line", "reason"), [
    ("@reboot a", Reason.AT_REBOOT), ("0 0 30 2 * a", Reason.SCHEDULE), ("0 0 * * monday a", Reason.SYNTAX),
    ("61 0 * * * a", Reason.SYNTAX), ("0 0 0 * * a", Reason.SYNTAX), ("0 0 5-1 * * a", Reason.SYNTAX),
    ("0 0 L * * a", Reason.SYNTAX), ("0 0 ? * * a", Reason.SYNTAX), ("*/0 * * * * a", Reason.SYNTAX),
    ("0 0 1,,2 * * a", Reason.SYNTAX), ("@fortnightly a", Reason.SYNTAX), (f"{'9' * 5000} 0 * * * a", Reason.SYNTAX),
])  # fmt: skip
def test_what_becomes_no_job(line: str, reason: Reason) -> None:
    imported = read(f"\n{line}\n")
    assert imported.jobs == []
    assert [(omitted.where, omitted.remark.reason) for omitted in imported.omitted] == [("line 2", reason)]


@pytest.mark.parametrize(("line", "schedule"), [
    ("@every_minute a", "* * * * *"), ("@every_second a", "* * * * * *"), ("@600 a", "@after 600s"),
    ("@midnight a", "@midnight"),
])  # fmt: skip
def test_macros(line: str, schedule: str) -> None:
    assert columns(f"{line}\n")["schedule"] == schedule
    parse(schedule)


def test_a_single_instance_of_openbsd_is_an_overlap_policy() -> None:
    job = read("* * * * * -ns a\n").jobs[0]
    assert (job.columns["overlap"], [remark.reason for remark in job.remarks]) == ("skip", [Reason.FLAGS])


def test_mail_is_said_once_for_each_setting() -> None:
    imported = read("MAILTO=ops\n1 1 * * * a\n2 2 * * * b\nMAILTO=\n3 3 * * * c\n")
    assert [(remark.reason, remark.text.split(":")[0]) for remark in imported.remarks] == [(Reason.MAILTO, "line 1")]
    assert all(job.exact for job in imported.jobs)


@pytest.mark.parametrize(("command", "name"), [
    ("/usr/local/bin/backup.sh --full", "backup"),
    ("cd /srv/shop && flock -n /run/lock/dump ./dump.sh >> /var/log/dump.log 2>&1", "dump"),
    ("[ -x /usr/lib/php/sessionclean ] && if [ ! -d /run ]; then /usr/lib/php/sessionclean; fi", "sessionclean"),
    ("nice -n 19 ionice -c 3 timeout 300 /opt/compact", "compact"),
    ("env TERM=dumb A=1 python3 -m shop.tasks.rates", "shop.tasks.rates"),
    ("php -q /var/www/cron.php", "cron"), ("bash -c 'cd /x; run it'", "run"), ("sudo -u www-data /x/y", "y"),
    ("FOO=bar make -C /src all", "make"), ("sleep 10; curl -fsS https://a.example", "curl"), ("cd /", "otherwise"),
    (">/dev/null", "otherwise"), ("'/opt/my prog' x", "my-prog"), ("; ; &&", "otherwise"),
])  # fmt: skip
def test_a_job_is_named_after_what_it_runs(command: str, name: str) -> None:
    assert name_of_command(command, "otherwise") == name


def test_names_are_different_and_stable() -> None:
    text = "1 1 * * * root /bin/a\n2 2 * * * root /bin/a -x\n3 3 * * * root cd /\n"
    assert [job.name for job in read(text, user_column=True).jobs] == ["a", "a-2", "line-3"]
    assert [job.name for job in read(text, user_column=True, prefix="tools").jobs] == ["tools-a", "tools-a-2", "tools"]
    assert [job.name for job in read("1 1 * * * root /bin/a", user_column=True, prefix="tools").jobs] == ["tools"]


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin"])
def test_almost_all_lines_of_real_crontabs_are_exact(zone: str) -> None:
    imported = sample_crontabs(zone)
    lines = len(imported.jobs) + len(imported.omitted)
    exact = sum(job.exact for job in imported.jobs)
    assert lines > 50 and exact / lines >= 0.95
    assert len({job.name for job in imported.jobs}) == len(imported.jobs)
    for job in imported.jobs:
        parse(job.columns["schedule"], job.columns["timezone"])
    found = {reason for reason in imported.count_reasons() if not reason.informs}
    assert found == {Reason.MAILTO, Reason.AT_REBOOT, Reason.RANDOM_DELAY}


@pytest.mark.parametrize(("user", "prefix"), [("a" * 300, "b" * 250), ("root", "odd name"), ("root", "\x1b[2J")])
def test_names_are_such_as_the_database_takes(user: str, prefix: str) -> None:
    job = read(f"1 1 * * * {user} x\n", user_column=True, prefix=prefix).jobs[0]
    assert len(job.name) <= 200 and job.name.isprintable() and len(job.columns["queue"]) <= 100


def test_a_command_that_is_too_long_becomes_no_job() -> None:
    for text in (f"1 1 * * * {'x' * 70_000}\n", f"A={'y' * 1_100_000}\n"):
        imported = read(text)
        assert imported.jobs == [] and len(imported.omitted) == 1
        assert imported.omitted[0].remark.reason is Reason.REFUSED
