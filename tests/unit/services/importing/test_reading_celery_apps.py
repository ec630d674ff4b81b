"""The schedule of a Celery app: its objects become plain data, known by the names of their classes."""

from __future__ import annotations

import re
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pgsched.errors import InputError
from pgsched.importers.celery.crontabs import Crontab
from pgsched.importers.celery.entries import Interval, Solar, Unread
from pgsched.importers.imported import Reason
from pgsched.services.importing.celery import entries_of, read_celery_app, read_schedule, remarks_of_class
from tests.support.importing.slots import NOW

APP = """
from celery import Celery
from celery.schedules import crontab
print("a line that would spoil the file")
app = Celery("shop", broker="redis://")
app.conf.timezone = "Europe/Berlin"
app.conf.beat_schedule = {"nightly": {"task": "shop.report", "schedule": crontab(hour=3, minute=0),
                                      "args": (7,), "kwargs": {"full": True}, "options": {"priority": 3}}}

@app.task(name="shop.report", time_limit=900)
def report(days, full=False):
    raise RuntimeError("a task was run")

@app.on_after_finalize.connect
def more(sender, **_):
    sender.add_periodic_task(30.0, report.s(1), name="added")
"""


def like(name: str, **attributes: Any) -> Any:
    """Return an object of a class with this name, as Celery has it."""
    module, _, kind = name.rpartition(".")
    made = type(kind, (), {"__module__": module})()
    vars(made).update(attributes)
    return made


def crontab(**changed: Any) -> Any:
    full = {
        "minute": {0}, "hour": {3}, "day_of_week": set(range(7)), "day_of_month": set(range(1, 32)),
        "month_of_year": set(range(1, 13)), "nowfun": None,
    }  # fmt: skip
    return like("celery.schedules.crontab", **{**full, **changed})


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (30, Interval(timedelta(seconds=30))),
        (0.5, Interval(timedelta(milliseconds=500))),
        (timedelta(hours=1), Interval(timedelta(hours=1))),
        (like("celery.schedules.schedule", run_every=timedelta(minutes=1), relative=True),
         Interval(timedelta(minutes=1), relative=True)),
        (like("celery.schedules.solar", event="sunset", lat=1, lon=2), Solar("sunset at 1, 2")),
        (None, Unread(Reason.SYNTAX, "it has no schedule")),
        (float("inf"), Unread(Reason.SCHEDULE, "an interval of inf s")),
        (like("redbeat.rrule", x=1), Unread(Reason.SCHEDULE, "a schedule of the class redbeat.rrule")),
    ],
)  # fmt: skip
def test_schedules_are_known_by_the_names_of_their_classes(given: Any, expected: Any) -> None:
    assert read_schedule(given) == expected


def test_a_crontab_is_read_as_it_was_expanded() -> None:
    found = read_schedule(crontab(minute={0, 30}))
    assert isinstance(found, Crontab)
    assert (found.minute, found.timezone) == ({0, 30}, None)


def test_an_entry_has_the_queue_and_the_limits_of_its_task() -> None:
    def run(days: int, *, full: bool = False) -> None: ...

    task = SimpleNamespace(run=run, time_limit=900, soft_time_limit=None, queue="reports")
    conf = SimpleNamespace(task_time_limit=60, task_soft_time_limit=50)
    router = SimpleNamespace(route=lambda options, task, args, kwargs: {"queue": SimpleNamespace(name="others")})
    app = SimpleNamespace(tasks={"shop.report": task}, conf=conf, amqp=SimpleNamespace(router=router))
    schedule = {"a": {"task": "shop.report", "schedule": crontab(nowfun=print), "args": (1,)},
                "b": {"task": "shop.other", "schedule": 30}}  # fmt: skip
    first, second = entries_of(app, schedule)
    assert first.options == {"queue": "reports", "time_limit": 900, "soft_time_limit": 50}
    assert (first.parameters, first.own_clock) == (["days"], True)
    assert second.options == {"queue": "others", "time_limit": 60, "soft_time_limit": 50}
    assert (second.parameters, second.own_clock) == (None, False)


def test_an_app_is_imported_and_none_of_its_tasks_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("celery", reason="celery is missing: pip install -e '.[sources]' (.ci/long does)")
    (tmp_path / "shop_with_beat.py").write_text(APP)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = read_celery_app("shop_with_beat:app", NOW)
    nightly, added = found.jobs
    assert (
        nightly.columns | {"task": "shop.report", "schedule": "0 3 * * *", "args": {"days": 7, "full": True}}
        == nightly.columns
    )
    assert (nightly.columns["timeout"], nightly.columns["priority"]) == (timedelta(minutes=15), 3)
    assert (added.name, added.columns["schedule"], added.columns["args"]) == ("added", "@every 30s", [1])
    said = capsys.readouterr()
    assert said.out == ""
    assert "spoil the file" in said.err
    sys.modules.pop("shop_with_beat")


ROUTES = {
    "by name": {"feed.tasks.load": {"queue": "feeds"}},
    "by pattern": {"feed.*": {"queue": "feeds"}},
    "by expression": ([(re.compile(r"feed\..*"), {"queue": "feeds"})],),
    "as a list": ([("other.*", "others"), ("feed.tasks.*", "feeds")],),
    "by a function": (lambda name, *_, **__: {"queue": "feeds"} if name.startswith("feed.") else None,),
}


@pytest.mark.parametrize("form", ROUTES)
def test_the_queue_of_a_task_is_the_one_that_celery_chooses(form: str) -> None:
    celery = pytest.importorskip("celery", reason="celery is missing: pip install -e '.[sources]' (.ci/long does)")
    app = celery.Celery("shop", broker="memory://", set_as_current=False)
    app.conf.task_routes = ROUTES[form]

    @app.task(name="own.queue", queue="mine")
    def own() -> None: ...

    schedule = {name: {"task": name, "schedule": 30} for name in ("feed.tasks.load", "shop.report", "own.queue")}
    schedule["given"] = {"task": "feed.tasks.load", "schedule": 30, "options": {"queue": "here"}}
    assert [one.options.get("queue") for one in entries_of(app, schedule)] == ["feeds", None, "mine", "here"]
    app.conf.task_default_queue = "jobs"
    app.amqp = type(app.amqp)(app)
    assert [one.options.get("queue") for one in entries_of(app, schedule)] == ["feeds", "jobs", "mine", "here"]


def test_a_priority_of_a_route_is_kept_and_a_router_that_fails_is_named() -> None:
    def fail(*_: Any) -> None:
        raise LookupError

    def app(route: Any) -> Any:
        conf = SimpleNamespace(task_time_limit=None, task_soft_time_limit=None)
        return SimpleNamespace(tasks={}, conf=conf, amqp=SimpleNamespace(router=SimpleNamespace(route=route)))

    schedule = {"a": {"task": "a", "schedule": 30}}
    (kept,) = entries_of(app(lambda *_: {"queue": "q", "priority": 0, "routing_key": "x"}), schedule)
    assert kept.options == {"queue": "q", "priority": 0}
    (failed,) = entries_of(app(fail), schedule)
    assert [one.reason for one in failed.remarks] == [Reason.QUEUE]


def test_a_class_that_is_derived_from_celery_s_is_named() -> None:
    crontab_class = type("crontab", (), {"__module__": "celery.schedules"})
    derived = type("Holidays", (crontab_class,), {"__module__": "shop.times"})
    assert [one.text for one in remarks_of_class(derived())] == [
        "read as the class of Celery that shop.times.Holidays is derived from"
    ]
    assert remarks_of_class(crontab_class()) == remarks_of_class(30) == []


def test_what_is_no_app_of_celery_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "no_celery.py").write_text("app = {'conf': 1}")
    monkeypatch.syspath_prepend(str(tmp_path))
    for path, words in (
        ("no_celery:app", "not an app of Celery"),
        ("no_celery:x", "no attribute"),
        ("no_such", "no module"),
    ):
        with pytest.raises(InputError, match=words):
            read_celery_app(path, NOW)
    sys.modules.pop("no_celery")
