"""The Django application "pgsched.contrib.django": its label is `pgsched`."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.core import mail
from django.db.models.signals import post_migrate


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
      runs, too.
    """
    from pgsched.contrib.django.choices import own_backends
    from pgsched.contrib.django.dsn import dsn_of

    own = [one.choices for one in own_backends() if one.choices.database == using]
    if plan is None and own and hasattr(mail, "outbox"):  # Django's test runner has set up its environment
        from pgsched.db.connection.connect import connect
        from pgsched.testing.database import delete_all

        with connect(dsn_of(using), purpose="testing") as conn:
            delete_all(conn)
    if plan is None or not any(one.migrate for one in own):
        return
    from pgsched.db.schema import migrate

    before, after = migrate.upgrade(dsn_of(using))
    if verbosity >= 1 and before != after and stdout is not None:
        stdout.write(f"  pgsched's schema: {before or 'none'} -> {after}\n")
