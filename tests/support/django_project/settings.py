"""The settings of the Django project that tests in this process share, and its connection to a test's database."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from psycopg.conninfo import conninfo_to_dict

BACKEND = "pgsched.contrib.django.PgschedBackend"
TASKS = {
    "default": {"BACKEND": BACKEND, "QUEUES": ["default", "mail"], "OPTIONS": {"APP": "shop"}},
    "any queue": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"APP": "shop"}},
    "missing": {"BACKEND": "does.not.exist"},
}
CONTEXT = ("django.template.context_processors.request", "django.contrib.auth.context_processors.auth",
           "django.contrib.messages.context_processors.messages")  # fmt: skip
MIDDLEWARE = (
    "django.contrib.sessions.middleware.SessionMiddleware", "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware", "django.contrib.messages.middleware.MessageMiddleware",
)  # fmt: skip
DATABASE = {"ENGINE": "django.db.backends.postgresql", "NAME": "not yet", "CONN_MAX_AGE": 600}


def set_up() -> None:
    """Configure Django in this process, once."""
    import django
    from django.conf import settings

    if settings.configured:
        return
    backport = [] if django.VERSION >= (6, 0) else ["django_tasks"]
    settings.configure(
        SECRET_KEY="for tests only",
        DATABASES={"default": {**DATABASE}, "lite": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
        INSTALLED_APPS=[
            *(f"django.contrib.{name}" for name in ("auth", "contenttypes", "sessions", "messages", "admin")),
            "pgsched.contrib.django", *backport, "tests.support.django_project",
        ],
        TASKS=TASKS, ROOT_URLCONF="tests.support.django_project.urls", MIDDLEWARE=[*MIDDLEWARE], USE_TZ=True,
        PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"], ALLOWED_HOSTS=["testserver"],
        TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True,
                    "OPTIONS": {"context_processors": [*CONTEXT]}}],
    )  # fmt: skip
    django.setup()


@contextmanager
def django_connection(dsn: str) -> Iterator[Any]:
    """Yield Django's default connection, set to this database."""
    set_up()
    from django.db import connections

    given = conninfo_to_dict(dsn)
    database = {
        "ENGINE": "django.db.backends.postgresql", "NAME": given["dbname"], "USER": given.get("user", ""),
        "PASSWORD": given.get("password", ""), "HOST": given.get("host", ""), "PORT": given.get("port", ""),
        "CONN_MAX_AGE": 600,
    }  # fmt: skip
    connections.settings["default"].update(database)  # updated in place: the connection of each thread reads this dict
    connections.close_all()
    yield connections["default"]
    connections.close_all()


def shop_app() -> Any:
    """Return the App of the project, without connections to the database of an earlier test."""
    from pgsched.contrib.django import get_app

    app = get_app()
    app.close()
    return app


def shop_tasks() -> Any:
    """Return the module of the project's tasks."""
    set_up()
    return importlib.import_module("tests.support.django_project.tasks")
