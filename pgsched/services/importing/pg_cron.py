"""Read the jobs of pg_cron from its table, by a connection of the user's that writes nothing."""

from __future__ import annotations

from datetime import datetime

from pgsched.core.model import Row as TableRow
from pgsched.db.sources.tables import open_source, passes_row_security, read_settings, read_table
from pgsched.errors import InputError
from pgsched.importers.imported import Imported
from pgsched.importers.pg_cron.jobs import Row, Settings, import_rows

TABLE = "cron.job"
TIMEZONE, MATCH_BOTH, PORT = "cron.timezone", "cron.match_dom_and_dow", "port"


def read_pg_cron(dsn: str, now: datetime, *, timezone: str | None = None, database: str | None = None) -> Imported:
    """Return the jobs of pg_cron in a database.

    `timezone`: cron.timezone, where the role may not see it. `database`: where
    the SQL jobs of pgsched run; None for this one.
    Raises PgschedError.
    """
    with open_source(dsn) as conn:
        rows = read_table(conn, TABLE)
        settings = read_settings(conn, [TIMEZONE, MATCH_BOTH, PORT])
        sees_all = passes_row_security(conn)
        here = conn.info.dbname
    found = Settings(
        database=database or here,
        timezone=timezone or settings.get(TIMEZONE),
        match_both=settings.get(MATCH_BOTH) == "on",
        sees_all=sees_all,
        port=int(settings[PORT]) if settings.get(PORT, "").isdecimal() else None,
    )
    return import_rows(map(read_row, rows), found, now)


def read_row(row: TableRow) -> Row:
    """Return a row of cron.job; older versions lack `active` and `jobname`. Raises InputError for other tables."""
    try:
        return Row(
            jobid=int(row["jobid"]),
            schedule=str(row["schedule"]),
            command=str(row["command"]),
            database=str(row["database"]),
            username=str(row["username"]),
            nodename=str(row.get("nodename", "")),
            nodeport=row.get("nodeport"),
            active=bool(row.get("active", True)),
            jobname=row.get("jobname"),
        )
    except KeyError as error:
        raise InputError(f"{TABLE} has no column {error}: it is not pg_cron's", "source") from None
