"""Files that cannot be read are one clear line each: binary, huge, not UTF-8, links in a circle, pipes, directories."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pgsched.errors import InputError
from pgsched.importers.imported import Reason
from pgsched.importers.kubernetes.cronjobs import ManifestOptions
from pgsched.importers.systemd.timers import TimerOptions
from pgsched.services.importing import crontabs, machine, text_files, units
from pgsched.services.importing.crontabs import CrontabSource, read_crontabs
from pgsched.services.importing.manifests import read_manifests
from pgsched.services.importing.text_files import read_text_file, walk_files
from pgsched.services.importing.units import read_timers

NOW = datetime(2026, 5, 1, tzinfo=UTC)
LINE = "0 5 * * * /bin/x\n"


def source(name: Path | str, **options: object) -> CrontabSource:
    return CrontabSource(str(name), "UTC", NOW, **options)  # type: ignore[arg-type]


def make(folder: Path, kind: str) -> Path:
    path = folder / kind
    match kind:
        case "binary":
            path.write_bytes(b"0 5 * * * x\0\n")
        case "latin1":
            path.write_bytes(b"# ok\n0 5 * * * /bin/\xfcber\n")
        case "huge":
            with path.open("wb") as file:
                file.truncate(crontabs.MOST_BYTES + 1)
        case "loop":
            path.symlink_to(path)
        case "pipe":
            os.mkfifo(path)
        case "dangling":
            path.symlink_to(folder / "nowhere")
    return path


WORDS = {
    "binary": "is a binary file", "latin1": "line 2 is not UTF-8 (byte 0xfc)", "huge": "has more than 4 MiB",
    "loop": "is a link that leads back to itself", "pipe": "is no regular file", "dangling": "there is no such file",
    "missing": "there is no such file",
}  # fmt: skip


@pytest.mark.parametrize("kind", WORDS)
def test_a_file_that_is_named_is_refused_with_one_line(kind: str, tmp_path: Path) -> None:
    path = make(tmp_path, kind)
    with pytest.raises(InputError) as refused:
        read_crontabs(source(path))
    assert str(refused.value) == f"{path}: {WORDS[kind]}"


def test_files_of_a_directory_that_cannot_be_read_are_named_and_passed_by(tmp_path: Path) -> None:
    for kind in WORDS:
        make(tmp_path, kind)
    (tmp_path / "good").write_text("0 5 * * * root /bin/x\n")
    (tmp_path / "x.dpkg-old").write_text("0 5 * * * root /bin/y\n")
    (tmp_path / ".placeholder").write_text("# nothing\n")
    (tmp_path / "folder").mkdir()
    imported = read_crontabs(source(tmp_path))
    assert [(job.name, job.where, job.columns["queue"]) for job in imported.jobs] == [("good", "good line 1", "root")]
    found = {one.where: (one.remark.reason, one.remark.text) for one in imported.omitted}
    expected = {kind: (Reason.UNREADABLE, words) for kind, words in WORDS.items() if kind != "missing"}
    assert found == expected | {"x.dpkg-old": (Reason.SYNTAX, "cron does not read files with such a name")}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_rights_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text(LINE)
    path.chmod(0)
    with pytest.raises(InputError, match="may not be read by this user"):
        read_crontabs(source(path))


def test_where_a_user_stands_before_the_command(tmp_path: Path) -> None:
    line = "0 5 * * * root /bin/x\n"
    (tmp_path / "cron.d").mkdir()
    for path, user in ((tmp_path / "plain", None), (tmp_path / "cron.d" / "x", "root")):
        path.write_text(line)
        assert read_crontabs(source(path)).jobs[0].columns.get("queue") == user
    assert read_crontabs(source(tmp_path / "plain", user_column=True)).jobs[0].columns["queue"] == "root"
    assert read_crontabs(source("-", user_column=True), line.encode()).jobs[0].columns["queue"] == "root"
    assert read_crontabs(source("-", home="/srv"), LINE.encode()).jobs[0].columns["args"]["cwd"] == "/srv"


def test_the_crontab_of_a_user_is_read_from_the_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crontabs, "SPOOLS", (str(tmp_path / "no"), str(tmp_path)))
    (tmp_path / "root").write_text(LINE)
    job = read_crontabs(source("root")).jobs[0]
    assert (job.columns["queue"], job.columns["args"]["cwd"]) == ("root", machine.home_directory("root"))
    for name, words in (
        ("daemon", "no crontab of daemon"),
        ("no-such-user", "no user of this name"),
        ("a b", "neither"),
    ):
        with pytest.raises(InputError, match=words):
            read_crontabs(source(name))


def test_the_files_of_a_spool_have_the_names_of_their_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crontabs, "SPOOLS", (str(tmp_path),))
    for name in ("root", "anna", "tmp.x y"):
        (tmp_path / name).write_text("0 5 * * * python3 /x.py\n")
    found = read_crontabs(source(tmp_path))
    assert [(job.name, job.columns["task"], job.columns["queue"]) for job in found.jobs] == [
        ("x", "python3 /x.py", "anna"), ("x-2", "python3 /x.py", "root"),
    ]  # fmt: skip
    assert [one.where for one in found.omitted] == ["tmp.x y"]
    assert read_crontabs(source(tmp_path / "root")).jobs[0].columns["args"]["cwd"] == machine.home_directory("root")


def test_the_zone_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TIMEZONE_FILE", tmp_path / "timezone")
    monkeypatch.setattr(machine, "LOCALTIME", tmp_path / "localtime")
    assert machine.find_timezone(None) == ("UTC", "this machine does not say which zone it has")
    (tmp_path / "localtime").symlink_to("/usr/share/zoneinfo/Europe/Berlin")
    assert machine.find_timezone(None) == ("Europe/Berlin", str(tmp_path / "localtime"))
    (tmp_path / "timezone").write_text("Asia/Tokyo\n")
    assert machine.find_timezone(None) == ("Asia/Tokyo", str(tmp_path / "timezone"))
    (tmp_path / "timezone").write_text("Etc/UTC\n")
    assert machine.find_timezone(None)[0] == "UTC"
    (tmp_path / "timezone").write_bytes(b"\xff" * 1000)
    assert machine.find_timezone(None)[0] == "Europe/Berlin"
    assert machine.find_timezone("America/New_York") == ("America/New_York", "--timezone")
    with pytest.raises(InputError, match="Mars/Phobos"):
        machine.find_timezone("Mars/Phobos")


def test_timers_of_directories(tmp_path: Path) -> None:
    first, second = tmp_path / "etc", tmp_path / "lib"
    (first / "timers.target.wants").mkdir(parents=True)
    (second / "a.timer.d").mkdir(parents=True)
    service = "[Service]\nType=oneshot\nExecStart=/bin/x\n"
    for name in ("a", "b", "t@", "alias", "masked", "loop", "latin1"):
        (second / f"{name}.service").write_text(service)
    for name in ("a", "b", "t@"):
        (second / f"{name}.timer").write_text("[Timer]\nOnCalendar=daily\n")
    (first / "b.timer").write_text("[Timer]\nOnCalendar=weekly\n")
    (second / "a.timer.d" / "x.conf").write_text("[Timer]\nPersistent=yes\n")
    (first / "timers.target.wants" / "t@one.timer").symlink_to(second / "t@.timer")
    (second / "alias.timer").symlink_to("a.timer")
    (second / "masked.timer").symlink_to("/dev/null")
    (second / "loop.timer").symlink_to("loop.timer")
    (second / "latin1.timer").write_bytes(b"[Timer]\n# \xfc\n")
    options = TimerOptions("UTC", NOW)
    imported = read_timers([str(first), str(second)], options)
    assert [(job.name, job.columns["schedule"]) for job in imported.jobs] == [
        ("a", "0 0 * * *"), ("b", "0 0 * * mon"), ("t@one", "0 0 * * *"),
    ]  # fmt: skip
    assert imported.jobs[0].columns["catch_up"] == "latest"
    assert {one.where: one.remark.text for one in imported.omitted} == {
        "masked.timer": "is masked: a link to /dev/null", "loop.timer": "is a link that leads back to itself",
        "latin1.timer": "line 2 is not UTF-8 (byte 0xfc)",
    }  # fmt: skip
    named = read_timers([str(second / "b.timer"), str(second / "t@two.timer")], options)
    assert [job.name for job in named.jobs] == ["b", "t@two"] and named.omitted == []
    for wrong, words in (("no.timer", "no such timer"), ("a.service", "neither"), ("nowhere", "neither")):
        with pytest.raises(InputError, match=words):
            read_timers([str(second / wrong)], options)


def test_drop_ins_and_links_of_directories(tmp_path: Path) -> None:
    etc, lib = tmp_path / "etc", tmp_path / "lib" / "systemd" / "system"
    for folder in (etc / "x.timer.d", etc / "timers.target.wants", lib / "x.timer.d", lib / "timers.target.wants"):
        folder.mkdir(parents=True)
    for name in ("x", "off", "static"):
        (lib / f"{name}.service").write_text("[Service]\nType=oneshot\nExecStart=/bin/x\n")
        (lib / f"{name}.timer").write_text("[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n")
    (etc / "x.timer.d" / "50-local.conf").write_text("[Timer]\nOnCalendar=\nOnCalendar=hourly\n")
    (lib / "x.timer.d" / "10-vendor.conf").write_text("[Timer]\nOnCalendar=\nOnCalendar=weekly\n")
    (lib / "x.timer.d" / "60-off.conf").write_text("[Timer]\nOnCalendar=monthly\n")
    (etc / "x.timer.d" / "60-off.conf").symlink_to("/dev/null")
    (etc / "timers.target.wants" / "x.timer").symlink_to(lib / "x.timer")
    (lib / "timers.target.wants" / "static.timer").symlink_to("../static.timer")
    options = TimerOptions("UTC", NOW)
    found = read_timers([str(etc), str(lib)], options)
    assert [(job.name, job.columns["schedule"], job.columns.get("paused")) for job in found.jobs] == [
        ("off", "0 0 * * *", True), ("static", "0 0 * * *", None), ("x", "0 * * * *", None),
    ]  # fmt: skip
    assert found.omitted == []
    alone = read_timers([str(lib)], options)
    assert not any(job.columns.get("paused") for job in alone.jobs)
    assert Reason.ENABLED in {remark.reason for remark in alone.remarks}
    named = read_timers([str(lib / "off.timer")], options)
    assert Reason.ENABLED not in {remark.reason for remark in named.remarks}


def test_manifests_of_directories(tmp_path: Path) -> None:
    (tmp_path / "deep" / ".git").mkdir(parents=True)
    pod = "{containers: [{name: a, image: b, command: [c]}]}"
    text = f"spec: {{schedule: '@daily', jobTemplate: {{spec: {{template: {{spec: {pod}}}}}}}}}\n"
    text = f"kind: CronJob\nmetadata: {{name: %s}}\n{text}"
    (tmp_path / "a.yaml").write_text(text % "a")
    (tmp_path / "deep" / "b.yml").write_text(text % "b")
    (tmp_path / "deep" / ".git" / "c.yaml").write_text(text % "c")
    (tmp_path / "deep" / "circle").symlink_to(tmp_path)
    (tmp_path / "bad.yaml").write_bytes(b"\xff")
    (tmp_path / "template.yaml").write_text("a: {{ x }}\n")
    (tmp_path / "notes.txt").write_text("nothing")
    imported = read_manifests([str(tmp_path)], ManifestOptions(NOW))
    assert [(job.name, job.where) for job in imported.jobs] == [("a", "a.yaml line 1"), ("b", "deep/b.yml line 1")]
    assert [one.where for one in imported.omitted] == ["bad.yaml", "template.yaml line 1"]
    assert [job.name for job in read_manifests(["-"], ManifestOptions(NOW), (text % "s").encode()).jobs] == ["s"]
    with pytest.raises(InputError, match="not UTF-8"):
        read_manifests([str(tmp_path / "bad.yaml")], ManifestOptions(NOW))


def test_the_size_of_a_file_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x" * 11)
    assert read_text_file(path, 11) == "x" * 11
    with pytest.raises(InputError, match="has more than"):
        read_text_file(path, 10)
    path.write_bytes(b"\n" * (text_files.MOST_LINES + 1))
    with pytest.raises(InputError, match="has more than 200000 lines"):
        read_text_file(path, text_files.MIB)


def test_the_depth_and_the_entries_of_directories_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_files, "DEEPEST", 2)
    monkeypatch.setattr(text_files, "MOST_ENTRIES", 3)
    (tmp_path / "1" / "2" / "3").mkdir(parents=True)
    with pytest.raises(InputError, match="nested more than 2 deep"):
        list(walk_files(tmp_path, (".yaml",)))
    for name in "abcd":
        (tmp_path / name).touch()
    with pytest.raises(InputError, match="more than 3 entries"):
        units.list_directory(tmp_path)
