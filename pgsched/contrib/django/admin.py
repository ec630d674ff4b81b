"""Runs and jobs in Django's admin: look, retry, cancel, run now, pause and resume.

Invariant: only those who have the permission see an action, and can do it: `pgsched.retry_run` and so on. A change is
in Django's log of the admin, and in pgsched's audit with the user's name.

The audit believes the name from the owner of pgsched's tables and from members of `pgsched_console`; otherwise it has
only the login.

Source: "Admin actions" in docs.djangoproject.com/en/stable/ref/contrib/admin/actions/.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from django.contrib import admin, messages
from django.contrib.admin.models import CHANGE, LogEntry
from django.core.paginator import Paginator
from django.db import connections
from django.db.models import Q
from django.utils.functional import cached_property

from pgsched.contrib.django.choices import database_alias
from pgsched.contrib.django.models import Job, Run
from pgsched.db.callers.calls import call_on
from pgsched.db.connection.failures import raise_explained
from pgsched.errors import PgschedError
from pgsched.services.jobs import job_changes
from pgsched.services.runs import changes

T = TypeVar("T")
MOST_COUNTED = 10_000
MOST_CHANGED = 1_000  # jobs that one action changes, each in a transaction
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

    def get_search_results(self, request: Any, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Return the rows of this search: the whole text, also one with spaces, and in the case that is written."""
        text = search_term.strip()
        return (queryset.filter(self.matches(text)) if text else queryset), False

    def matches(self, text: str) -> Q:
        """Return the condition of a search."""
        raise NotImplementedError

    def change_each(self, request: Any, queryset: Any, verb: str, use_case: Callable[[Any, Any], object]) -> None:
        """Change rows one by one, each in a transaction; say how many were changed, and log them."""
        rows = [*queryset.only("id", "name")[: MOST_CHANGED + 1]]
        if len(rows) > MOST_CHANGED:
            text = f"more than {MOST_CHANGED:,} are selected: narrow them, or use `manage.py pgsched`"
            self.message_user(request, text, messages.ERROR)
            return
        done, refusals = [], Counter[str]()
        for row in rows:
            try:
                act_for(request.user, partial(use_case, row))
                done.append(row)
            except PgschedError as error:
                refusals[str(error)] += 1
        self.log_rows(request, done, verb)
        if done:
            self.message_user(request, f"{verb}: {len(done)} of {len(rows)}", messages.SUCCESS)
        for text, _ in refusals.most_common(MOST_REASONS):
            self.message_user(request, text, messages.ERROR)

    def log_rows(self, request: Any, rows: Any, verb: str) -> None:
        """Write the change of these rows into Django's log of the admin."""
        LogEntry.objects.log_actions(request.user.pk, rows, CHANGE, f"{verb} in the admin")


@admin.register(Run)
class RunAdmin(ReadOnlyAdmin):
    """Runs, the newest first."""

    list_display = ("id", "state", "task", "queue", "job", "attempts", "created_at", "started_at", "finished_at", "why")
    list_filter = ("state", "kind")
    list_select_related = ("job",)
    list_per_page = 50
    ordering = ("-id",)
    search_fields = ("id",)  # see `matches`
    search_help_text = "The number of a run, or the whole name of a task, a queue or a job"
    actions = ("retry_runs", "cancel_runs")

    def get_queryset(self, request: Any) -> Any:
        """Return all runs, without the large columns, which the list does not show."""
        return super().get_queryset(request).defer("args", "result", "progress")

    def matches(self, text: str) -> Q:
        """Return the condition of a search: a number is that of a run."""
        if text.isascii() and text.isdigit() and len(text) < 20:
            return Q(id=int(text))
        jobs = [*Job.objects.filter(name=text).values_list("id", flat=True)]
        return Q(task=text) | Q(queue=text) | Q(job_id__in=jobs)

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
        try:
            done = act_for(
                request.user,
                lambda conn: changes.change(conn, changes.choose(conn, verb, ids, most=changes.MOST), reason=reason),
            )
        except PgschedError as error:
            self.message_user(request, str(error), messages.ERROR)
            return
        changed = [row["id"] for row in done.rows if row["skipped"] is None]
        self.log_rows(request, queryset.model.objects.filter(id__in=changed).only("id", "task"), verb.participle)
        if done.count:
            self.message_user(request, f"{verb.participle}: {done.words}", messages.SUCCESS)
        for why, which in done.reasons[:MOST_REASONS]:
            runs = ", ".join(map(str, which[:10])) + (", …" if len(which) > 10 else "")
            self.message_user(request, f"left alone: {why} ({runs})", messages.WARNING)


@admin.register(Job)
class JobAdmin(ReadOnlyAdmin):
    """Jobs by name."""

    list_display = ("name", "task", "schedule", "timezone", "next_run_at", "mode", "paused", "arguments", "error")
    list_filter = ("paused", "mode", "kind")
    ordering = ("name",)
    search_fields = ("name",)  # see `matches`
    search_help_text = "The beginning of a job's name, or the whole name of a task"
    actions = ("run_now", "pause_jobs", "resume_jobs")

    def matches(self, text: str) -> Q:
        """Return the condition of a search."""
        return Q(name__startswith=text) | Q(task=text)

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
        self.change_each(request, queryset, "run now", lambda job, conn: job_changes.run(conn, job.name))

    @admin.action(description="Pause the selected jobs", permissions=["pause"])
    def pause_jobs(self, request: Any, queryset: Any) -> None:
        """Stop the schedules of jobs."""
        user = str(request.user.get_username())
        self.change_each(
            request, queryset, "paused", lambda job, conn: job_changes.pause(conn, job.name, "in the admin", user)
        )

    @admin.action(description="Resume the selected jobs", permissions=["pause"])
    def resume_jobs(self, request: Any, queryset: Any) -> None:
        """Start the schedules of jobs again; slots of the pause are skipped."""
        self.change_each(request, queryset, "resumed", lambda job, conn: job_changes.resume(conn, job.name))


def act_for(user: Any, use_case: Callable[[Any], T]) -> T:
    """Call a use case on Django's connection, in its transaction, and name the user in the audit.

    Raises PgschedError, also for what the database refuses: the login may lack a grant.
    """
    connection = connections[database_alias()]

    def named(conn: Any) -> T:
        conn.acting_for = str(user.get_username())
        try:
            return use_case(conn)
        finally:
            conn.acting_for = None

    with raise_explained():
        return call_on(connection, named)
