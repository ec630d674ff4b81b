"""What the settings of a Django project say about pgsched: DATABASES, TASKS, and the decorators beside tasks."""

from __future__ import annotations

from typing import Any

import pytest

from pgsched import InputError, ScheduleError, TaskError
from pgsched.contrib.django import declared, periodic, task_options
from pgsched.contrib.django.choices import read_choices
from pgsched.contrib.django.dsn import dsn_of, dsn_of_settings
from pgsched.contrib.django.management.commands.pgsched import split_own
from pgsched.db.connection.dsn import parameters
from tests.support.django_project.settings import shop_tasks

tasks = shop_tasks()
ODD = 'it\'s a \\ "pass" word %40=@/?#&'


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"NAME": "shop"}, {"dbname": "shop"}),
        ({"NAME": "shop", "USER": "", "PASSWORD": "", "HOST": "", "PORT": ""}, {"dbname": "shop"}),
        (
            {"NAME": "my shop", "USER": "o'hara", "PASSWORD": ODD, "HOST": "db", "PORT": 5433},
            {"dbname": "my shop", "user": "o'hara", "password": ODD, "host": "db", "port": "5433"},
        ),
        ({"NAME": "shop", "HOST": "/var/run/postgresql"}, {"dbname": "shop", "host": "/var/run/postgresql"}),
        ({"NAME": "", "OPTIONS": {"service": "shop", "passfile": ".p"}}, {"service": "shop", "passfile": ".p"}),
        (
            {"NAME": "shop", "OPTIONS": {"sslmode": "verify-full", "sslrootcert": "/a b.pem", "connect_timeout": 3}},
            {"dbname": "shop", "sslmode": "verify-full", "sslrootcert": "/a b.pem", "connect_timeout": "3"},
        ),
        # what libpq does not know is Django's own
        (
            {"NAME": "shop", "OPTIONS": {"pool": True, "isolation_level": 2, "server_side_binding": True,
                                         "client_encoding": "LATIN1", "prepare_threshold": 5}},
            {"dbname": "shop"},
        ),
        (
            {"NAME": "shop", "OPTIONS": {"options": "-c geqo=off", "assume_role": "the \\ owner"}},
            {"dbname": "shop", "options": "-c geqo=off -c role=the\\ \\\\\\ owner"},
        ),
    ],
)  # fmt: skip
def test_the_dsn_says_what_databases_says(settings: dict[str, Any], expected: dict[str, str]) -> None:
    assert parameters(dsn_of_settings("default", settings)) == expected


def test_a_database_that_is_none_is_refused_in_one_line() -> None:
    for alias, why in (
        ("lite", "DATABASES['lite'] has the engine django.db.backends.sqlite3, and pgsched needs PostgreSQL:"),
        ("defalt", "DATABASES has no 'defalt'; did you mean default?"),
    ):
        with pytest.raises(InputError) as refused:
            dsn_of(alias)
        assert str(refused.value).startswith(why) and "\n" not in str(refused.value)
    with pytest.raises(InputError, match="names no database: give NAME"):
        dsn_of_settings("default", {"NAME": "", "OPTIONS": {"sslmode": "require"}})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"DATBASE": "default"}, "DATBASE: no such option; .* did you mean DATABASE"),
        ({"MAX_ATTEMPTS": 0}, "MAX_ATTEMPTS: 0 is out of range 1-1000"),
        ({"MIGRATE": "no"}, "MIGRATE: expected True or False"),
        ({"APP": ""}, "APP: must not be empty"),
    ],
)
def test_wrong_options_of_a_backend_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        read_choices(options)


def test_the_name_of_the_app_is_that_of_the_project() -> None:
    from django.test import override_settings

    with override_settings(SETTINGS_MODULE="mysite.settings.production"):
        assert read_choices({}).app == "mysite"
    with override_settings(SETTINGS_MODULE="settings"):
        assert read_choices({}).app == "django"


@pytest.mark.parametrize(
    ("declaration", "error", "why"),
    [
        (lambda: task_options(priority=1), InputError, r"priority: give @task\(priority=...\)"),
        (lambda: task_options(queue="a"), InputError, r"queue: give @task\(queue_name=...\)"),
        (lambda: task_options(max_atempts=1)(tasks.answer), InputError, "did you mean max_attempts"),
        (lambda: task_options(max_attempts=0)(tasks.answer), InputError, "max_attempts: 0 is out of range"),
        (lambda: task_options(unique_key="{nobody}")(tasks.welcome), InputError, "nobody"),
        (lambda: task_options(timeout=1)(tasks.answer.func), InputError, "expected a task of Django, got a function"),
        (lambda: periodic(schedule="61 * * * *"), ScheduleError, "minute"),
        (lambda: periodic(schedule="@daily", timezone="Mars"), ScheduleError, "timezone"),
        (lambda: periodic(schedule="@daily", overlop="skip"), InputError, "did you mean overlap"),  # type: ignore
        (lambda: periodic(schedule="@daily", args={"nobody": 1})(tasks.answer), TaskError, "unexpected keyword"),
        (lambda: periodic(schedule="@daily")(tasks.welcome), TaskError, "missing a required argument: 'user'"),
        (lambda: periodic(schedule="@daily")(tasks.answer.func), InputError, "it stands above @task"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_stands(declaration: Any, error: Any, why: str) -> None:
    with pytest.raises(error, match=why):
        declaration()


def test_the_priority_of_a_job_is_one_of_django() -> None:
    jobs = declared.jobs_of("default")
    periodic(schedule="@daily", priority=100)(tasks.answer)
    (made,) = [job for job in declared.jobs_of("default") if job not in jobs]
    declared._jobs.remove(made)
    assert made.keywords["priority"] == 0, "it goes first"
    with pytest.raises(InputError, match="priority: 101 is out of range"):
        periodic(schedule="@daily", priority=101)


def test_a_job_in_a_queue_that_the_backend_does_not_have_is_refused() -> None:
    from pgsched.contrib.django.tasks_api import InvalidTask

    with pytest.raises(InvalidTask, match="Queue 'nobodys' is not valid"):
        periodic(schedule="@daily", queue="nobodys")(tasks.answer)


@pytest.mark.parametrize(
    ("given", "args", "own"),
    [
        (["status", "--json"], ["status", "--json"], {}),
        (["--backend", "mail", "worker"], ["worker"], {"--backend": "mail"}),
        (["--database=other", "run", "list", "--database", "x"], ["run", "list", "--database", "x"],
         {"--database": "other"}),
        (["worker", "--settings=shop.settings", "--pythonpath", "/srv"], ["worker"],
         {"--settings": "shop.settings", "--pythonpath": "/srv"}),
        (["lock", "run", "a", "--", "manage.py", "x", "--settings", "y"],
         ["lock", "run", "a", "--", "manage.py", "x", "--settings", "y"], {}),
        (["--backend"], [], {"--backend": ""}),
    ],
)  # fmt: skip
def test_what_follows_pgsched_is_handed_over_as_it_is(given: list[str], args: list[str], own: dict[str, str]) -> None:
    assert split_own(given) == (args, own)
