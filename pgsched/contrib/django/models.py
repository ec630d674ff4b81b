"""Runs and jobs as models of Django, to read.

Invariant: no model writes. The tables are pgsched's own, with its own migrations; changes go through pgsched, which
keeps its rules and its audit. What a login may see, its grants decide.

Source: `Options.managed` and `db_table` in docs.djangoproject.com/en/stable/ref/models/options/.
"""

from __future__ import annotations

from typing import Any, NoReturn

from django.db import models

from pgsched.contrib.django.choices import database_alias
from pgsched.core.lifecycle import ENDED_STATES
from pgsched.core.model import Kind, State

STATES = [(str(state), str(state)) for state in State]
KINDS = [(str(kind), str(kind)) for kind in Kind]


class ReadOnly(NotImplementedError):
    """A model of pgsched was to be written: `get_app().run(id)` and `.jobs[name]` change runs and jobs."""


class TextsField(models.Field):
    """A list of texts. Django's own `ArrayField` needs the application django.contrib.postgres."""

    def db_type(self, connection: Any) -> str:
        """Return the type of the column."""
        return "text[]"


class ReadOnlyQuerySet(models.QuerySet):
    """A query that changes nothing."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise ReadOnly(ReadOnly.__doc__)

    create = bulk_create = bulk_update = get_or_create = update_or_create = update = delete = _refuse
    acreate = abulk_create = abulk_update = aget_or_create = aupdate_or_create = aupdate = adelete = _refuse


ManagerOfRows: Any = models.Manager.from_queryset(ReadOnlyQuerySet)


class PgschedManager(ManagerOfRows):
    """The rows of the database that the backend in TASKS names, unless `using` says another one."""

    def get_queryset(self) -> Any:
        """Return all rows."""
        return super().get_queryset().using(self._db or database_alias())


class PgschedModel(models.Model):
    """A row of a table of pgsched."""

    objects = PgschedManager()

    class Meta:
        """Django makes no table."""

        abstract = True
        managed = False

    def save(self, *_: Any, **__: Any) -> NoReturn:
        """Raise ReadOnly."""
        raise ReadOnly(ReadOnly.__doc__)

    delete = _save_table = save  # `loaddata` comes to the last one


class Job(PgschedModel):
    """A job: what is run, and when. Its columns are those of docs/reference/jobs.md that people look for."""

    id = models.BigIntegerField(primary_key=True)
    name = models.TextField()
    description = models.TextField(null=True)
    kind = models.TextField(choices=KINDS)
    task = models.TextField()
    args = models.JSONField()
    queue = models.TextField(null=True)
    schedule = models.TextField(null=True)
    timezone = models.TextField()
    run_at = models.DateTimeField(null=True)
    overlap = models.TextField()
    max_attempts = models.IntegerField(null=True)
    paused = models.BooleanField()
    paused_at = models.DateTimeField(null=True)
    paused_by = models.TextField(null=True)
    paused_reason = models.TextField(null=True)
    mode = models.TextField()
    declared_by = models.TextField(null=True)
    owner = models.TextField()
    created_at = models.DateTimeField()
    updated_at = models.DateTimeField()
    next_run_at = models.DateTimeField(null=True)
    run_count = models.BigIntegerField()
    error = models.TextField(null=True)

    class Meta:
        """Permissions beside that to view."""

        managed = False
        base_manager_name = "objects"  # that of related rows, too
        db_table = '"pgsched"."jobs"'
        default_permissions = ("view",)
        permissions = (
            ("run_job", "Can run a job now"),
            ("pause_job", "Can pause and resume a job"),
        )
        ordering = ("name",)

    def __str__(self) -> str:
        return str(self.name)


class Run(PgschedModel):
    """A run: one piece of work, with its arguments and what became of it."""

    id = models.BigIntegerField(primary_key=True)
    job = models.ForeignKey(Job, models.DO_NOTHING, null=True, db_constraint=False, related_name="runs")
    state = models.TextField(choices=STATES)
    kind = models.TextField(choices=KINDS)
    task = models.TextField()
    args = models.JSONField()
    queue = models.TextField()
    priority = models.SmallIntegerField(help_text="0 to 9, lower goes first.")
    attempt = models.IntegerField(help_text="How many attempts were begun.")
    max_attempts = models.IntegerField()
    scheduled_at = models.DateTimeField(null=True, help_text="The slot of its job.")
    available_at = models.DateTimeField()
    created_at = models.DateTimeField()
    started_at = models.DateTimeField(null=True)
    finished_at = models.DateTimeField(null=True)
    result = models.JSONField(null=True)
    error = models.TextField(null=True, help_text="Of the last attempt that failed.")
    reason = models.TextField(null=True, help_text="Why it is in this state.")
    progress = models.JSONField(null=True)
    tags = TextsField(null=True)
    origin = models.TextField()
    owner = models.TextField(null=True)
    unique_key = models.TextField(null=True)
    concurrency_key = models.TextField(null=True)

    class Meta:
        """Permissions beside that to view."""

        managed = False
        base_manager_name = "objects"  # that of related rows, too
        db_table = '"pgsched"."runs"'
        default_permissions = ("view",)
        permissions = (
            ("retry_run", "Can retry a run"),
            ("cancel_run", "Can cancel a run"),
        )
        ordering = ("-id",)

    def __str__(self) -> str:
        return f"run {self.pk} of {self.task}"

    @property
    def has_ended(self) -> bool:
        """Whether the run has ended, well or badly."""
        return State(self.state) in ENDED_STATES
