"""Fixtures: the Django project of the tests, on a database with pgsched's schema, or with Django's own tables as well.

The databases are made once for each module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("django")

if TYPE_CHECKING:
    from tests.support.databases import Databases

from tests.support.django_project.settings import django_connection, set_up, shop_app, shop_tasks

set_up()  # Django's models can be imported after it


@pytest.fixture(scope="module")
def project_dsn(databases: Databases) -> Iterator[str]:
    """The DSN of a database with pgsched's schema; it is Django's default one."""
    with databases.one() as dsn, django_connection(dsn):
        yield dsn
        shop_app().close()


@pytest.fixture(scope="module")
def migrated_dsn(empty_databases: Databases) -> Iterator[str]:
    """The DSN of a database on which `manage.py migrate` has run; it is Django's default one."""
    from django.core.management import call_command

    with empty_databases.one() as dsn, django_connection(dsn):
        call_command("migrate", verbosity=0)
        yield dsn
        shop_app().close()


@pytest.fixture(scope="module")
def tasks() -> Any:
    """The module of the project's tasks."""
    return shop_tasks()
