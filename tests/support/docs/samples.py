"""What pages read: the calendar of a company, the jobs of pg_cron, and logs of other schedulers."""

from __future__ import annotations

import json

COMPANY = """BEGIN:VCALENDAR
BEGIN:VEVENT
DTSTART;VALUE=DATE:20271227
DTEND;VALUE=DATE:20271231
SUMMARY:Works holidays
END:VEVENT
BEGIN:VEVENT
DTSTART;TZID=Europe/Berlin:20271223T140000
DTEND;TZID=Europe/Berlin:20271223T180000
RRULE:FREQ=YEARLY
SUMMARY:Party
END:VEVENT
END:VCALENDAR
"""
PG_CRON = """
CREATE SCHEMA cron;
CREATE TABLE cron.job (
    jobid bigint, schedule text, command text, database text, username text, active boolean, jobname text);
CREATE FUNCTION cron.unschedule(bigint) RETURNS boolean LANGUAGE sql AS
    'DELETE FROM cron.job WHERE jobid = $1 RETURNING true';
CREATE FUNCTION cron.schedule(text, text, text) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint';
INSERT INTO cron.job SELECT n, s, c, current_database(), current_user, a, j FROM (VALUES
    (1, '0 12 $ * *', 'DELETE FROM t WHERE n % 2 = 0', true, 'monthly'), (2, '30 seconds', 'SELECT 1', true, NULL),
    (3, '0 3 * * *', 'vacuum', true, 'clean'), (4, '@hourly', 'SELECT 2', false, 'off')) AS v (n, s, c, a, j)
"""


def cron_log() -> str:
    """Return a log of cron from the days of a clock change in Berlin."""
    orders = ((26, (23,)), (27, (5, 11, 17, 23)), (28, (5, 11, 17, 23)), (29, (4, 10, 16, 22)))
    starts = [(f"{day}T{hour:02}:00:02", "sync-orders --since 10m") for day, hours in orders for hour in hours]
    starts += [
        (at, "pg_dump -Fc shop -f /srv/shop.dump")
        for at in ("27T01:30:01", "28T01:30:01", "29T01:00:01", "30T00:30:01")
    ]
    starts += [("26T22:00:00", "cd / && run-parts --report /etc/cron.hourly")]
    lines = [f"2026-03-{at}+00:00 db CRON[7]: (shop) CMD ({command})\n" for at, command in sorted(starts)]
    return "".join(lines) + "2026-03-30T01:00:00+00:00 db kernel: still here\n"


def kubernetes_jobs() -> str:
    """Return a listing of three Jobs that a CronJob made."""
    planned = "batch.kubernetes.io/cronjob-scheduled-timestamp"
    items = [
        {"kind": "Job", "metadata": {"name": f"orders-{n}", "namespace": "shop", "uid": str(n),
         "ownerReferences": [{"kind": "CronJob", "name": "orders"}],
         "annotations": {planned: f"2026-03-27T{hour:02}:00:00+01:00"}},
         "status": {"startTime": f"2026-03-27T{hour - 1:02}:00:03Z"}} for n, hour in enumerate((6, 12, 18))
    ]  # fmt: skip
    return json.dumps({"kind": "List", "items": items})


RUNS_CSV = "name,started_at\ndump,2026-03-27T01:30:01Z\ndump,2026-03-28T01:30:01Z\n"
SHADOW = {"cron.log": cron_log(), "runs.csv": RUNS_CSV, "jobs.json": kubernetes_jobs()}
