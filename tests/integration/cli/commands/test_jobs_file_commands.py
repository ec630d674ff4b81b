"""`pgsched plan`, `apply` and `export`: what they print, their JSON, and their exit codes."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.support.cli.said import Said

Command = Callable[..., Said]
TEXT = """
owner: ops
jobs:
  nightly: {task: report, schedule: "30 2 * * *", timezone: Europe/Berlin}
  weekly: {task: report, schedule: "0 6 * * 1", paused: true}
queues: {mail: {max_depth: 9}}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.yaml"
    path.write_text(TEXT)
    return path


def test_plan_apply_and_check(pgsched: Command, file: Path, db: psycopg.Connection[Any]) -> None:
    said = pgsched("plan", str(file))
    lines = said.out.splitlines()
    assert (said.code, lines[0]) == (0, "+ job nightly: task report, 30 2 * * * (Europe/Berlin)")
    assert lines[1].startswith("    next slots: ") and lines[1].count("02:30") == 5
    assert any(line.startswith("    clock change on ") and "moved: the wall time 02:30" in line for line in lines)
    assert "+ job weekly: task report, 0 6 * * 1 (UTC), paused" in lines
    assert lines[-1] == f"{file} (owner ops): 3 to add"
    drift = pgsched("apply", str(file), "--check")
    assert (drift.code, drift.err) == (
        2, f"error: {file}: the database is not as the file says: 3 to add; `pgsched apply` changes it\n")  # fmt: skip
    asked = pgsched("apply", str(file))
    assert (asked.code, asked.err) == (
        2,
        "error: apply: 3 to add: add --yes to apply them; `pgsched plan` shows them\n",
    )
    assert db.execute("SELECT count(*) FROM pgsched.jobs").fetchone() == (0,)
    assert pgsched("apply", str(file), "--yes").out == f"{file} (owner ops): added 3\n"
    assert pgsched("apply", str(file)).out == f"{file} (owner ops): nothing to change\n"
    assert pgsched("apply", str(file), "--check").out == f"the database is as {file} says\n"
    assert pgsched("plan", str(file)).out == f"{file} (owner ops): nothing to change\n"


def test_a_change_shows_both_values_and_both_slots(pgsched: Command, file: Path) -> None:
    pgsched("apply", str(file), "--yes")
    file.write_text(
        TEXT.replace("30 2 * * *", "30 3 * * *").replace("task: report, s", "task: report, timeout: 90s, s", 1)
    )
    said = pgsched("plan", str(file)).out.splitlines()
    assert said[:3] == ["~ job nightly", "    schedule: 30 2 * * * -> 30 3 * * *", "    timeout: - -> 90 seconds"]
    assert said[3].startswith("    slots before: ") and said[3].count("02:30") == 5
    assert said[4].startswith("    slots after: ") and said[4].count("03:30") == 5


def test_a_changed_calendar_shows_whose_slots_it_moves(pgsched: Command, file: Path) -> None:
    text = ('jobs: {n: {task: t, schedule: "0 9 * * *", calendar: office}}\n'
            'calendars: {office: {times: [{from_time: "%s", until_time: "24:00"}]}}\n')  # fmt: skip
    file.write_text(text % "18:00")
    assert pgsched("apply", str(file), "--yes").out == f"{file} (owner default): added 2\n"
    file.write_text(text % "08:30")
    lines = pgsched("plan", str(file)).out.splitlines()
    assert lines[0] == "~ calendar office" and lines[1].startswith("    times: ")
    assert lines[2] == "    moves slots of job n"
    assert (lines[3].count("09:00"), lines[3].count("(skipped)")) == (5, 0)
    assert (lines[4].count("09:00"), lines[4].count("(skipped)")) == (5, 5)
    (change,) = pgsched("plan", str(file), "--json").json["changes"]
    (moved,) = change["moved_jobs"]
    assert moved["name"] == "n" and moved["slots"]["skipped"] == {"old": [], "new": moved["slots"]["new"]}
    file.write_text(text % "08:30" + "alerts: {alert_to: [mail], dead_runs: 20}\n")
    assert pgsched("apply", str(file), "--yes").out.splitlines()[-1] == f"{file} (owner default): changed 2"
    assert pgsched("alerts", "defaults", "--json").json["dead_runs"] == 20
    pgsched("alerts", "defaults", "--dead-runs", "30")
    drift = pgsched("apply", str(file), "--check")
    assert (drift.code, drift.out) == (2, "~ alerts\n    dead_runs: 30 -> 20\n")


def test_prune_and_what_is_left(pgsched: Command, file: Path) -> None:
    pgsched("apply", str(file), "--yes")
    file.write_text("owner: ops\njobs: {}\n")
    said = pgsched("plan", str(file))
    assert said.err == ("note: not in the file any more, and left (--prune removes them): job nightly, job weekly,"
                        " queue mail\n")  # fmt: skip
    assert pgsched("plan", str(file), "--prune").out.splitlines()[:3] == [
        "- job nightly",
        "- job weekly",
        "- queue mail",
    ]
    left = pgsched("apply", str(file), "--check")
    assert (left.code, left.out) == (
        0, f"the database is as {file} says, but for what it does not declare any more (--check --prune counts that)\n"
    )  # fmt: skip
    assert pgsched("apply", str(file), "--check", "--prune").code == 2
    assert pgsched("apply", str(file), "--prune", "--yes").out.splitlines() == [
        "- job nightly", "- job weekly", "- queue mail", f"{file} (owner ops): removed 3"]  # fmt: skip


def test_what_is_not_its_own_is_refused(pgsched: Command, file: Path) -> None:
    pgsched("job", "add", "nightly", "--task", "by-hand", "--schedule", "@daily")
    said = pgsched("plan", str(file))
    assert (said.code, said.out.splitlines()[0]) == (
        1, "! job nightly: it exists, and no file declares it: --adopt takes it")  # fmt: skip
    refused = pgsched("apply", str(file), "--yes")
    assert (refused.code, refused.err) == (
        1, "error: job nightly: it exists, and no file declares it: --adopt takes it; nothing was changed\n",
    )  # fmt: skip
    drift = pgsched("apply", str(file), "--check", "--json")
    assert (drift.code, drift.json["summary"]["refuse"], json.loads(drift.err)["error"]["code"]) == (2, 1, "drift")
    adopted = pgsched("apply", str(file), "--yes", "--adopt").out.splitlines()
    assert adopted[:2] == ["~ job nightly becomes the file's own", "    task: by-hand -> report"]
    assert adopted[-1] == f"{file} (owner ops): added 2, changed 1"


def test_json(pgsched: Command, file: Path) -> None:
    found = pgsched("plan", str(file), "--json").json
    assert found["summary"] == {"add": 3, "change": 0, "remove": 0, "adopt": 0, "refuse": 0}
    change = found["changes"][0]
    assert {key: change[key] for key in ("action", "what", "name", "line", "adopts")} == {
        "action": "add", "what": "job", "name": "nightly", "line": 4, "adopts": True}  # fmt: skip
    assert change["columns"]["schedule"] == {"old": None, "new": "30 2 * * *"}
    assert (change["slots"]["old"], len(change["slots"]["new"]), len(change["clock_changes"])) == (None, 5, 2)
    assert len(found["collisions"]["busiest_minute_by_hour"]) == 168
    applied = pgsched("apply", str(file), "--yes", "--json").json
    assert (applied["owner"], applied["summary"]["add"]) == ("ops", 3)
    file.write_text(TEXT.replace("30 2", "30 3"))
    drift = pgsched("apply", str(file), "--check", "--json")
    assert (drift.code, drift.json["summary"]["change"], json.loads(drift.err)["error"]["code"]) == (2, 1, "drift")
    refused = pgsched("apply", str(file), "--json")
    assert (refused.code, json.loads(refused.err)["error"]["field"]) == (2, "yes")


def test_collisions_are_a_map_of_80_columns(pgsched: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs:\n" + "".join(f"  n{n}: {{task: t, schedule: '0 2 * * *'}}\n" for n in range(120)))
    monkeypatch.chdir(tmp_path)  # the name of the file stands in the output
    lines = pgsched("plan", file.name).out.splitlines()
    begin = next(at for at, line in enumerate(lines) if line.startswith("starts in the busiest minute"))
    assert lines[begin + 1] == "    " + "".join(f" {hour:02}" for hour in range(24))
    cells = lines[begin + 3]
    assert cells[4:].split() == [".", ".", "++", *["."] * 21]
    busy = "120 starts: n0, n1, n2, n3, n4 and 115 more; jitter of 30m would leave about 4 a minute"
    assert busy in lines[lines.index("busiest minutes:") + 1]
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    shown = pgsched("plan", file.name).out
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert max(map(len, plain.splitlines())) <= 80
    assert "\x1b[31m++" in shown


@pytest.mark.parametrize(
    ("text", "problem"),
    [("jobs: {n: {task: t, shedule: x}}", "{file}:1: jobs.n.shedule: there is no such column; did you mean schedule?"),
     ("jobs: [", "{file}:2: is not YAML: "), (None, "{file}: cannot be read: No such file or directory"),
     ("x-a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
         f"x-{name}: &{name} [{', '.join([f'*{one}'] * 10)}]\n" for one, name in zip("abcdef", "bcdefg", strict=True)),
      "{file}:7: the file has more than 2,000,000 values"),
     ("jobs: {n: " + "[" * 5000, "{file}:1: jobs.n[0]: is nested more than 250 deep"),
     ("#" * (16 * 2**20 + 1), "{file}: has more than 16 MiB")],
)  # fmt: skip
def test_bad_input_gives_one_line(pgsched: Command, tmp_path: Path, text: str | None, problem: str) -> None:
    file = tmp_path / "jobs.yaml"
    if text is not None:
        file.write_text(text)
    for command in ("plan", "apply"):
        said = pgsched(command, str(file))
        assert (said.code, said.out, said.err.count("\n")) == (2, "", 1)
        assert said.err.startswith("error: " + problem.format(file=file))


def test_standard_input_is_read_and_export_is_written(
    pgsched: Command, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(file.read_bytes())))
    assert pgsched("apply", "-", "--yes").out == "- (owner ops): added 3\n"
    text = pgsched("export", "--owner", "ops").out
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert pgsched("plan", "-", "--prune").out == "- (owner ops): nothing to change\n"
    toml = pgsched("export", "--format", "toml", "--json").json["text"]
    assert '[jobs.nightly]\ntask = "report"\n' in toml
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(toml.encode())))
    assert pgsched("plan", "-", "--format", "toml", "--owner", "ops").out == "- (owner ops): nothing to change\n"
    assert pgsched("export", "--owner", "nobody").code == 8
    assert pgsched("export", "--format", "ini").err == 'error: format: "ini" is not one of yaml, toml\n'


def test_a_toml_file_is_planned_applied_and_checked(pgsched: Command, tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text("""owner = "ops"
[jobs.nightly]
task = "report"
schedule = "0 2 * * *"
excluded_dates = [2027-12-24]
[[calendars.office.times]]
from_time = 18:00:00
until_time = "24:00"
[alerts]
finish_by = "12 hours"
""")
    assert pgsched("plan", str(file)).out.splitlines()[-1] == f"{file} (owner ops): 2 to add, 1 to change"
    assert pgsched("apply", str(file), "--yes").out.splitlines() == [
        "~ alerts becomes the file's own", "    finish_by: - -> 12 hours", f"{file} (owner ops): added 2, changed 1"
    ]  # fmt: skip
    assert pgsched("apply", str(file), "--check").code == 0
    file.write_text(file.read_text().replace("0 2", "0 3") + "[jobs.other]\n")
    said = pgsched("apply", str(file), "--check")
    assert (said.code, said.err) == (2, f"error: {file}:11: jobs.other: task: must be given\n")


@pytest.mark.long
def test_a_file_of_ten_megabytes_is_applied(pgsched: Command, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text("jobs:\n" + "".join(f"  n{n}: {{task: t, description: {'x' * 65_000}}}\n" for n in range(160)))
    assert file.stat().st_size > 10_000_000
    assert pgsched("apply", str(file), "--yes").out == f"{file} (owner default): added 160\n"
    assert pgsched("apply", str(file), "--check").code == 0


def test_names_cannot_control_a_terminal(pgsched: Command, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    file.write_text('jobs: {"a\\u202eb": {task: t, description: "x\\e[2J"}}')
    for args in (("plan", str(file)), ("apply", str(file), "--yes"), ("export",)):
        assert "\u202e" not in pgsched(*args).out.replace("export", "") or args == ("export",)
        assert "\x1b" not in pgsched(*args).out


def test_what_a_file_says_about_mode_and_pause_is_told_to_those_who_change_it(pgsched: Command, file: Path) -> None:
    file.write_text(TEXT.replace("task: report, s", "task: report, mode: shadow, s", 1))
    pgsched("apply", str(file), "--yes")
    for verb, column in ((("mode", "nightly", "run"), "mode"), (("resume", "weekly"), "paused")):
        said = pgsched("job", *verb)
        told = f'note: the file of owner "ops" declares {column} of job {verb[1]}: the next apply sets it back'
        assert said.err == f"{told}, so change it in the file too\n"
    assert pgsched("job", "pause", "nightly").err == ""
    lines = pgsched("plan", str(file)).out.splitlines()
    assert lines[:2] == ["~ job nightly", "    mode: run -> shadow"] and lines[2].startswith("    next slots: ")
    assert lines[3:5] == ["~ job weekly", "    paused: false -> true"] and lines[5].startswith("    next slots: ")
    file.write_text(TEXT)  # it names no mode
    assert "mode" not in pgsched("apply", str(file), "--yes").out
    assert pgsched("job", "mode", "nightly", "shadow").err == ""
    assert pgsched("apply", str(file), "--check").code == 0


def test_the_name_of_an_owner_is_checked(pgsched: Command, file: Path) -> None:
    for name, problem in (("", "owner: must not be empty"), ("x" * 201, "owner: 201 characters, at most 200")):
        for command in ("plan", "apply"):
            said = pgsched(command, str(file), "--owner", name)
            assert (said.code, said.err.startswith(f"error: {problem}")) == (2, True)


def test_the_heat_map_has_the_hours_of_the_shown_zone(
    pgsched: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "jobs.yaml"
    jobs = "".join(f"  n{n}: {{task: t, schedule: '0 2 * * *', timezone: Asia/Kolkata}}\n" for n in range(3))
    file.write_text("jobs:\n" + jobs)
    lines = pgsched("plan", str(file), "--tz", "Asia/Kolkata").out.splitlines()
    cells = [line for line in lines if line[:3] in {"Mon", "Tue"} and line[3] == " "]
    assert [line[4:].split()[:4] for line in cells] == [[".", ".", "3", "."]] * 2
