"""What each page of the docs needs in order to be played."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import psycopg
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from pgsched import App, Item, Run
from pgsched.testing import drain
from tests.support.docs.coordinating import elect_another, electing, locking, written_totals
from tests.support.docs.django_project import DJANGO_PROJECT
from tests.support.docs.frameworks import serve_by_flask
from tests.support.docs.other_schedulers import BEAT_TABLES, OLD_LOGS, ONE_PG_CRON_JOB, PG_CRON_LOG, job_stores
from tests.support.docs.samples import COMPANY, PG_CRON, SHADOW
from tests.support.made_up import sound
from tests.support.paths import ROOT
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from tests.support.docs.playing import Play


@dataclass(frozen=True)
class Stage:
    """What one page needs.

    `sql`: runs first.
    `files`: are written to the page's folder.
    `names`: the names that the page's Python can use.
    `put`: replacements for what stands for the reader's own.
    `beside`: commands that are started first, and run beside the page.
    `run`: enqueues what the page's handlers need, and runs it. Default: run what the page enqueued; all must succeed.
    `after`: checks what must hold at the end.
    `empty`: the page's database has no schema yet.
    `apart`: the page's Python runs in separate processes.
    `alone`: the page changes the server's roles, so it needs a server of its own.
    """

    sql: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    names: Callable[[Play], dict[str, Any]] | None = None
    put: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    run: Callable[[Play], None] | None = None
    after: Callable[[Play], None] | None = None
    empty: bool = False
    apart: bool = False
    alone: bool = False


PROGRAM = """
from pgsched import App
app = App("test")
@app.task(name="reports.build")
def build(days: int = 1) -> None: ...
"""
MYPROJECT = {"myproject/tasks.py": PROGRAM}
ORDERS = "CREATE TABLE orders (id int, shipped bool); INSERT INTO orders VALUES (7, false)"
LOADS = """
INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('load', '@daily', 'load'), ('report', '@daily', 'report')
"""
NIGHTLY = "INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('nightly', '@daily', 'reports.build')"


def is_so(play: Play, query: str, expected: Any) -> None:
    found = play.db.execute(query.encode()).fetchall()
    assert found == expected, found


def connections(play: Play) -> dict[str, Any]:
    """Return a connection of each sort, inside a transaction that is committed at the page's end."""
    names = {"conn": psycopg.connect(play.dsn), "dsn": play.dsn, "psycopg": psycopg}
    names["async_conn"] = play.runner.run(psycopg.AsyncConnection.connect(play.dsn))
    return names


def commit(play: Play) -> None:
    with play.names["conn"]:
        pass
    play.runner.run(play.names["async_conn"].commit())
    play.runner.run(play.names["async_conn"].close())


def run_readme(play: Play) -> None:
    commit(play)
    assert set(drain(play.apps[-1])) == {"succeeded"}
    is_so(play, "SELECT count(*) FROM pgsched.runs WHERE task LIKE '%welcome' AND state = 'succeeded'", [(10_004,)])


def enqueueing(play: Play) -> dict[str, Any]:
    class Base(DeclarativeBase): ...

    class User(Base):
        __tablename__ = "users"
        id: Mapped[int] = mapped_column(primary_key=True)

    app = App("shop")
    for name, handler in {
        "welcome": lambda user: None, "reindex": lambda shop: None, "digest": lambda user: None,
        "save": lambda text: None, "charge": lambda cents: None, "collect": lambda cart, items: None,
    }.items():  # fmt: skip
        app.task(name=name)(handler)
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(play.dsn), poolclass=sa.NullPool)
    Base.metadata.create_all(engine)
    return {"app": app, "engine": engine, "Session": Session, "User": User, **connections(play), **app.tasks}


def run_enqueue(play: Play) -> None:
    commit(play)
    is_so(
        play, "SELECT task, count(*) FROM pgsched.runs WHERE kind = 'task' GROUP BY task ORDER BY task",
        [("charge", 2), ("collect", 1), ("digest", 3), ("page_enqueue.invoice", 1), ("reindex", 3),
         ("reports.build", 2), ("save", 2), ("welcome", 1013)],
    )  # fmt: skip
    is_so(play, "SELECT args FROM pgsched.runs WHERE task = 'save'", [({"text": "draft"},)] * 2)
    is_so(play, "SELECT args FROM pgsched.runs WHERE task = 'collect'", [({"cart": 1, "items": [4, 5, 6]},)])
    is_so(play, "SELECT array_agg(id ORDER BY id) FROM users", [([7, 8],)])
    play.db.execute("UPDATE pgsched.runs SET args = '{\"user\": 7}' WHERE task = 'digest' AND args = '{}'")
    assert set(drain(play.names["app"], scheduled=True)) == {"succeeded"}


def dependent(play: Play) -> dict[str, Any]:
    """Make the four runs of the tree that the page shows, and return the tasks that its programs enqueue."""
    first = App("test")
    first.task(name="extract")(lambda: None)
    first.task(name="report")(lambda: None)  # never runs; registered so that `drain` waits until it is cancelled
    play.db.execute("SELECT pgsched.enqueue('extract'), pgsched.enqueue('load', after => ARRAY[1])")
    play.db.execute("SELECT pgsched.enqueue('check', after => ARRAY[1], max_attempts => 1)")
    play.db.execute("SELECT pgsched.enqueue('report', after => ARRAY[2, 3])")

    @first.task(name="check")
    def check() -> None:
        raise ValueError("no such column")

    assert drain(first) == {"succeeded": 1, "dead": 1, "cancelled": 1}
    first.close()
    app = App("shop")
    made = {
        "fetch": lambda day: None, "store": lambda: None, "part": lambda n: n, "verify": lambda: None,
        "publish": lambda day="": None, "tell": lambda: None,
    }  # fmt: skip
    for name, handler in made.items():
        app.task(name=name)(handler)

    class Engine:
        def bulk(self, docs: list[Any]) -> None: ...

    return {"app": app, "Run": Run, "Item": Item, "Any": Any, "engine": Engine(), **app.tasks}


def run_dependent(play: Play) -> None:
    app = play.names["app"]
    play.names["verify"].enqueue()
    assert drain(app, scheduled=True, concurrency=8)["succeeded"] > 200
    # the leader of a later block would run the backfills
    own = "SELECT DISTINCT state FROM pgsched.runs WHERE id > 4 AND task <> 'store' AND job_id IS NULL"
    is_so(play, own, [("succeeded",)])


def shown_handlers(_: Play) -> dict[str, Any]:
    observed: list[Any] = []
    return {"market_is_open": lambda: True, "time": time, "observe": lambda *told: observed.append(told),
            "_observed": observed}  # fmt: skip


def run_handlers(play: Play) -> None:
    play.names["charge"].enqueue(order=7)
    play.names["ship"].enqueue(order=7)
    assert drain(play.names["app"]) == {"succeeded": 2}
    assert len(play.names["_observed"]) == 2
    is_so(play, "SELECT shipped FROM orders", [(True,)])


def run_output(play: Play) -> None:
    play.names["import_orders"].enqueue(path="orders.csv")
    assert drain(play.names["app"]) == {"succeeded": 1}
    is_so(play, "SELECT string_agg(chunk, '' ORDER BY seq) LIKE '%imported rows=2%' FROM pgsched.run_logs"
          " WHERE run_id <> 4711", [(True,)])  # fmt: skip


def reading(_: Play) -> dict[str, Any]:
    import types

    rows = [types.SimpleNamespace(id=n, customer=f"customer {n}") for n in (1, 2)]
    return {"read": lambda path: rows}


def run_rendering(play: Play) -> None:
    import rendering  # type: ignore[import-not-found]  # docs/how-to/executors.md has written it

    run = rendering.render.enqueue(1)
    assert drain(rendering.app) == {"succeeded": 1}
    is_so(play, f"SELECT result FROM pgsched.runs WHERE id = {int(run)}", [({"page": 1, "words": 7},)])
    rendering.app.close()


def limited(_: Play) -> dict[str, Any]:
    app = App("test")
    return {"app": app, "send": app.task(name="mail.send")(lambda customer_id: None)}


def after_moving(play: Play) -> None:
    """Check that the jobs of pg_cron, Celery and APScheduler have all been moved."""
    is_so(play, "SELECT name FROM pgsched.jobs WHERE error IS NOT NULL OR paused", [])
    is_so(
        play, "SELECT name, schedule, task, overlap, owner = current_user FROM pgsched.jobs"
        " WHERE kind = 'sql' ORDER BY 1",
        [("cron 2", "@every 30s", "SELECT 1", "buffer_all", True),
         ("monthly", "0 12 L * *", "DELETE FROM t WHERE n % 2 = 0", "buffer_all", True)],
    )  # fmt: skip
    is_so(play, "SELECT array_agg(jobid ORDER BY 1) FROM cron.job", [([3, 4],)])
    is_so(
        play, "SELECT name, schedule, args, queue, overlap, max_attempts FROM pgsched.jobs"
        " WHERE kind = 'task' ORDER BY 1",
        [("clean", "0 3 * * mon-fri", {"days": 30}, None, "skip", 1),
         ("mailbox", "@every 5m", {}, None, "skip", 1),
         ("nightly-report", "0 2 * * *", {"days": 7}, "reports", "skip", 5),
         ("poll", "@every 30s", {}, None, "allow", 1)],
    )  # fmt: skip
    is_so(play, "SELECT task, queue, state FROM pgsched.runs WHERE job_id IS NULL ORDER BY id",
          [("shop.report", "reports", "succeeded"), ("page_moving.remind", "default", "succeeded")])  # fmt: skip


def after_cron(play: Play) -> None:
    """Check that the jobs of a crontab have been moved by hand."""
    is_so(play, "SELECT args, timezone, max_attempts FROM pgsched.jobs WHERE name = 'dump'",
          [({"cwd": "/srv/shop"}, "Europe/Berlin", 1)])  # fmt: skip
    is_so(play, "SELECT args ->> 'stdin' FROM pgsched.jobs WHERE name = 'report-mail'",
          [("Please find it on the server.\n",)])  # fmt: skip
    is_so(play, "SELECT name FROM pgsched.jobs WHERE error IS NOT NULL OR paused", [])


SETTINGS = "ALTER SEQUENCE pgsched.runs_id_seq RESTART WITH 4711;"
DEAD = f"""
{NIGHTLY}; {SETTINGS}
INSERT INTO pgsched.runs (task, max_attempts) SELECT 'reports.build', 1 FROM generate_series(1, 3);
INSERT INTO pgsched.runs (job_id, scheduled_at, task) SELECT id, now(), task FROM pgsched.jobs;
UPDATE pgsched.runs SET state = 'dead', finished_at = now(), error = 'ValueError: no'
"""


def after_shadow(play: Play) -> None:
    is_so(play, "SELECT name, mode FROM pgsched.jobs ORDER BY name", [("dump", "run"), ("orders", "shadow")])


def after_moving_step_by_step(play: Play) -> None:
    is_so(
        play, "SELECT count(*), bool_and(mode = 'run' AND NOT paused AND error IS NULL) FROM pgsched.jobs", [(7, True)]
    )


def after_testing(play: Play) -> None:
    """Check that the tests of the page have dropped their databases. Other tests on this server make some, too."""
    left = "SELECT datname FROM pg_database WHERE datname ~ '^pgsched_test_[0-9a-f]{12}$'"
    found = set(play.db.execute(left))
    wait_until(lambda: not found & set(play.db.execute(left)), 60, "the end of their databases")


def saved_history(play: Play) -> dict[str, Any]:
    sound().save(play.folder / "history.jsonl")
    return {}


def beside(folder: str) -> dict[str, str]:
    """Return the files of an example, by their paths in its folder, without its README.md and what Python compiles."""
    paths = [path.relative_to(ROOT / folder) for path in sorted((ROOT / folder).rglob("*")) if path.is_file()]
    own = [path for path in paths if path.name != "README.md" and path.suffix != ".pyc"]
    return {str(path): (ROOT / folder / path).read_text(encoding="utf-8") for path in own}


STAGES: dict[str, Stage] = {
    "README.md": Stage(files={"package/module.py": PROGRAM}, names=connections, run=run_readme,
                       sql="CREATE TABLE sessions (expires_at timestamptz)"),
    "examples/nightly_reports/README.md": Stage(files=beside("examples/nightly_reports"), empty=True),
    "examples/sql_producer/README.md": Stage(files=beside("examples/sql_producer"), empty=True),
    "examples/django_shop/README.md": Stage(files=beside("examples/django_shop"), empty=True),
    "examples/fastapi_shop/README.md": Stage(files=beside("examples/fastapi_shop"), empty=True),
    "examples/script/README.md": Stage(files=beside("examples/script"), empty=True),
    "examples/web_shop/README.md": Stage(files=beside("examples/web_shop"), empty=True),
    "docs/how-to/alerts.md": Stage(sql=NIGHTLY),
    "docs/concepts/chaos.md": Stage(names=saved_history),
    "docs/how-to/dead-letters.md": Stage(sql=DEAD),
    "docs/how-to/dependencies.md": Stage(names=dependent, run=run_dependent, sql=LOADS),
    "docs/how-to/django.md": Stage(files=DJANGO_PROJECT, empty=True),
    "docs/how-to/elect-a-leader.md": Stage(names=electing, after=elect_another),
    "docs/how-to/enqueue.md": Stage(names=enqueueing, run=run_enqueue),
    "docs/how-to/executors.md": Stage(run=run_rendering),
    "docs/how-to/frameworks.md": Stage(after=serve_by_flask),
    "docs/how-to/handlers.md": Stage(names=shown_handlers, run=run_handlers, sql=ORDERS),
    "docs/how-to/holidays.md": Stage(files={"company.ics": COMPANY}),
    "docs/how-to/item-queue.md": Stage(sql="CREATE TABLE images (id bigint, thumbnail boolean)", names=lambda play: {
        "dsn": play.dsn, "psycopg": psycopg, "make_thumbnail": print}),
    "docs/how-to/kazoo.md": Stage(names=locking),
    "docs/how-to/limits.md": Stage(names=limited),
    "docs/how-to/lock-a-job.md": Stage(names=locking, after=written_totals,
                                       sql="CREATE TABLE totals (day date, cents bigint)"),
    "docs/how-to/monitoring.md": Stage(files=MYPROJECT),
    "docs/how-to/notify.md": Stage(sql=NIGHTLY, names=lambda play: {
        "SENTRY_DSN": "http://key@127.0.0.1:9/1", "app": App("notifying", dsn=play.dsn)}),
    "docs/how-to/moving.md": Stage(sql=PG_CRON, after=after_moving),
    "docs/how-to/moving-from-cron.md": Stage(after=after_cron),
    "docs/how-to/moving-step-by-step.md": Stage(sql=BEAT_TABLES, files=OLD_LOGS, after=after_moving_step_by_step),
    "docs/how-to/moving-from-apscheduler.md": Stage(names=job_stores),
    "docs/how-to/moving-from-celery.md": Stage(sql=BEAT_TABLES),
    "docs/how-to/moving-from-pg_cron.md": Stage(sql=ONE_PG_CRON_JOB + PG_CRON_LOG),
    "docs/how-to/output.md": Stage(names=reading, run=run_output, sql=f"{SETTINGS} INSERT INTO pgsched.runs"
                                   " (task, state, finished_at) VALUES ('reports.build', 'succeeded', now())"),
    "docs/introduction/quickstart.md": Stage(empty=True),
    "docs/how-to/programs.md": Stage(names=lambda play: {"dsn": play.dsn, "psycopg": psycopg}),
    "docs/how-to/retention.md": Stage(sql=NIGHTLY),
    "docs/how-to/security.md": Stage(alone=True, sql=NIGHTLY),
    "docs/how-to/share-values.md": Stage(names=lambda _: {"measure": lambda: None}),
    "docs/how-to/testing.md": Stage(after=after_testing),
    "docs/how-to/try-beside.md": Stage(files=SHADOW, after=after_shadow),
    # The exporter that the page shows needs an extra package and a collector.
    "docs/how-to/tracing.md": Stage(files=MYPROJECT, apart=True, put={
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4317": "OTEL_TRACES_EXPORTER=console"}),
    # Behind the page's proxy is the console that asks for the token.
    "docs/how-to/web.md": Stage(beside=("pgsched web",), put={"https://jobs.example": "http://localhost:SHOWN"}),
    "docs/how-to/workers.md": Stage(files=MYPROJECT),
    "docs/how-to/zookeeper.md": Stage(names=locking),
}  # fmt: skip
