"""What the pages about moving from other schedulers need: their tables and files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.support.importing.django_tables import create_statements
from tests.support.importing.stores import dump, job_state, write_store

if TYPE_CHECKING:
    from tests.support.docs.playing import Play

BEAT_TABLES = ";\n".join(
    [
        *create_statements({"enabled": "boolean", "expire_seconds": "integer", "one_off": "boolean"}),
        "ALTER TABLE django_celery_beat_periodictask ALTER id SET NOT NULL, ALTER id ADD GENERATED ALWAYS AS IDENTITY",
        "INSERT INTO django_celery_beat_crontabschedule VALUES (1, '0', '3', '*', '*', '*', 'Europe/Berlin')",
    ]
)
ONE_PG_CRON_JOB = """
CREATE SCHEMA cron;
CREATE TABLE cron.job (
    jobid bigint, schedule text, command text, nodename text, database text, username text, active boolean, jobname text
);
INSERT INTO cron.job
VALUES (1, '30 3 * * 6', 'SELECT purge_events()', 'localhost', current_database(), current_user, true, 'purge');
"""


def job_stores(play: Play) -> dict[str, Any]:
    """Write a job store of APScheduler with one job, as a file of SQLite and as a table."""
    job = dump(job_state())
    write_store(play.folder / "jobs.sqlite", [("nightly", job)])
    play.db.execute("CREATE TABLE apscheduler_jobs (id text, next_run_time float, job_state bytea)")
    play.db.execute("INSERT INTO apscheduler_jobs VALUES ('nightly', 0, %s)", [job])
    return {}
