"""The rule: functions, triggers and checks are what the revisions' texts say; where one is not, somebody made it so."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from pgsched.db.connection.connect import Connection
from pgsched.db.schema.downgrade import DROPPED, created, text_of
from pgsched.db.statements import folder

MADE = re.compile(
    r"^CREATE (?:OR REPLACE )?(?:CONSTRAINT )?TRIGGER (\w+)\s.*?\bON pgsched\.(\w+)", re.DOTALL | re.MULTILINE
)
GONE = re.compile(r"^DROP TRIGGER (?:IF EXISTS )?(\w+) ON pgsched\.(\w+)", re.MULTILINE)
FUNCTIONS = "SELECT proname::text, prosrc FROM pg_proc WHERE pronamespace = 'pgsched'::regnamespace AND prokind = 'f'"
TRIGGERS = """
SELECT g.tgname::text, c.relname::text FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid
WHERE c.relnamespace = 'pgsched'::regnamespace AND NOT g.tgisinternal
"""
NAMES = """
alert_deliveries_event_check alerts_kind_check attempts_outcome attempts_texts_size audit_what_check
backfills_max_active backfills_mode backfills_order backfills_priority backfills_slots backfills_texts_size
dependencies_check dependencies_on_failure_check dependencies_state_check job_calendars_dates job_calendars_order
jobs_args_size jobs_backoff jobs_backoff_jitter jobs_bookkeeping jobs_catch_up jobs_kind jobs_max_attempts
jobs_name_length jobs_one_kind_of_time jobs_overlap jobs_priority jobs_queue_length jobs_task_length jobs_texts_size
leader_texts_size limits_concurrency_check limits_name limits_rate limits_rate_burst_check limits_rate_check
limits_rate_period limits_weight_check passed_over_state_check pauses_all_has_no_name pauses_name_check
pauses_reason_check pauses_resume_at_check pauses_what_check queues_ageing_check queues_concurrency_limit_check
queues_max_depth_check queues_name queues_on_full_check queues_rate queues_rate_burst_check queues_rate_check
queues_rate_period retention_keep_audit_check retention_keep_hours_check retention_keep_minutes_check
retention_name_check rollup_mark_name_check rollups_width_check run_logs_chunk_size run_logs_stream
runs_result_size runs_state runs_texts_size workers_declares_size workers_texts_size
"""
CHECKS = frozenset(NAMES.split())
HELD = "SELECT conname::text FROM pg_constraint WHERE connamespace = 'pgsched'::regnamespace AND contype = 'c'"


@cache
def expected() -> tuple[dict[str, str], frozenset[tuple[str, str]]]:
    """The body of every function, and every trigger with its table, after all revisions."""
    bodies: dict[str, str] = {}
    triggers: set[tuple[str, str]] = set()
    for revision in sorted((folder("migrations")).glob("[0-9]*")):
        text = text_of(revision)
        for name in DROPPED.findall(text):
            bodies.pop(name, None)
        bodies |= {name: body.split("$$")[1] for name, body in created(text).items()}
        triggers -= set(GONE.findall(text))
        triggers |= {(found[1], found[2]) for found in MADE.finditer(text)}
    return bodies, frozenset(triggers)


def differences(conn: Connection[Any]) -> list[str]:
    """What is missing or another than the texts say, each as one phrase."""
    bodies, triggers = expected()
    there: dict[str, set[str]] = {}
    for name, body in conn.execute(FUNCTIONS).fetchall():
        there.setdefault(name, set()).add(body)
    found = [f"function {name} is missing" for name in sorted(bodies.keys() - there.keys())]
    found += [f"function {name} is another than expected" for name in sorted(bodies.keys() & there.keys())
              if bodies[name] not in there[name]]  # fmt: skip
    missing = triggers - set(conn.execute(TRIGGERS).fetchall())
    found += [
        f"check {name} is missing" for name in sorted(CHECKS - {name for (name,) in conn.execute(HELD).fetchall()})
    ]
    return found + [f"trigger {name} of {table} is missing" for name, table in sorted(missing)]
