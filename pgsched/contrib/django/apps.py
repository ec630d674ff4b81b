"""The Django application "pgsched.contrib.django": its label is `pgsched`."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.apps import AppConfig
from django.core import mail
from django.core.management.base import CommandError
from django.db import router
from django.db.models.signals import post_migrate

from pgsched.errors import InputError, NotPermitted, PgschedError, SchemaTooOld


class PgschedConfig(AppConfig):
    """The configuration of the application.

    `manage.py migrate` migrates pgsched's schema, too, unless the option MIGRATE is False. So the test database, which
    Django makes by `migrate`, has the schema as well.
    """

    name = "pgsched.contrib.django"
    label = "pgsched"
    verbose_name = "pgsched"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Migrate pgsched's schema after `manage.py migrate`."""
        post_migrate.connect(migrate_schema, sender=self, dispatch_uid="pgsched.migrate")


def migrate_schema(*, using: str, plan: Any = None, stdout: Any = None, verbosity: int = 1, **_: Any) -> None:
    """Migrate pgsched's schema in the database `using`, if a backend of pgsched has its runs there.

    `plan`: None if `flush` sends the signal, as a `TransactionTestCase` does at its end. In tests this deletes jobs and
      runs, too, and closes pgsched's own connections, which would keep Django from dropping the database.

    A schema that is up to date needs no right. The databases of tests get one also where MIGRATE is False.

    Raises CommandError, which `manage.py` shows as one line.
    """
    from pgsched.contrib.django.choices import own_backends

    try:
        own = [one for one in own_backends() if one.choices.database == using]
    except InputError as error:
        raise CommandError(str(error)) from error
    is_test = hasattr(mail, "outbox")  # Django's test runner has set up its environment
    if not own or not router.allow_migrate(using, "pgsched"):
        return
    if plan is None:
        if is_test:
            for backend in own:
                backend.app.close()
            empty_tables(using)
    elif is_test or any(one.choices.migrate for one in own):
        try:
            bring_up_to_date(using, stdout if verbosity >= 1 else None)
        except NotPermitted as error:
            raise CommandError(
                f"pgsched's schema in {using!r}: {error}; let a role that may run `manage.py pgsched migrate`, and set"
                " MIGRATE to False in the OPTIONS of the backend"
            ) from error
        except PgschedError as error:
            raise CommandError(f"pgsched's schema in {using!r}: {error}") from error


def bring_up_to_date(alias: str, stdout: Any) -> None:
    """Migrate the schema if it is missing or older than this program. Raises PgschedError."""
    from pgsched.contrib.django.dsn import dsn_of
    from pgsched.db.connection.connect import connect
    from pgsched.db.schema import migrate, version

    dsn = dsn_of(alias)
    with connect(dsn, purpose="migrate") as conn, suppress(SchemaTooOld):
        version.check_version(conn)
        return
    before, after = migrate.upgrade(dsn)
    if stdout is not None:
        stdout.write(f"  pgsched's schema: {before or 'none'} -> {after}\n")


def empty_tables(alias: str) -> None:
    """Delete all jobs and runs of a test database, if it has pgsched's schema."""
    from pgsched.contrib.django.dsn import dsn_of
    from pgsched.db.connection.connect import connect
    from pgsched.db.schema import version
    from pgsched.testing.database import delete_all

    with connect(dsn_of(alias), purpose="testing") as conn:
        if version.current(conn) is not None:
            delete_all(conn)
