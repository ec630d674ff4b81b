"""The process that imports an app of Celery: whatever the app does, this process goes on and says what was wrong."""

from __future__ import annotations

import io
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pgsched.errors import InputError
from pgsched.importers.imported import Imported, ImportedJob, Omitted, Reason, Remark
from pgsched.services.importing import celery_process
from pgsched.services.importing.celery_process import document_of, imported_of, read_celery_apart
from tests.support.importing.slots import NOW
from tests.support.waiting import wait_until

# Stands for Celery, which is known by the name of its class.
CELERY = """
from types import SimpleNamespace

class Celery:
    def __init__(self, schedule):
        self.conf = SimpleNamespace(
            beat_schedule=schedule, enable_utc=True, timezone="Europe/Berlin", broker_url="redis://", task_routes=None,
            beat_cron_starting_deadline=None, task_time_limit=900, task_soft_time_limit=None,
        )
        self.tasks, self.loader = {}, SimpleNamespace(init_worker=lambda: None)
        self.amqp = SimpleNamespace(router=SimpleNamespace(route=lambda *_: {"queue": "celery"}))

    def finalize(self):
        pass
"""
SHOP = """
from celery.app.base import Celery
{before}
app = Celery({{"poll": {{"task": "beat_shop.poll", "schedule": 30, "args": (7,)}}, "odd": {{"task": "a"}}}})
{after}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current directory, with a module that stands for Celery."""
    package = tmp_path / "celery" / "app"
    package.mkdir(parents=True)
    for path in (tmp_path / "celery" / "__init__.py", package / "__init__.py"):
        path.touch()
    (package / "base.py").write_text(CELERY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(folder: Path, before: str = "", after: str = "") -> Imported:
    (folder / "beat_shop.py").write_text(SHOP.format(before=before, after=after))
    return read_celery_apart("beat_shop:app", NOW)


def test_an_app_is_read_and_this_process_has_not_imported_it(folder: Path) -> None:
    found = read(folder)
    (job,) = found.jobs
    assert (job.name, job.columns["schedule"], job.columns["args"]) == ("poll", "@every 30s", [7])
    assert job.columns["timeout"] == "15 minutes"
    assert [remark.reason for remark in job.remarks] == [Reason.CLOCK_CHANGE]
    assert [(one.where, one.remark.reason) for one in found.omitted] == [("entry odd", Reason.SYNTAX)]
    assert "beat_shop" not in sys.modules


def test_what_the_app_prints_is_no_part_of_the_file(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert read(folder, before="import os; print('loud'); os.system('echo louder')").jobs
    said = capfd.readouterr()
    assert said.out == ""
    assert {"loud", "louder"} <= {*said.err.split()}


def test_threads_that_never_end_do_not_keep_the_command(folder: Path) -> None:
    assert read(folder, after="import threading; threading.Thread(target=threading.Event().wait).start()").jobs


def test_files_beside_the_app_take_the_place_of_no_module_of_python(folder: Path) -> None:
    for name in ("json", "signal", "pgsched", "psycopg"):
        (folder / f"{name}.py").write_text("raise RuntimeError('imported')")
    assert read(folder).jobs


@pytest.mark.parametrize(
    ("before", "words"),
    [
        ("import os; os._exit(3)", "ended with exit code 3, and has read nothing"),
        ("import os; os.kill(os.getpid(), 9)", "was ended by signal 9, and has read nothing"),
        ("raise SystemExit(4)", "it ended the program"),
        ("1 / 0", "ZeroDivisionError"),
        ("raise KeyboardInterrupt", "was ended by signal 2, and has read nothing"),
    ],
)
def test_an_app_that_ends_the_process_is_one_line(folder: Path, before: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as refused:
        read(folder, before=before)
    assert refused.value.field == "app"


def test_objects_that_fail_when_they_are_read_are_one_line(folder: Path) -> None:
    with pytest.raises(InputError, match=r"reading the schedule of beat_shop:app failed: RuntimeError: no"):
        read(folder, after="""
class Task:
    def __str__(self): raise RuntimeError("no")
app.conf.beat_schedule["poll"]["task"] = Task()
""")  # fmt: skip


@pytest.mark.long
def test_a_module_that_waits_for_ever_is_ended_with_what_it_has_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(celery_process, "LIMIT_S", 3.0)
    pids = folder / "pids"
    waiting = (
        "import os, subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "child.wait()"
    )
    with pytest.raises(InputError, match="took more than 3 s"):
        read(folder, before=waiting)
    if pids.exists():  # else the machine was too busy to come that far
        for pid in pids.read_text().split():
            wait_until(lambda pid=pid: has_ended(pid), 30, f"the end of process {pid}")


def has_ended(pid: str) -> bool:
    """Check whether a process is gone, or only waits to be reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize(
    "answer", ["x", "[]", "{}", "null", '{"jobs": 1}', '{"jobs": [{}], "remarks": [], "omitted": []}', "[" * 100_000]
)
def test_an_answer_that_the_app_has_disturbed_is_one_line(answer: str) -> None:
    with pytest.raises(InputError, match="has disturbed"):
        celery_process.read_answer(io.BytesIO(answer.encode()), "beat_shop:app", 0)


def test_what_was_imported_is_sent_whole() -> None:
    remark = Remark(Reason.EXPIRES, "expires", "start_deadline")
    columns: dict[str, Any] = {
        "task": "a",
        "start_deadline": timedelta(minutes=10),
        "starts_at": NOW,
        "args": [None, 1],
    }
    found = Imported([ImportedJob("a", columns, [remark], "entry a", "x")], [remark], [Omitted("b", "y", remark)])
    again = imported_of(document_of(found))
    assert (again.remarks, again.omitted, again.jobs[0].remarks) == (found.remarks, found.omitted, [remark])
    assert again.jobs[0].columns == {**columns, "start_deadline": "10 minutes", "starts_at": NOW.isoformat()}
