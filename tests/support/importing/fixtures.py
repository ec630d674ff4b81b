"""Jobs of each source in the manner of real ones: files in tests/unit/importers/samples, entries and rows here."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pgsched.importers.apscheduler import jobs as apscheduler
from pgsched.importers.celery.crontabs import read_crontab
from pgsched.importers.celery.entries import Entry, Interval, Settings, Solar, import_entries
from pgsched.importers.imported import Imported, merge_imported
from pgsched.importers.kubernetes.cronjobs import ManifestOptions
from pgsched.importers.pg_cron import jobs as pg_cron
from pgsched.importers.systemd.timers import TimerOptions
from pgsched.services.importing.crontabs import CrontabSource, read_crontabs
from pgsched.services.importing.manifests import read_manifests
from pgsched.services.importing.units import read_timers
from tests.support.importing.slots import NOW
from tests.support.importing.stores import Pickled, cron_trigger, dump, interval, job_state, moment, number, zone
from tests.support.paths import ROOT

SAMPLES = ROOT / "tests" / "unit" / "importers" / "samples"
SOURCES = ("crontab", "systemd", "kubernetes", "pg_cron", "celery", "apscheduler")


def cron_job(schedule: str = "0 3 * * *", command: str = "SELECT 1", **changed: Any) -> pg_cron.Row:
    """Return a row of cron.job."""
    return pg_cron.Row(
        **{"jobid": 7, "schedule": schedule, "command": command, "database": "shop", "username": "app", **changed}
    )


CRON_JOBS = [
    cron_job("30 3 * * 6", "DELETE FROM events WHERE at < now() - interval '1 week'"),
    cron_job("0 10 * * *", "SELECT refresh()"),
    cron_job("30 seconds", "SELECT 1"),
    cron_job("5 seconds", "SELECT process_updates()"),
    cron_job("0 12 $ * *", "SELECT payroll()"),
    cron_job("*/5 * * * *", "SELECT poll()"),
    cron_job("0 * * * *", "SELECT hourly()"),
    cron_job("0 0 * * 1-5", "SELECT a()"),
    cron_job("0 1 * * 0", "SELECT b()"),
    cron_job("0 13 2 6 *", "SELECT c()"),
    cron_job("@daily", "SELECT d()"),
    cron_job("@hourly", "SELECT e()"),
    cron_job("@weekly", "SELECT f()"),
    cron_job("@monthly", "SELECT g()"),
    cron_job("*/15 8-18 * * mon-fri", "SELECT h()"),
    cron_job("15 4 1 */3 *", "SELECT i()"),
    cron_job("0 0 1,15 * 5", "SELECT j()"),
    cron_job("0 5 * * *", "REFRESH MATERIALIZED VIEW v"),
    cron_job("0 5 * * *", "SELECT k()", active=False),
    cron_job("0 4 * * *", "SELECT l()", database="warehouse"),
    cron_job("59 23 * * *", "SELECT m()"),
    cron_job("0 2 * * *", "VACUUM orders"),
]
ENTRIES: list[Entry] = [
    *(Entry(f"hourly {n}", "a", read_crontab(str(n), "*", "*", "*", "*"), "e") for n in (0, 15, 30)),
    *(Entry(f"daily {n}", "a", read_crontab("0", str(n), "*", "*", "*"), "e") for n in (0, 2, 4, 6, 12, 23)),
    *(Entry(f"every {n}", "a", Interval(timedelta(seconds=n)), "e") for n in (1, 10, 30, 60, 300, 3600)),
    Entry("weekday mornings", "a", read_crontab("30", "7", "1", "*", "*"), "e", args=(16, 16)),
    Entry("every third hour", "a", read_crontab("0", "*/3", "*", "*", "*"), "e", options={"queue": "q"}),
    Entry("office", "a", read_crontab("0", "*/3,8-17", "mon-fri", "*", "*"), "e"),
    Entry("first monday", "a", read_crontab("0", "6", "mon", "1-7", "*"), "e"),
    Entry("third friday", "a", read_crontab("0", "6", "fri", "15-21", "*"), "e", options={"expires": 3600}),
    Entry("quarter", "a", read_crontab("0", "0", "*", "1", "*/3"), "e", kwargs={"months": 3}),
    Entry("sunset", "a", Solar("sunset"), "e"),
    Entry("ten minutes on thursdays", "a", read_crontab("*/10", "3,17,22", "thu,fri", "*", "*"), "e"),
]  # fmt: skip


def stored(**changed: Any) -> dict[str, Any]:
    """Return the state of a job whose next run has passed: its scheduler is down."""
    return job_state(**{"next_run_time": moment(2026, 6, 1, 0), **changed})


STATES = [
    *(stored(id=f"daily {hour}", trigger=cron_trigger(zone("Europe/Berlin"), hour=[number(hour)], minute=[number(0)],
                                                         second=[number(0)])) for hour in (0, 1, 4, 6, 9, 12, 18, 22)),
    *(stored(id=f"every {seconds}", trigger=interval(seconds)) for seconds in (5, 30, 60, 300, 3600, 86_400)),
    stored(id="weekdays", trigger=cron_trigger(zone("UTC"), day_of_week=[number(0, 4)], hour=[number(3)],
                                                  minute=[number(30)], second=[number(0)])),
    stored(id="first", trigger=cron_trigger(zone("UTC"), day=[number(1)], hour=[number(3)], minute=[number(0)],
                                               second=[number(0)])),
    stored(id="once", trigger=Pickled("apscheduler.triggers.date.DateTrigger",
                                         {"version": 1, "run_date": moment(2030, 1, 1, 9)}),
           next_run_time=moment(2030, 1, 1, 9)),
    stored(id="paused", next_run_time=None),
    stored(id="night", trigger=cron_trigger(zone("Europe/Berlin"), hour=[number(2)], minute=[number(30)],
                                               second=[number(0)])),
    stored(id="many", trigger=interval(60), max_instances=1, coalesce=False, misfire_grace_time=None),
]  # fmt: skip


def import_fixtures(source: str, timezone: str = "Europe/Berlin") -> Imported:
    """Return the jobs of all fixtures of a source. `timezone`: of the machine or server."""
    match source:
        case "crontab":
            users = [read_crontabs(CrontabSource(str(path), timezone, NOW)) for path in sorted(SAMPLES.glob("users/*"))]
            return merge_imported([read_crontabs(CrontabSource(str(SAMPLES / "cron.d"), timezone, NOW)), *users])
        case "systemd":
            return read_timers([str(SAMPLES / "units")], TimerOptions(timezone, NOW))
        case "kubernetes":
            return read_manifests([str(SAMPLES / "charts")], ManifestOptions(NOW, timezone))
        case "pg_cron":
            return pg_cron.import_rows(CRON_JOBS, pg_cron.Settings("shop", timezone), NOW)
        case "celery":
            return import_entries(ENTRIES, Settings(), NOW)
        case _:
            return apscheduler.import_rows([apscheduler.Row(state["id"], dump(state)) for state in STATES], NOW)
