"""What the pages about moving from other schedulers need: their tables and files."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

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


PG_CRON_LOG = """
CREATE TABLE cron.job_run_details (jobid bigint, start_time timestamptz);
CREATE FUNCTION cron.alter_job(job_id bigint, active boolean) RETURNS void LANGUAGE sql AS
    'UPDATE cron.job SET active = alter_job.active WHERE jobid = job_id';
"""


def old_logs() -> dict[str, str]:
    """Return what cron, systemd, Celery and Kubernetes have logged in a week with a change of the clocks in Berlin."""
    first = datetime(2026, 3, 24, tzinfo=UTC)
    hours = [first + timedelta(hours=n) for n in range(7 * 24)]
    cron = [(hour + timedelta(minutes=17), "root", "cd / && run-parts --report /etc/cron.hourly") for hour in hours]
    cron += [
        (hour + timedelta(minutes=minute), "root", "[ -x /usr/lib/php/sessionclean ] && /usr/lib/php/sessionclean")
        for hour in hours
        for minute in (9, 39)
    ]
    munin = "test -x /usr/bin/munin-cron && /usr/bin/munin-cron"
    cron += [(hour + timedelta(minutes=30), "munin", munin) for hour in hours if hour.hour == 7]
    log = [f"{at.isoformat()} web1 CRON[7]: ({user}) CMD ({command})\n" for at, user, command in sorted(cron)]
    timers = [("logrotate", hour + timedelta(minutes=11)) for hour in hours if hour.hour == 0]
    timers += [("fstrim", datetime(2026, 3, 30, 3, 10, 2, tzinfo=UTC))]
    in_berlin = [(hour, hour.astimezone(ZoneInfo("Europe/Berlin")).hour) for hour in hours]
    beat = [
        f"[{hour:%Y-%m-%d %H:%M:%S},005: INFO/MainProcess] Scheduler: Sending due task nightly-report (shop.report)\n"
        for hour, local in in_berlin
        if local == 3
    ]
    jobs = [
        {"kind": "Job", "metadata": {"name": f"reindex-{n}", "namespace": "shop", "uid": str(n),
         "ownerReferences": [{"kind": "CronJob", "name": "reindex"}],
         "annotations": {"batch.kubernetes.io/cronjob-scheduled-timestamp": hour.isoformat()}},
         "status": {"startTime": f"{hour + timedelta(seconds=3):%Y-%m-%dT%H:%M:%SZ}"}}
        for n, (hour, local) in enumerate(in_berlin) if local % 6 == 0
    ]  # fmt: skip
    return {
        "cron.log": "".join(log),
        "jobs.json": json.dumps({"kind": "List", "items": jobs}),
        "timers.csv": "".join(f"{who},{at.isoformat()}\n" for who, at in sorted(timers)),
        "beat.log": f"beat v5.6 is starting.\n{''.join(beat)}",
    }


OLD_LOGS = old_logs()


def job_stores(play: Play) -> dict[str, Any]:
    """Write a job store of APScheduler with one job, as a file of SQLite and as a table, and a line of its log."""
    job = dump(job_state())
    (play.folder / "app.log").write_text(
        "INFO:apscheduler.executors.default:Running job \"nightly (trigger: cron[hour='9'], next run at: 2026-06-02"
        ' 09:00:00 CEST)" (scheduled at 2026-06-01 09:00:00+02:00)\n'
    )
    write_store(play.folder / "jobs.sqlite", [("nightly", job)])
    play.db.execute("CREATE TABLE apscheduler_jobs (id text, next_run_time float, job_state bytea)")
    play.db.execute("INSERT INTO apscheduler_jobs VALUES ('nightly', 0, %s)", [job])
    return {}
