"""The admin of runs and jobs: who may look, retry, cancel, run and pause; what the audit says; nothing else changes."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import psycopg
import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Permission, User
from django.core import serializers
from django.db import connection
from django.test import Client, override_settings
from django.test.utils import CaptureQueriesContext

from pgsched.contrib.django import admin as django_admin
from pgsched.contrib.django.models import Job, ReadOnly, Run
from pgsched.services.runs import changes
from tests.support.django_project.settings import BACKEND

pytestmark = [pytest.mark.packages, pytest.mark.scram, pytest.mark.usefixtures("migrated_dsn")]

RUNS, JOBS = "/admin/pgsched/run/", "/admin/pgsched/job/"


@pytest.fixture
def db(migrated_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(migrated_dsn, autocommit=True) as conn:
        yield conn
        conn.execute("DELETE FROM pgsched.runs; DELETE FROM pgsched.jobs; DELETE FROM pgsched.audit")
    User.objects.all().delete()


@pytest.fixture
def dead(db: psycopg.Connection[Any]) -> int:
    row = db.execute(
        "INSERT INTO pgsched.runs (task, args, state, finished_at, error) VALUES ('shop.charge',"
        """ '{"order": 7}', 'dead', now(), 'ValueError: <b>no</b>') RETURNING id"""
    ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.fixture
def job(db: psycopg.Connection[Any]) -> int:
    row = db.execute(
        "INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('nightly', '@daily', 'shop.report') RETURNING id"
    ).fetchone()
    assert row is not None
    return int(row[0])


def client(*permissions: str, **options: Any) -> Client:
    """Return the browser of a member of the staff with these permissions."""
    user = User.objects.create_user("eve", is_staff=True)
    user.user_permissions.set(Permission.objects.filter(codename__in=permissions))
    found = Client(**options)
    found.force_login(user)
    return found


def act(browser: Client, where: str, action: str, *ids: int, **more: Any) -> tuple[int, list[str]]:
    """Do an action as the form of the list sends it; return the status and the messages of the next page."""
    page = browser.post(where, {"action": action, "_selected_action": [*ids], "index": 0, **more}, follow=True)
    return page.status_code, re.findall(r'<li class="(?:success|warning|error)[^"]*">(.*?)</li>', page.content.decode())


def state(db: psycopg.Connection[Any], run: int) -> str:
    row = db.execute("SELECT state FROM pgsched.runs WHERE id = %s", [run]).fetchone()
    assert row is not None
    return str(row[0])


def audit(db: psycopg.Connection[Any]) -> list[Any]:
    made = "SELECT action, what, name, for_user FROM pgsched.audit WHERE action <> 'created' ORDER BY id"
    return db.execute(made).fetchall()


def test_who_may_view_sees_runs_and_jobs_and_no_actions(db: Any, dead: int, job: int) -> None:
    browser = client("view_run", "view_job")
    page = browser.get(RUNS).content.decode()
    assert "shop.charge" in page and "ValueError: &lt;b&gt;no&lt;/b&gt;" in page
    assert "retry_runs" not in page and "cancel_runs" not in page and "delete_selected" not in page
    detail = browser.get(f"{RUNS}{dead}/change/").content.decode()
    assert "shop.charge" in detail and "order" in detail and 'name="_save"' not in detail
    page = browser.get(JOBS).content.decode()
    assert "nightly" in page and "run_now" not in page and "pause_jobs" not in page
    for found, wanted in (("shop.charge", True), (str(dead), True), ("nobody", False), ("'", False)):
        assert ("ValueError" in browser.get(RUNS, {"q": found}).content.decode()) is wanted
    for found, wanted in (("night", True), ("shop.report", True), ("ly", False), ("9" * 19, False)):
        assert ("@daily" in browser.get(JOBS, {"q": found}).content.decode()) is wanted
        assert browser.get(RUNS, {"q": found * 300}).status_code == 200
    assert browser.get(RUNS, {"state__exact": "queued"}).status_code == 200


def test_a_search_is_the_whole_text(db: Any, job: int) -> None:
    """Names have spaces: nothing is split at them."""
    db.execute("UPDATE pgsched.jobs SET name = 'nightly total'; SELECT pgsched.trigger('nightly total')")
    browser = client("view_run", "view_job")
    for where in (RUNS, JOBS):
        for text, wanted in (("nightly total", True), (" nightly total ", True), ("total nightly", False)):
            assert ("shop.report" in browser.get(where, {"q": text}).content.decode()) is wanted, (where, text)


def test_the_list_of_runs_reads_no_arguments_and_results(db: Any, dead: int, job: int) -> None:
    browser = client("view_run", "retry_run", "view_job", "pause_job")
    with CaptureQueriesContext(connection) as made:
        browser.get(RUNS)
        act(browser, RUNS, "retry_runs", dead)
    large = [one["sql"] for one in made if re.search(r'"runs"\."(args|result|progress)"', one["sql"])]
    assert not large


def test_without_a_backend_named_default_the_first_one_counts() -> None:
    several = {name: {"BACKEND": BACKEND, "OPTIONS": {"APP": name, "DATABASE": database}}
               for name, database in (("mail", "default"), ("files", "lite"))}  # fmt: skip
    with override_settings(TASKS=several):
        assert Run.objects.count() == 0


def test_who_may_not_view_sees_nothing(db: Any, dead: int) -> None:
    browser = client()
    assert browser.get(RUNS).status_code == browser.get(f"{RUNS}{dead}/change/").status_code == 403
    assert act(browser, RUNS, "retry_runs", dead)[0] == 403
    assert Client().get(RUNS).status_code == 302
    assert state(db, dead) == "dead"


def test_nothing_can_be_added_changed_or_deleted(db: Any, dead: int, job: int) -> None:
    User.objects.create_superuser("root")
    browser = Client()
    browser.force_login(User.objects.get())
    for where, row in ((RUNS, dead), (JOBS, job)):
        assert browser.get(f"{where}add/").status_code == 403
        assert browser.post(f"{where}{row}/change/", {"task": "evil"}).status_code == 403
        assert browser.post(f"{where}{row}/delete/", {"post": "yes"}).status_code == 403
        act(browser, where, "delete_selected", row, post="yes")
    assert Run.objects.get(pk=dead).task == "shop.charge" and Job.objects.get(pk=job).task == "shop.report"


def test_an_action_needs_its_permission(db: Any, dead: int, job: int) -> None:
    browser = client("view_run", "view_job", "cancel_run", "pause_job")
    act(browser, RUNS, "retry_runs", dead)
    act(browser, JOBS, "run_now", job)
    assert state(db, dead) == "dead" and Run.objects.count() == 1
    assert audit(db) == []


def test_an_action_needs_the_token_against_forged_requests(db: Any, dead: int) -> None:
    browser = client("view_run", "retry_run", enforce_csrf_checks=True)
    assert act(browser, RUNS, "retry_runs", dead)[0] == 403
    assert state(db, dead) == "dead"
    browser.get(RUNS)
    token = browser.cookies["csrftoken"].value
    assert act(browser, RUNS, "retry_runs", dead, csrfmiddlewaretoken=token) == (200, ["Retried: 1 of 1 runs"])
    assert state(db, dead) == "queued"


def test_runs_are_retried_and_cancelled_and_the_audit_says_who(db: Any, dead: int) -> None:
    browser = client("view_run", "retry_run", "cancel_run")
    assert act(browser, RUNS, "retry_runs", dead) == (200, ["Retried: 1 of 1 runs"])
    assert state(db, dead) == "queued"
    assert act(browser, RUNS, "cancel_runs", dead) == (200, ["Cancelled: 1 of 1 runs"])
    assert state(db, dead) == "cancelled"
    (why,) = act(browser, RUNS, "cancel_runs", dead)[1]
    assert why.startswith("Left alone: ") and why.endswith(f"({dead})")
    assert audit(db) == [("retried", "run", str(dead), "eve"), ("cancelled", "run", str(dead), "eve")]
    assert "in the admin by eve" in Run.objects.get(pk=dead).reason
    log = LogEntry.objects.filter(user__username="eve", object_id=str(dead)).order_by("id")
    assert [entry.change_message for entry in log] == ["retried in the admin", "cancelled in the admin"]


def test_jobs_are_run_now_paused_and_resumed(db: Any, job: int) -> None:
    browser = client("view_job", "run_job", "pause_job")
    assert act(browser, JOBS, "run_now", job) == (200, ["Run now: 1 of 1"])
    (run,) = Run.objects.all()
    assert (run.job.name, run.task, run.origin, run.has_ended) == ("nightly", "shop.report", "manual", False)
    act(browser, JOBS, "pause_jobs", job)
    found = Job.objects.get()
    assert (found.paused, found.paused_by, found.paused_reason) == (True, "eve", "in the admin")
    act(browser, JOBS, "resume_jobs", job)
    assert not Job.objects.get().paused and [*Job.objects.get().runs.all()] == [run]
    assert {entry[3] for entry in audit(db)} == {"eve"} and len(audit(db)) == 3


def test_what_the_database_refuses_is_a_message(db: Any, job: int) -> None:
    """For example where Django's login lacks a grant that its user's permission would need."""
    db.execute(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE 'not for shops' USING ERRCODE = '42501'; END$$;"
        " CREATE TRIGGER refuse BEFORE UPDATE ON pgsched.jobs FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    try:
        browser = client("view_job", "pause_job")
        (why,) = act(browser, JOBS, "pause_jobs", job)[1]
        assert why.startswith("The database role lacks a grant: not for shops")
        assert not Job.objects.get().paused and not LogEntry.objects.filter(user__username="eve").exists()
    finally:
        db.execute("DROP FUNCTION refuse CASCADE")


def test_an_action_changes_so_many_rows_and_no_more(db: Any, dead: int, job: int) -> None:
    """Nothing is changed if more are selected, also by "select all" over all pages."""
    db.execute("INSERT INTO pgsched.jobs (name, schedule, task) VALUES ('weekly', '@weekly', 'shop.report')")
    db.execute("INSERT INTO pgsched.runs (task, state, finished_at) VALUES ('shop.charge', 'dead', now())")
    browser = client("view_run", "view_job", "retry_run", "pause_job")
    with patch.object(django_admin, "MOST_CHANGED", 1), patch.object(changes, "MOST", 1):
        (why,) = act(browser, JOBS, "pause_jobs", job, select_across=1)[1]
        assert why.startswith("More than 1 are selected")
        (why,) = act(browser, RUNS, "retry_runs", dead, select_across=1)[1]
        assert why.startswith("2 runs are meant; at most 1 can be changed at once")
    assert not Job.objects.filter(paused=True) and not Run.objects.exclude(state="dead")
    with patch.object(django_admin, "MOST_COUNTED", 1):
        assert django_admin.CappedPaginator(Run.objects.all(), 50).count == 1


def test_the_models_only_read(db: Any, dead: int, job: int) -> None:
    run = Run.objects.get(pk=dead)
    dumped = serializers.serialize("json", [run])
    for write in (
        run.save, run.delete, Run().save, Run.objects.all().delete, Job.objects.get().delete,
        lambda: Run.objects.update(state="queued"), lambda: Run.objects.create(task="t"),
        lambda: Job.objects.bulk_create([Job()]), lambda: Job.objects.get_or_create(name="new"),
        lambda: Job.objects.get().runs.add(run), lambda: load(dumped),
    ):  # fmt: skip
        with pytest.raises(ReadOnly, match="change runs and jobs"):
            write()
    assert (run.args, run.tags, run.state, str(run)) == ({"order": 7}, None, "dead", f"run {dead} of shop.charge")
    assert Run.objects.using("default").count() == Job.objects.count() == 1


def load(text: str) -> None:
    """Do what `manage.py loaddata` does."""
    for one in serializers.deserialize("json", text):
        one.save()


def test_django_makes_no_migration_for_the_models() -> None:
    from django.core.management import call_command

    call_command("makemigrations", check=True, dry_run=True, verbosity=0)
