"""`manage.py migrate` and pgsched's schema: when it is migrated, and what a login may lack."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import psycopg
import pytest
from django.core import mail
from django.core.management.base import CommandError
from django.test import override_settings

from pgsched.contrib.django.apps import migrate_schema
from pgsched.db.schema.version import SCHEMA_VERSION
from tests.support.django_project.settings import BACKEND, django_connection

pytestmark = [pytest.mark.packages, pytest.mark.scram]

LEFT_ALONE = {"default": {"BACKEND": BACKEND, "OPTIONS": {"APP": "shop", "MIGRATE": False}}}


@pytest.fixture
def admin(empty_dsn: str) -> Iterator[psycopg.Connection[Any]]:
    """A superuser's connection to a database without tables; it is Django's default one."""
    with psycopg.connect(empty_dsn, autocommit=True) as conn, django_connection(empty_dsn):
        yield conn


@contextmanager
def login(admin: psycopg.Connection[Any], connection: Any, *grants: str) -> Iterator[None]:
    """Let Django work as a role that has these grants and nothing else."""
    role = f"shop_{uuid.uuid4().hex[:8]}"
    admin.execute(f"CREATE ROLE {role}".encode())
    for grant in grants:
        admin.execute(f"GRANT {grant} TO {role}".encode())
    connection.settings_dict["OPTIONS"] = {"assume_role": role}
    try:
        yield
    finally:
        connection.settings_dict["OPTIONS"] = {}
        admin.execute(f"DROP OWNED BY {role}; DROP ROLE {role}".encode())


def migrate(**more: Any) -> str:
    """Send what `manage.py migrate` sends; return what it prints."""
    out = StringIO()
    migrate_schema(using="default", plan=[], stdout=out, **more)
    return out.getvalue()


def version(admin: psycopg.Connection[Any]) -> str | None:
    """Return the version of the schema, None without one."""
    if admin.execute("SELECT to_regnamespace('pgsched')").fetchone() == (None,):
        return None
    row = admin.execute("SELECT version_num FROM pgsched.alembic_version").fetchone()
    return row and str(row[0])


def test_a_login_needs_rights_for_a_migration_and_none_for_what_is_up_to_date(admin: Any) -> None:
    from django.db import connection

    with login(admin, connection), pytest.raises(CommandError) as refused:
        migrate()
    text = str(refused.value)
    assert text.startswith("pgsched's schema in 'default': the database role lacks a grant: permission denied for")
    assert "manage.py pgsched migrate" in text and "MIGRATE to False" in text and "\n" not in text
    assert version(admin) is None
    assert migrate() == f"  pgsched's schema: none -> {SCHEMA_VERSION}\n"
    with login(admin, connection, "USAGE ON SCHEMA pgsched", "SELECT ON pgsched.alembic_version"):
        assert migrate() == ""
    admin.execute("UPDATE pgsched.alembic_version SET version_num = '9999_next'")
    with pytest.raises(CommandError, match="version 9999_next, newer than"):
        migrate()


def test_the_option_leaves_the_migration_to_others_except_in_tests(admin: Any) -> None:
    with override_settings(TASKS=LEFT_ALONE):
        assert migrate() == "" and version(admin) is None
        mail.outbox = []  # as Django's test runner does before it makes the database
        try:
            migrate_schema(using="default", plan=None)
            assert version(admin) is None, "flush makes nothing, and misses nothing"
            assert migrate(verbosity=0) == "" and version(admin) == SCHEMA_VERSION
        finally:
            del mail.outbox


def test_other_databases_and_those_that_a_router_excludes_are_left_alone(admin: Any) -> None:
    class Router:
        def allow_migrate(self, db: str, app_label: str, **_: Any) -> bool | None:
            return False if app_label == "pgsched" else None

    migrate_schema(using="lite", plan=[])
    with override_settings(DATABASE_ROUTERS=[Router()]):
        assert migrate() == ""
    with override_settings(TASKS={}):
        assert migrate() == ""
    assert version(admin) is None
