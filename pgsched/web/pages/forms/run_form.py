"""The form that runs a task, or a job with other arguments: its fields are the arguments of the task."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

from pgsched.app.options import Options
from pgsched.core import policies
from pgsched.core.input_values import json_arguments, parse_duration
from pgsched.core.model import Kind, Row
from pgsched.core.payload import json_value
from pgsched.db.connection.connect import Connection
from pgsched.db.queries.jobs import jobs
from pgsched.db.queries.runs import tasks
from pgsched.errors import InputError
from pgsched.services.jobs import job_changes
from pgsched.services.runs import enqueueing
from pgsched.web.pages.forms.argument_fields import (
    PREFIX,
    ArgumentField,
    argument_fields,
    can_show_arguments,
    read_arguments,
    texts_of_arguments,
)
from pgsched.web.pages.responses import Redirect, View, field_integer, field_text

OPTIONS = ("queue", "priority", "delay", "unique_key")


@dataclass(frozen=True, slots=True)
class Form:
    """What the form is about, and its fields.

    `job`: the job that is run; None: a task alone.
    `fields`: None: the arguments are one text of JSON.
    `texts`: the texts of all fields.
    """

    task: str | None
    job: Row | None
    fields: list[ArgumentField] | None
    texts: Mapping[str, str]

    def view(self, conn: Connection[Any], problem: InputError | None = None) -> View:
        """Return the page; with a problem, beside the field that it is about."""
        about = (problem.field or "") if problem is not None else ""
        wrong = about.removeprefix("args.").partition(".")[0].partition("[")[0] if about.startswith("args.") else about
        known = {field.name for field in self.fields or ()}
        values = {
            "task": self.task, "job": self.job, "fields": self.fields, "texts": self.texts,
            "names": [] if self.task else tasks.list_names(conn), "overlaps": policies.OVERLAP,
            "problem": None if problem is None else str(problem), "wrong": wrong,
            "wrong_argument": wrong if about.startswith("args.") and wrong in known else None,
            "note": enqueueing.note_unknown_task(conn, self.task) if self.task and not self.job else None,
        }  # fmt: skip
        return View("run_form.html", values, 200 if problem is None else 422)

    def arguments(self) -> Any:
        """Return the arguments that the form gives. Raises InputError."""
        if self.fields is None:
            text = self.texts.get("args", "").strip()
            return json_arguments(text) if text else {}
        return read_arguments(self.fields, self.texts)


def make_form(request: Request, conn: Connection[Any], task: str | None, job: Row | None, args: Any) -> Form:
    """Return the form for a task: as it was sent, else with these arguments."""
    schema = tasks.find_schema(conn, task) if task is not None else None
    as_json = field_text(request, "as") == "json"
    fields = None if as_json or not fits_a_form(args) else argument_fields(schema)
    form: dict[str, list[str]] = request.state.form
    if fields is not None and not form and not can_show_arguments(fields, args or {}):
        fields = None
    if form:
        texts = {name: values[-1].replace("\r\n", "\n") for name, values in form.items()}
    else:
        shown = "" if not args else json.dumps(args, indent=2, ensure_ascii=False, default=json_value)
        texts = {"args": shown, **(texts_of_arguments(fields, args) if fields is not None else {})}
    return Form(task, job, fields, {name: texts.get(name, "") for name in names_of(fields, texts)})


def names_of(fields: list[ArgumentField] | None, texts: Mapping[str, str]) -> set[str]:
    """Return the names of the form's fields, whether or not a browser has sent them."""
    arguments = {field.key for field in fields or ()}
    return {"args", "overlap", *OPTIONS, *arguments, *(name for name in texts if name.startswith(PREFIX))}


def fits_a_form(args: Any) -> bool:
    """Check whether arguments have names, as the fields of a form do."""
    return not args or isinstance(args, dict)


# ---- a run of a task


def new(request: Request, conn: Connection[Any]) -> View:
    """Return the form for the task in the URL; without one, the choice of a task."""
    return make_form(request, conn, field_text(request, "task"), None, {}).view(conn)


def create(request: Request, conn: Connection[Any]) -> View | Redirect:
    """Make the run."""
    form = make_form(request, conn, field_text(request, "task"), None, {})
    try:
        if form.task is None:
            raise InputError("task: name the task", "task")
        delay = field_text(request, "delay")
        options = Options(
            queue=field_text(request, "queue"),
            priority=field_integer(request, "priority"),
            delay=None if delay is None else parse_duration("delay", delay),
            unique_key=field_text(request, "unique_key"),
        )
        run = enqueueing.enqueue_by_name(conn, form.task, form.arguments(), options)
    except InputError as problem:
        return form.view(conn, problem)
    message = f"Run {run} of {form.task} was made." if run.created else f"Run {run} has that key already."
    return Redirect(f"/runs/{run}", message)


# ---- a run of a job


def ask_job(request: Request, conn: Connection[Any]) -> View:
    """Return the form for a job, with its own arguments."""
    return job_form(request, conn).view(conn)


def job_form(request: Request, conn: Connection[Any]) -> Form:
    """Return the form for the job in the path."""
    job = jobs.show_job(conn, request.path_params["name"])
    return make_form(request, conn, job["task"] if job["kind"] == Kind.TASK else None, job, job["args"])


def run(request: Request, conn: Connection[Any]) -> View | Redirect:
    """Run the job now: with its own arguments, or with those of the form."""
    name = request.path_params["name"]
    if set(request.state.form) <= {"csrf"}:  # the button
        run_id = job_changes.run(conn, name)
        return Redirect(f"/runs/{run_id}", f"Run {run_id} of {name} was made.")
    form = job_form(request, conn)
    try:
        args = form.arguments() if form.fields is not None or form.texts["args"].strip() else None
        if args is not None and form.task is not None:
            enqueueing.check_arguments(conn, form.task, args)
        run_id = job_changes.run(conn, name, args, field_text(request, "overlap") or "allow")
    except InputError as problem:
        return form.view(conn, problem)
    return Redirect(f"/runs/{run_id}", f"Run {run_id} of {name} was made.")
