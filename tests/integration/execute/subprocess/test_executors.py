"""Commands and command lines: outcomes, exit codes, output, environment, cancellation, and no process left behind."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pgsched.config import WorkerSettings
from pgsched.core.model import Claim, Kind, Outcome, Result
from pgsched.execute.base import AttemptCancelled
from pgsched.execute.output.head_tail import HEAD_BYTES, TAIL_BYTES
from pgsched.execute.registry import make_executors
from pgsched.execute.subprocess.command import CommandExecutor
from pgsched.execute.subprocess.process_groups import GUARD
from pgsched.execute.subprocess.program import Processes
from pgsched.execute.subprocess.shell import ShellExecutor
from pgsched.worker.process import restore_sigchld
from tests.support.executing import SLOT, cancel_when, children_of, claim, execute, holds
from tests.support.waiting import wait_until

pytestmark = pytest.mark.scram

PRINT_ARGUMENTS = ["-c", "import sys; print(ascii(sys.argv[1:]))"]


def command(args: Any, task: str = sys.executable, **more: Any) -> Outcome:
    return execute(CommandExecutor(Processes()), claim("command", task, args, **more))


def shell(line: str, args: Any = None, **more: Any) -> Outcome:
    return execute(ShellExecutor(Processes()), claim("shell", line, args, **more))


def cancel_shell(given: Claim, started: Path, times: int = 1) -> BaseException:
    return cancel_when(ShellExecutor(Processes()), given, started.exists, times)


def test_a_command_that_exits_with_zero_succeeds() -> None:
    outcome = command(["-c", "print('done')"])
    assert (outcome.result, outcome.value, outcome.log_tail) == (Result.SUCCEEDED, {"exit_code": 0}, "done\n")


def test_a_failed_command_reports_its_exit_code_and_its_last_line() -> None:
    outcome = command(["-c", "import sys; print('first', flush=True); sys.exit('the disk is full')"])
    assert (outcome.result, outcome.retry) == (Result.FAILED, True)
    assert outcome.error == "exit code 1: the disk is full"
    assert outcome.log_tail is not None and "first" in outcome.log_tail


def test_the_error_of_a_killed_command_names_the_signal() -> None:
    assert shell("kill -9 $$").error == "killed by SIGKILL"


@pytest.mark.parametrize(
    ("code", "options", "result", "retry"),
    [
        (3, {"success_codes": [0, 3]}, Result.SUCCEEDED, True),
        (0, {"success_codes": [3]}, Result.FAILED, True),
        (4, {"dead_codes": [4]}, Result.FAILED, False),
        (5, {"dead_codes": [4]}, Result.FAILED, True),
        (75, {"retry_codes": [75]}, Result.FAILED, True),
        (1, {"retry_codes": [75]}, Result.FAILED, False),
        (1, {"success_codes": None, "retry_codes": None, "dead_codes": None}, Result.FAILED, True),
    ],
)
def test_exit_codes_are_judged_by_the_options_of_the_job(code: int, options: Any, result: Result, retry: bool) -> None:
    outcome = shell(f"exit {code}", options=options)
    assert (outcome.result, outcome.retry) == (result, retry)


def test_death_by_a_signal_counts_as_exit_code_128_plus_the_number() -> None:
    assert shell("kill -9 $$", options={"dead_codes": [137]}).retry is False


def test_an_unknown_exit_code_is_a_failure() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        outcome = shell("echo last words; exit 3")
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert (outcome.result, outcome.retry, outcome.log_tail) == (Result.FAILED, True, "last words\n")
    assert "exit code unknown" in (outcome.error or "")


def test_exit_codes_are_known_although_sigchld_was_ignored_at_the_start() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        restore_sigchld()
        assert shell("exit 3").error == "exit code 3"
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize(
    "text", ["; rm -rf /", "$(touch hacked)", "`id`", "--help", "-rf", "two\nlines", "", "a b  c", "'\"\\", "é☃", "*"]
)
def test_hostile_arguments_reach_the_program_as_they_are(text: str) -> None:
    assert command([*PRINT_ARGUMENTS, text, "--", text]).log_tail == ascii([text, "--", text]) + "\n"


def test_the_program_name_of_a_command_is_not_read_as_a_command_line(tmp_path: Path) -> None:
    outcome = command([], task=f"touch {tmp_path}/x; true")
    assert (outcome.result, outcome.retry) == (Result.FAILED, True)
    assert outcome.error is not None and "cannot start" in outcome.error and "no such file" in outcome.error
    assert "a command is one program" in outcome.error
    assert not (tmp_path / "x").exists()


def test_a_file_that_is_not_executable_is_a_failure_that_is_retried(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program")
    outcome = command([], task=str(tmp_path / "data"))
    assert outcome.retry and outcome.error is not None and "permission denied" in outcome.error


def test_a_start_that_fails_leaks_no_file_descriptor() -> None:
    def left() -> int:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    async def main() -> None:
        executor = ShellExecutor(Processes())
        assert (await executor.execute(claim("shell", "true"))).result is Result.SUCCEEDED
        before, limits = left(), resource.getrlimit(resource.RLIMIT_NOFILE)
        for more in range(8):  # each descriptor that a start needs is once the first missing one
            resource.setrlimit(resource.RLIMIT_NOFILE, (before + more, limits[1]))
            try:
                outcome = await executor.execute(claim("shell", "true"))
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            assert (outcome.result, outcome.retry) in {(Result.SUCCEEDED, True), (Result.FAILED, True)}
            assert left() == before
        await executor.close()

    asyncio.run(main())


def test_a_directory_that_does_not_exist_is_named() -> None:
    outcome = command({"argv": ["-c", ""], "cwd": "/no/such/place"})
    assert outcome.error == "cwd: cannot change to '/no/such/place': no such file or directory"


def test_a_program_gets_a_clean_environment_with_its_run_and_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSCHED_DSN", "postgresql://u:secret@db/x")
    given = claim("shell", "env", {"env": {"COLOUR": "blue; false", "TZ": "Europe/Oslo"}})
    outcome = execute(ShellExecutor(Processes()), given)
    seen = dict(line.split("=", 1) for line in (outcome.log_tail or "").splitlines())
    assert seen["PGSCHED_RUN_ID"] == "7" and seen["PGSCHED_ATTEMPT"] == "1"
    assert seen["PGSCHED_TOKEN"] == str(given.token) and seen["PGSCHED_SCHEDULED_AT"] == SLOT.isoformat()
    assert seen["COLOUR"] == "blue; false" and seen["TZ"] == "Europe/Oslo" and "PATH" in seen
    assert "secret" not in (outcome.log_tail or "")


def test_stdin_and_cwd_come_from_the_arguments(tmp_path: Path) -> None:
    outcome = shell("cat; pwd", {"stdin": "hello\n", "cwd": str(tmp_path)})
    assert outcome.log_tail == f"hello\n{tmp_path.resolve()}\n"


def test_a_large_stdin_that_the_program_does_not_read_blocks_nothing() -> None:
    assert shell("exit 0", {"stdin": "x" * 900_000}).result is Result.SUCCEEDED


@pytest.mark.parametrize(
    ("args", "error"),
    [
        (["-c", 5], "args.argv[1]: expected str, got int 5"),
        ({"argv": "-c"}, "args.argv: expected list[str], got str '-c'"),
        ({"arguments": []}, "args.arguments: no such key; known are argv, env, cwd, stdin"),
        ({"env": {"A": 1}}, "args.env['A']: expected str, got int 1"),
        ({"env": {"A=B": "1"}}, "args.env: 'A=B' is not the name of a variable"),
        ({"env": {"PGSCHED_TOKEN": "1"}}, "args.env: PGSCHED_TOKEN is set by pgsched itself"),
        ({"cwd": ""}, "args.cwd: must not be empty"),
        (5, "args: expected an object with argv, env, cwd, stdin, got int"),
    ],
)
def test_wrong_arguments_fail_for_good_and_name_the_value(args: Any, error: str) -> None:
    outcome = command(args)
    assert (outcome.result, outcome.retry, outcome.error) == (Result.FAILED, False, error)


def test_a_command_line_takes_no_argv() -> None:
    assert shell("true", ["x"]).retry is False
    assert shell("true", []).result is Result.SUCCEEDED


def test_a_nul_character_in_an_argument_fails_for_good() -> None:
    outcome = command(["-c", "a\0b"])
    assert (outcome.result, outcome.retry) == (Result.FAILED, False)


def test_a_flood_of_output_keeps_its_head_and_its_tail() -> None:
    outcome = shell("echo first; yes | head -c 50000000; echo last")
    assert outcome.result is Result.SUCCEEDED and outcome.log_tail is not None
    assert outcome.log_tail.startswith("first\n") and outcome.log_tail.endswith("last\n")
    assert "bytes cut" in outcome.log_tail and len(outcome.log_tail) < HEAD_BYTES + TAIL_BYTES + 100


def test_a_flood_that_never_ends_can_be_cancelled(tmp_path: Path) -> None:
    given = claim("shell", f"echo y; echo y; touch {tmp_path}/on; yes")
    stopped = cancel_shell(given, tmp_path / "on")
    assert isinstance(stopped, AttemptCancelled) and stopped.log_tail is not None and "y\ny\n" in stopped.log_tail
    assert children_of(given.token) == []


def test_bytes_of_output_that_are_not_text_are_replaced() -> None:
    assert shell(r"printf 'a\377\000b\n'").log_tail == "a\ufffd\ufffdb\n"


def test_background_processes_of_the_group_end_with_the_program() -> None:
    given = claim("shell", "sleep 600 & echo left")
    assert execute(ShellExecutor(Processes()), given).result is Result.SUCCEEDED
    wait_until(lambda: not children_of(given.token), what="the end of the program in the background")


def test_cancelling_gives_the_group_time_to_clean_up(tmp_path: Path) -> None:
    line = f"trap 'echo cleaned > {tmp_path}/clean; exit 0' TERM; touch {tmp_path}/on; sleep 600 & wait"
    given = claim("shell", line)
    stopped = cancel_shell(given, tmp_path / "on")
    assert isinstance(stopped, asyncio.CancelledError)
    assert (tmp_path / "clean").read_text() == "cleaned\n"
    assert children_of(given.token) == []


def test_a_program_that_ignores_sigterm_is_killed_after_kill_after(tmp_path: Path) -> None:
    given = claim("shell", f"trap '' TERM; touch {tmp_path}/on; while :; do sleep 1; done", kill_after_s=0.3)
    assert isinstance(cancel_shell(given, tmp_path / "on"), asyncio.CancelledError)
    wait_until(lambda: not children_of(given.token), what="the end of the group")


def test_a_second_cancellation_does_not_wait_for_kill_after(tmp_path: Path) -> None:
    given = claim("shell", f"trap '' TERM; touch {tmp_path}/on; while :; do sleep 1; done", kill_after_s=3600)
    assert isinstance(cancel_shell(given, tmp_path / "on", times=2), asyncio.CancelledError)
    wait_until(lambda: not children_of(given.token), what="the end of the group")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs the parent-death signal")
@pytest.mark.parametrize("told", [True, False], ids=["", "before it has told its guard"])
def test_no_child_and_no_grandchild_outlives_a_killed_worker(told: bool, tmp_path: Path) -> None:
    given = claim("shell", f"sleep 600 & sh -c 'sleep 600 & touch {tmp_path}/on; sleep 600'")
    worker = subprocess.Popen([sys.executable, "-c", WORKER if told else UNTOLD + WORKER, given.task, str(given.token)])
    try:
        wait_until((tmp_path / "on").exists, what="the grandchildren")
        assert len(children_of(given.token)) >= 4
    finally:
        worker.kill()
        worker.wait()
    wait_until(lambda: not children_of(given.token), what="the end of all processes of the run")


UNTOLD = """
from pgsched.execute.subprocess.process_groups import Groups
Groups.add = lambda *_: None
"""
WORKER = """
import asyncio, sys, uuid
from pgsched.execute.subprocess.process_groups import GUARD
from pgsched.execute.subprocess.program import Processes
from pgsched.execute.subprocess.shell import ShellExecutor
from pgsched.config import WorkerSettings
from pgsched.core.model import Claim
claim = Claim(1, uuid.UUID(sys.argv[2]), 1, 1, "default", 5, "shell", sys.argv[1], {})
asyncio.run(ShellExecutor(Processes()).execute(claim))
"""


def guards() -> set[int]:
    """Return the ids of the live guard processes of this process."""
    listed = subprocess.run(["ps", "axww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    rows = [row.split(maxsplit=2) for row in listed.stdout.splitlines()]
    return {int(pid) for pid, parent, command in rows if int(parent) == os.getpid() and str(GUARD) in command}


def test_a_guard_that_was_killed_is_replaced_and_knows_the_old_groups(tmp_path: Path) -> None:
    async def main() -> None:
        others = guards()
        processes = Processes()
        executor, first = ShellExecutor(processes), claim("shell", f"touch {tmp_path}/on; sleep 600")
        work = asyncio.ensure_future(executor.execute(first))
        await holds((tmp_path / "on").exists)
        (guard,) = guards() - others
        os.kill(guard, signal.SIGKILL)
        await holds(lambda: guard not in guards())
        assert (await executor.execute(claim("shell", "true"))).result is Result.SUCCEEDED
        await processes.close()  # the new guard kills the groups on its list
        assert (await work).error == "killed by SIGKILL"

    asyncio.run(main())


def test_only_allowed_kinds_have_an_executor() -> None:
    made = make_executors(None, WorkerSettings(allow=frozenset({Kind.TASK, Kind.SHELL, Kind.HTTP})), "")
    assert sorted(made) == ["http", "shell", "task"]
