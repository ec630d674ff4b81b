"""What holds for each source: almost all jobs are exact, and `pgsched plan` reads what an import prints."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.jobs_file.model.columns import What
from pgsched.core.jobs_file.model.entries import Entry as FileEntry
from pgsched.core.jobs_file.model.loading import load
from pgsched.core.jobs_file.model.spans import Span
from pgsched.core.jobs_file.model.types import JsonValue
from pgsched.core.jobs_file.texts.reading import read_document
from pgsched.importers.apscheduler import jobs as apscheduler
from pgsched.importers.celery.entries import Entry, Interval, Settings, import_entries
from pgsched.importers.crontab.importing import CrontabOptions, import_crontab
from pgsched.importers.imported import Imported, Reason
from pgsched.importers.jobs_text import write_jobs_file
from pgsched.importers.kubernetes.cronjobs import ManifestOptions, import_cronjobs
from pgsched.importers.pg_cron import jobs as pg_cron
from pgsched.importers.systemd.timers import TimerOptions, import_timers
from pgsched.importers.systemd.units import UnitFiles
from tests.support.importing.fixtures import SOURCES, cron_job, import_fixtures
from tests.support.importing.slots import NOW
from tests.support.importing.stores import dump, job_state


def read_back(imported: Imported, mode: str | None = None) -> dict[str, FileEntry]:
    """Return the jobs that a plan reads in what an import prints, by name."""
    text = write_jobs_file(imported, title="From a test.", mode=mode)
    return {entry.name: entry for entry in load(read_document("jobs.yaml", text.encode())).entries.values()}


def plain(value: Any) -> Any:
    """Return a value of the file's model as an importer has it."""
    if isinstance(value, Span):
        return value.delta
    if isinstance(value, JsonValue):
        return value.value
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("source", SOURCES)
def test_at_least_nineteen_of_twenty_carry_over_exactly(source: str) -> None:
    found = import_fixtures(source, "UTC" if source == "systemd" else "Europe/Berlin")
    exact, lines = sum(job.exact for job in found.jobs), len(found.jobs) + len(found.omitted)
    assert lines >= 20
    assert exact / lines >= 0.95, [job for job in found.jobs if not job.exact]
    inexact = [remark for remark in found.all_remarks() if not remark.reason.informs]
    assert all(remark.text for remark in inexact)


@pytest.mark.parametrize("mode", [None, "shadow"])
@pytest.mark.parametrize("source", SOURCES)
def test_a_plan_reads_the_columns_that_an_import_prints(source: str, mode: str | None) -> None:
    found = import_fixtures(source)
    entries = read_back(found, mode)
    assert [*entries] == [job.name for job in found.jobs]
    for job in found.jobs:
        entry = entries[job.name]
        assert entry.what is What.JOB
        kept_back = {"paused"} if mode is None or "paused" in job.columns else {"mode"}
        assert entry.given == {*job.columns, *kept_back}
        assert {name: plain(entry.values[name]) for name in job.columns} == job.columns
        assert entry.values["paused"] is True or entry.values["mode"] == "shadow"


NASTY = ("", " ", " a ", "a\nb", "\0", "\x1b[2J", "yes", "22:00", "1e3", "<<", "a: b", "# a", "é", "\ud800", "a" * 2000,
         "\u202e" * 300, "{slot:%Y}", "'", '"', "- a", "- a\n  b", "\t", "\x85", "\ufeff")  # fmt: skip
texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=30))
arguments = st.dictionaries(texts, st.one_of(texts, st.integers(), st.lists(texts, max_size=3), st.none()), max_size=3)


def manifest(name: str, command: list[str], env: str) -> str:
    container = {"name": "a", "image": name, "command": command, "env": [{"name": env, "value": name}]}
    spec = {"schedule": "0 6 * * *", "jobTemplate": {"spec": {"template": {"spec": {"containers": [container]}}}}}
    return json.dumps({"kind": "CronJob", "metadata": {"name": name}, "spec": spec})


def import_nasty(source: str, one: str, other: str, values: dict[str, Any]) -> Imported:
    """Import two jobs of a source that have these texts wherever there is a text."""
    match source:
        case "crontab":
            return import_crontab(f"{one}={other}\n1 1 * * * {other}\n1 1 * * * {one}\n", CrontabOptions("UTC", NOW))
        case "systemd":
            service = (
                f"[Unit]\nDescription={other}\n[Service]\nUser={other}\nEnvironment={one}\nExecStart=/bin/x {one}\n"
            )
            files = {"a.timer": "[Timer]\nOnCalendar=daily\n", "a.service": service}
            return import_timers(UnitFiles(files), TimerOptions("UTC", NOW))
        case "kubernetes":
            return import_cronjobs("\n---\n".join([manifest(one, [other, one], other)] * 2), ManifestOptions(NOW))
        case "pg_cron":
            row = cron_job(command=other, jobname=one, database=other, username=one)
            return pg_cron.import_rows([row, row], pg_cron.Settings("shop"), NOW)
        case "celery":
            entry = Entry(one, other, Interval(timedelta(seconds=9)), one, kwargs=values, options={"queue": other},
                          description=one)  # fmt: skip
            return import_entries([entry, entry], Settings(), NOW)
        case _:
            state = job_state(id=one, func=other, name=other, kwargs=values, executor=one)
            return apscheduler.import_states([(one, state_of(state))] * 2, [], NOW)


def state_of(state: dict[str, Any]) -> Any:
    """Return a state whose trigger has been read from a pickle."""
    from pgsched.importers.apscheduler.pickles import read_pickle

    return state | {"trigger": read_pickle(dump(state["trigger"])), "next_run_time": 1}


@pytest.mark.few(4)
@pytest.mark.parametrize("source", SOURCES)
@settings(deadline=None, max_examples=60)
@given(one=texts, other=texts, values=arguments)
def test_whatever_the_texts_of_a_source_are_a_plan_reads_the_file(
    source: str, one: str, other: str, values: dict[str, Any]
) -> None:
    found = import_nasty(source, one, other, values)
    assert [*read_back(found)] == [job.name for job in found.jobs]


def test_a_value_that_no_job_can_have_is_named() -> None:
    interval = Interval(timedelta(seconds=9))
    entries = [
        Entry("long", "a", interval, "entry long", options={"expires": 400_000_000}),
        Entry("task", "a" * 70_000, interval, "entry task"),
        Entry("late", "a", interval, "entry late", ends_at=NOW.replace(year=9900)),
    ]
    found = import_entries(entries, Settings(), NOW)
    assert [job.name for job in found.jobs] == ["long"]
    assert [(one.where, one.remark.reason) for one in found.omitted] == [
        ("entry task", Reason.REFUSED), ("entry late", Reason.REFUSED),
    ]  # fmt: skip
    assert found.omitted[0].remark.text == "task: 70000 characters, at most 65536 are allowed"


def test_names_that_are_too_long_or_given_twice_stay_different() -> None:
    rows = [cron_job(jobname="a" * 300 + mark, jobid=n) for n, mark in enumerate(("", "", "b"), 1)]
    found = pg_cron.import_rows(rows, pg_cron.Settings("shop"), NOW)
    assert len({job.name for job in found.jobs}) == len(found.jobs) == 3
    assert all(len(job.name) <= 200 for job in found.jobs)
