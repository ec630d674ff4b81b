"""Runs and jobs in Django's admin: look, retry, cancel, run now, pause and resume.

Invariant: only those who have the permission see an action, and can do it: `pgsched.retry_run` and so on. A change is
in Django's log of the admin, and in pgsched's audit with the user's name.

The audit believes the name from the owner of pgsched's tables and from members of `pgsched_console`; otherwise it has
only the login.

Source: "Admin actions" in docs.djangoproject.com/en/stable/ref/contrib/admin/actions/.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from django.contrib import admin, messages
from django.core.paginator import Paginator
from django.db import connections
from django.utils.functional import cached_property

from pgsched.contrib.django.choices import database_alias
from pgsched.contrib.django.models import Job, Run
from pgsched.db.callers.calls import call_on
from pgsched.errors import PgschedError
from pgsched.services.jobs import job_changes
from pgsched.services.runs import changes

T = TypeVar("T")
MOST_COUNTED = 10_000
MOST_REASONS = 3


class CappedPaginator(Paginator):
    """A paginator that counts no further than MOST_COUNTED rows: a table of runs may have millions."""

    @cached_property
    def count(self) -> int:
        """Return the number of rows, at most MOST_COUNTED."""
        return int(self.object_list[:MOST_COUNTED].count())


class ReadOnlyAdmin(admin.ModelAdmin):
    """An admin that shows rows and offers actions."""

    paginator = CappedPaginator
    show_full_result_count = False

    def has_add_permission(self, request: Any, obj: Any = None) -> bool:
        """Return False: rows are made by pgsched."""
        return False

    def has_change_permission(self, request: Any, obj: Any = None) -> bool:
        """Return False: rows are changed by actions only."""
        return False

    def has_delete_permission(self, request: Any, obj: Any = None) -> bool:
        """Return False: pgsched prunes rows."""
        return False

    def change_rows(self, request: Any, use_case: Callable[[Any], T]) -> T | None:
        """Change rows on Django's connection, for the user of the request; None after a message about an error."""
        try:
            return act_for(str(request.user.get_username()), use_case)
        except PgschedError as error:
            self.message_user(request, str(error), messages.ERROR)
            return None

    def change_each(self, request: Any, queryset: Any, verb: str, use_case: Callable[[Any, Any], object]) -> None:
        """Change rows one by one; say how many were changed, and log each."""
        done, rows = 0, [*queryset]
        for row in rows:
            if self.change_rows(request, partial(use_case_of_row, use_case, row)):
                self.log_change(request, row, f"{verb} in the admin")
                done += 1
        if done:
            self.message_user(request, f"{verb}: {done} of {len(rows)}", messages.SUCCESS)


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Runs, the newest first."""

    list_display = ("id", "state", "task", "queue", "job", "attempts", "created_at", "started_at", "finished_at", "why")
    list_filter = ("state", "kind")
    list_select_related = ("job",)
    list_per_page = 50
    ordering = ("-id",)
    search_fields = ("=id", "=task", "=queue", "job__name__exact")
    search_help_text = "The number of a run, or the whole name of a task, a queue or a job"
    actions = ("retry_runs", "cancel_runs")

    def has_retry_permission(self, request: Any) -> bool:
        """Check whether the user may retry runs."""
        return bool(request.user.has_perm("pgsched.retry_run"))

    def has_cancel_permission(self, request: Any) -> bool:
        """Check whether the user may cancel runs."""
        return bool(request.user.has_perm("pgsched.cancel_run"))

    @admin.display(description="attempt")
    def attempts(self, run: Any) -> str:
        """Return the number of the attempt, and of how many."""
        return f"{run.attempt} of {run.max_attempts}"

    @admin.display(description="error or reason")
    def why(self, run: Any) -> str:
        """Return the error of a dead run, or the reason for the state of any other."""
        text = (run.error if run.state == "dead" else None) or run.reason or run.error or ""
        return text if len(text) <= 120 else f"{text[:119]}…"

    @admin.action(description="Retry the selected runs", permissions=["retry"])
    def retry_runs(self, request: Any, queryset: Any) -> None:
        """Revive runs that ended without success."""
        self.change_runs(request, queryset, changes.RETRY)

    @admin.action(description="Cancel the selected runs", permissions=["cancel"])
    def cancel_runs(self, request: Any, queryset: Any) -> None:
        """Cancel runs, or ask their workers to stop them."""
        self.change_runs(request, queryset, changes.CANCEL)

    def change_runs(self, request: Any, queryset: Any, verb: changes.Verb) -> None:
        """Retry or cancel runs; say how many, and why others were left alone."""
        ids = [*queryset.values_list("id", flat=True)[: changes.MOST + 1]]
        reason = f"in the admin by {request.user.get_username()}" if verb is changes.CANCEL else None

        def use_case(conn: Any) -> changes.Changed:
            return changes.change(conn, changes.choose(conn, verb, ids, most=changes.MOST), reason=reason)

        done = self.change_rows(request, use_case)
        if done is None:
            return
        left = {row["id"] for row in done.left}
        for run in queryset.model.objects.filter(id__in=[run_id for run_id in ids if run_id not in left]):
            self.log_change(request, run, f"{verb.participle} in the admin")
        if done.count:
            self.message_user(request, f"{verb.participle}: {done.words}", messages.SUCCESS)
        for why, which in done.reasons[:MOST_REASONS]:
            runs = ", ".join(map(str, which[:10])) + (", …" if len(which) > 10 else "")
            self.message_user(request, f"left alone: {why} ({runs})", messages.WARNING)


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    """Jobs by name."""

    list_display = ("name", "task", "schedule", "timezone", "next_run_at", "paused", "arguments", "error")
    list_filter = ("paused", "kind")
    ordering = ("name",)
    search_fields = ("name__startswith", "=task")
    actions = ("run_now", "pause_jobs", "resume_jobs")

    def has_run_permission(self, request: Any) -> bool:
        """Check whether the user may run jobs."""
        return bool(request.user.has_perm("pgsched.run_job"))

    def has_pause_permission(self, request: Any) -> bool:
        """Check whether the user may pause and resume jobs."""
        return bool(request.user.has_perm("pgsched.pause_job"))

    @admin.display(description="args")
    def arguments(self, job: Any) -> str:
        """Return the arguments as a short text."""
        text = json.dumps(job.args, ensure_ascii=False)
        return text if len(text) <= 80 else f"{text[:79]}…"

    @admin.action(description="Run the selected jobs now", permissions=["run"])
    def run_now(self, request: Any, queryset: Any) -> None:
        """Make a run of each job now, beside its schedule."""
        self.change_each(request, queryset, "run now", lambda conn, job: job_changes.run(conn, job.name))

    @admin.action(description="Pause the selected jobs", permissions=["pause"])
    def pause_jobs(self, request: Any, queryset: Any) -> None:
        """Stop the schedules of jobs."""
        user = str(request.user.get_username())
        self.change_each(
            request, queryset, "paused", lambda conn, job: job_changes.pause(conn, job.name, "in the admin", user)
        )

    @admin.action(description="Resume the selected jobs", permissions=["pause"])
    def resume_jobs(self, request: Any, queryset: Any) -> None:
        """Start the schedules of jobs again; slots of the pause are skipped."""
        self.change_each(request, queryset, "resumed", lambda conn, job: job_changes.resume(conn, job.name))


def use_case_of_row(use_case: Callable[[Any, Any], object], row: Any, conn: Any) -> bool:
    """Call a use case of one row; return that it was done."""
    use_case(conn, row)
    return True


def act_for(user: str, use_case: Callable[[Any], T]) -> T:
    """Call a use case on Django's connection, in its transaction, and name the user in the audit.

    Raises what the use case raises; errors of the database as those of `django.db`.
    """
    connection = connections[database_alias()]

    def named(conn: Any) -> T:
        conn.acting_for = user
        try:
            return use_case(conn)
        finally:
            conn.acting_for = None

    with connection.wrap_database_errors:
        return call_on(connection, named)
