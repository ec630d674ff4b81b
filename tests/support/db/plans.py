"""Which indexes each statement may use, and how a plan (EXPLAIN in JSON) reads big tables.

`leading` maps the name of each index to its first column.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Plan = dict[str, Any]

BIG = {"runs", "attempts", "jobs", "dependencies", "kept_keys", "run_logs", "rollups", "next_slots"}
READS_ALL = ("Seq Scan", "Bitmap Heap Scan")
GATHERS = ("Sort", "Incremental Sort", "Hash", "Materialize")
OF_A_BATCH = ("CTE Scan", "WorkTable Scan", "Function Scan", "Limit")
FINDS_FEW = re.compile(r"\w+_pkey|runs_open_of_job")
# Indexes in which few rows have equal first columns: an incremental sort over one holds only a few rows at a time.
FEW_ALIKE = {"runs_finished", "runs_own_keep"}
# The indexes that each statement uses, written as `indexes` writes them. `|` is "or". None: any index is right.
WORKER = {
    "claim": "runs_claim runs_pkey",
    "claim_start": "runs_claim runs_pkey",
    "claim_many": "runs_claim runs_pkey",
    "claim_unconfirmed": "runs_claim",
    "claim_lease_left": "runs_pkey",
    "claimable_queues": "runs_claim[] runs_claim",
    "newest_queues": "runs_pkey*",
    "heartbeat": "runs_pkey",
    "cancel_asked": "runs_pkey",
    "settle": "runs_pkey runs_open_of_job attempts_pkey",
    "settle_succeeded": "runs_pkey runs_open_of_job",
    "settle_lock": "runs_pkey",
    "settle_missing": "runs_pkey",
    "run_progress": "runs_pkey",
    "dependencies_parents": "dependencies_pkey runs_pkey",
    "trace_keep": "runs_pkey",
    "run_log_write": "runs_pkey run_logs_pkey attempts_pkey",
}
LEADER = {
    "leader_term": "",
    "leader_fence": "",
    "leader_look": "jobs_due[] runs_expiring[] runs_finished[] runs_held[] runs_ready* runs_scheduled[]"
    " runs_waiting[] runs_waiting*|runs_waiting_of_job*",
    "leader_look_below": "jobs_due[] runs_expiring[] runs_held[] runs_scheduled[]",
    "admit_scheduled": "runs_scheduled[] runs_pkey",
    "admit_waiting": "runs_waiting_of_job* runs_waiting_of_job[] runs_open_of_job runs_pkey"
    " runs_waiting[]|runs_waiting_of_job",
    "admit_dependents": "runs_pkey dependencies_unmet dependencies_any dependencies_parent",
    "dependencies_backward": "dependencies_backward[] dependencies_parent runs_pkey",
    "dependencies_begin": "runs_pkey",
    "dependencies_begin_again": "runs_waiting runs_pkey",
    "dependencies_above": "dependencies_pkey",
    "dependencies_complete": "runs_pkey",
    "dependencies_edges": "dependencies_pkey runs_pkey",
    "dependencies_end_circle": "runs_pkey dependencies_pkey",
    "dependencies_fresh": "runs_waiting",
    "dependencies_watch": "runs_pkey",
    "dependencies_look": "runs_waiting runs_ended_parents*",
    "dependencies_gone": "runs_waiting dependencies_pkey runs_pkey",
    "dependencies_slots": "runs_waiting runs_slot runs_slot|runs_open_of_job runs_pkey jobs_pkey",
    "dependencies_no_slot": "runs_pkey jobs_pkey",
    "dependencies_none": "runs_pkey",
    "runs_expire": "runs_expiring[] runs_held[] runs_pkey jobs_pkey",
    "lease_look": "runs_claim*",
    "reap": "runs_pkey attempts_pkey",
    "lease_shorten": "runs_pkey",
    "tick_crossed": "runs_open_of_job",
    "tick_due": "jobs_due[]",
    "tick_terms": "jobs_pkey",
    "tick_open": "runs_open_of_job",
    "tick_finished": "runs_slot",
    "tick_known": "runs_slot",
    "tick_extend": "runs_slot runs_pkey",
    "tick_insert": "jobs_pkey",
    "tick_advance": "jobs_pkey",
    "tick_again": "jobs_in_error* jobs_pkey",
    "tick_replace": "runs_open_of_job runs_pkey",
    "passed_over_take": "runs_slot",
    "limit_queues": "runs_claim",
    "limit_groups": "runs_ready* runs_ready[] runs_of_key runs_pkey jobs_pkey",
    "limit_open_keys": "runs_of_key runs_of_key* runs_of_key[] jobs_pkey",
    "limit_forget": "runs_claim runs_of_key jobs_pkey",
    "limit_candidates": "runs_ready runs_of_key",
    "limit_admit": "runs_pkey",
    "limit_raise": "runs_pkey",
    "limit_take_back": "runs_claim runs_of_key runs_pkey",
    "backfill_open": "runs_backfill jobs_pkey",
    "backfill_insert": "jobs_pkey",
    "backfill_rows": "runs_slot",
    "backfill_shifted_rows": "runs_slot",
    "calendars_times": "",
    "calendars_changed": "",
    "calendars_replan": "jobs_calendar jobs_pkey",
    "calendars_replanned": "",
    "rollup_look": "runs_finished[]",
    "rollup_reach": "runs_finished[]",
    "rollup": "runs_finished[]",
    "rollup_prune": "rollups_pkey",
    "prune_pick": "runs_finished[] runs_slot jobs_pkey",
    "prune_delete": "runs_pkey runs_waiting attempts_pkey run_logs_pkey dependencies_pkey dependencies_parent"
    " kept_keys_pkey kept_keys_met jobs_pkey",
    "prune_pick_own": "runs_own_keep* runs_slot jobs_pkey",
    "prune_keys": "kept_keys_expires_at[] runs_pkey",
    "prune_backfills": "runs_backfill",
    "prune_jobs": "jobs_done_once* runs_slot jobs_pkey",
    "declare_withdrawn": "jobs_declared",
    "declare_withdraw": "jobs_pkey|jobs_declared*",
    "plans_look": "jobs_pkey[]",
    "plans_again": "jobs_pkey",
    "lease_longest": "",
    "next_slots_keep": "jobs_pkey",
    "next_slots_page": "jobs_pkey[]",
    "next_slots_wanting": "jobs_pkey next_slots_pkey",
    "retention_rules": "jobs_keep*",
    "runs_needing_attention": None,
    "leader_newest_term": None,
    "slots_next": None,
    "runs_open_by_state": None,
    "workers_alive": None,
    "alert_look": "jobs_watched* jobs_pausing*",
    "alert_check": "jobs_watched[]|jobs_pkey[] jobs_pkey[] runs_slot runs_open_of_job runs_pkey attempts_pkey jobs_pkey"
    " rollups_of_job",
    "alert_dead_runs": "runs_dead_alone[]",
}
# Statements for which no run waits: a person, a page, a command or a start-up sends them. Each has its own name here:
# a prefix would also excuse a hot statement whose name begins so.
ASKED = (
    "backfill_jobs dependencies_left alert_defaults job_monitored"
    " alert_list alert_test audit_acting_for audit_list backfill_calendar backfill_cancel backfill_count"
    " backfill_rerun backfill_show calendar_add calendar_list calendar_remove calendars_add calendars_delete"
    " calendars_describe calendars_list calendars_make calendars_remove calendars_rows calendars_users"
    " catalog_aggregates catalog_comments"
    " catalog_functions catalog_grants catalog_indexes catalog_references catalog_sequences catalog_tables"
    " catalog_triggers catalog_views check_fleet check_grants check_roles check_server declare_defaults declare_holder"
    " declare_lock declare_lock_shared declare_others declare_removed declare_squatted declared_by"
    " dependencies_count dependencies_retry dependencies_tree dependencies_waits doctor_leader doctor_locks"
    " doctor_long_locks doctor_sessions"
    " doctor_notify doctor_objects doctor_pins doctor_server doctor_tables doctor_waits doctor_workers explain_near"
    " explain_open explain_parents explain_passed_over explain_row explain_terms"
    " file_alerts file_alerts_set file_calendar_times_add file_calendar_times_remove"
    " file_calendars file_calendars_delete file_calendars_set file_dates_add"
    " file_dates_clear file_decides file_entries file_entries_add file_entries_drop file_entries_owned file_fleet"
    " file_job_errors file_jobs file_jobs_delete file_jobs_unwait file_jobs_wait file_limits_delete"
    " file_limits_set file_owner"
    " file_owner_add file_owner_applied file_owner_lock file_parents file_pauses_delete file_pauses_set"
    " file_queues_delete"
    " file_queues_set file_readable file_retention file_retention_audit file_retention_set file_settings"
    " file_users"
    " first_result"
    " health_jobs_ahead"
    " health_leader_failing health_notify health_queues_shut health_releases_gone health_unpruned health_workers_lost"
    " job_delete job_list job_pause job_recent job_reset_mark job_resume job_show job_trigger jobs_after jobs_counted"
    " jobs_in_error jobs_known jobs_live jobs_of_clock jobs_of_interest jobs_similar limit_applied limit_list"
    " limit_remove limit_save limit_shut limit_unapplied limit_writers lock_list metrics_queues"
    " metrics_tables"
    " migrate_in_the_way migrate_index_build migrate_turn names_known names_of_runs open_runs other_queues pause_end"
    " pause_list pause_set prune_count queue_has_runs queue_list queues_set_or_paused retention_show roles_of_login"
    " run_attempts run_cancel run_cancel_many run_holding run_log_end run_log_last run_log_read run_newest_id"
    " run_outcome run_present run_relatives run_retry run_retry_many run_show run_update run_watch runs_await"
    " runs_bad_since runs_ended runs_ended_since"
    " runs_failed_newest runs_failing runs_finished_by_stretch runs_finished_lately runs_hurry runs_live"
    " runs_of_job_newest runs_of_queue runs_open_counted runs_open_of_tasks runs_running_longest"
    " runs_unfinished_of_task shadow_jobs shadow_slots"
    " slot_travelled slot_triggered slots_of_job slots_of_job_by_day slots_of_jobs_newest"
    " succeeded_slots task_check_args tasks_offered time_travel worker_drain worker_start worker_stop"
    " workers_alive_draining workers_gone workers_offering report_counted report_counted_runs report_ended tasks_known"
    " tasks_open_runs tasks_ended_lately task_names task_schema"
)
# The other statements. They read tables that do not grow, one row by its key, or rows that the caller gives; those that
# insert read big tables in triggers only. (`dependencies_release` uses its indexes from PostgreSQL 16 on. Version 15
# hashes the edges if there are no statistics.)
FEW = (
    "alert_led alert_no_leader alert_owed alert_take alert_told backfill_add backfill_advance clock"
    " backfill_add_in_order alert_pause"
    " declare_try_lock now flags_may_rebuild flags_rebuild identity_missing identity_make lost_note"
    " leader_candidates"
    " dependencies_add dependencies_release dependencies_runs enqueue enqueue_at enqueue_at_more enqueue_full"
    " enqueue_named enqueue_plain enqueue_rows enqueue_take_keys enqueue_told enqueue_undeclared"
    " leader_elect leader_resign"
    " barrier_enter barrier_leave barrier_withdraw store_add store_changes store_delete store_get store_keys store_list"
    " store_put"
    " item_consume item_counts item_extend item_get item_give_back item_leave item_put item_put_many"
    " node_create node_delete node_prune node_read node_roots node_set"
    " leader_contested leader_seen leader_sleeps leader_try leader_unlock leader_vacant"
    " limit_refunds locks_pruned notifications_clear passed_over_first prune_audit prune_workers"
    " rollup_lock rollup_stretches"
    " sessions_ended sessions_over store_roots_pruned"
    " lock_acquire lock_assert lock_break lock_line lock_release session_end session_leases session_open"
    " session_renew"
    " set_aside_all set_aside_drop set_aside_note set_aside_seen set_aside_session task_limits task_register"
    " task_standing tick_wait which_database recorder_mark recorder_marks"
)


def is_accounted(name: str) -> bool:
    """Return whether the plan of a statement is checked, or one of the lists says why it is not."""
    return name in WORKER or name in LEADER or name in FEW.split() or name in ASKED.split()


def allowed(name: str, found: set[str]) -> set[str]:
    """Return the indexes that a statement may use: all that were found, if the statement has no list."""
    listed = (WORKER | LEADER)[name]
    return found if listed is None else set(re.split("[ |]", listed))


def relying(index: str) -> set[str]:
    """Return the statements for which no other index is allowed instead of this one."""
    ways = {index, f"{index}[]", f"{index}*"}
    return {name for name, listed in (WORKER | LEADER).items() if listed and ways & set(listed.split())}


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def misdeeds(plan: Plan, leading: Mapping[str, str]) -> set[str]:
    """Return each scan of a whole big table, and each node that reads all rows of one before it returns the first."""
    found = {(node["Node Type"], node.get("Relation Name")) for node in nodes(plan) if node["Node Type"] in READS_ALL}
    for node in nodes(plan):
        of_an_instant = "Presorted Key" in node and node["Plans"][0].get("Index Name") in FEW_ALIKE
        if node["Node Type"] in GATHERS and not of_an_instant:
            found |= {(node["Node Type"], table) for table in gathered(node, leading)}
    return {f"{kind}: {table}" for kind, table in found if table in BIG}


def gathered(node: Plan, leading: Mapping[str, str]) -> Iterator[str]:
    """Yield the tables whose rows reach a node, unless there are few such rows.

    There are few rows where a CTE, an array or a limit bounds them, and where they are counted into one row. There are
    also few where each such row finds its partner by a primary key, or by the index of one job's open runs. Rows of a
    subquery do not reach the node.
    """
    for child in node.get("Plans", []):
        if child.get("Parent Relationship") in ("InitPlan", "SubPlan") or child["Node Type"] in OF_A_BATCH:
            continue
        by_key = FINDS_FEW.fullmatch(child.get("Index Name", "")) and finds(child, leading)
        if by_key or child.get("Strategy") == "Plain":
            continue
        if "Relation Name" in child:
            yield child["Relation Name"]
        yield from gathered(child, leading)


def indexes(plan: Plan, leading: Mapping[str, str]) -> set[str]:
    """Return how big tables are read: `x` finds values in index x, `x[]` reads a range of x, `x*` reads from an end."""
    return {
        scan["Index Name"] + ("" if finds(scan, leading) else "[]" if bounds(scan, leading) else "*")
        for scan in nodes(plan)
        if scan.get("Relation Name") in BIG and "Index Name" in scan
    }


def finds(scan: Plan, leading: Mapping[str, str]) -> bool:
    """Return whether an index scan searches the index's first column for given values."""
    column = re.escape(leading[scan["Index Name"]])
    return re.search(rf"\({column} (= |IS NULL)", scan.get("Index Cond", "")) is not None


def bounds(scan: Plan, leading: Mapping[str, str]) -> bool:
    """Return whether an index scan's condition bounds the index's first column, by more than IS NOT NULL."""
    column = re.escape(leading[scan["Index Name"]])
    return re.search(rf"\((ROW\()?{column}\b(?! IS NOT NULL)", scan.get("Index Cond", "")) is not None


def numbering(text: bytes) -> tuple[bytes, tuple[str, ...]]:
    """Return a statement with `$1`, `$2`, ... in place of `%(name)s`, and the names in that order."""
    names: dict[str, int] = {}

    def number(found: re.Match[bytes]) -> bytes:
        if found[1] is None:
            return b"%"
        return b"$%d" % names.setdefault(found[1].decode(), len(names) + 1)

    return re.sub(rb"%(?:\((\w+)\)s|%)", number, text), tuple(names)
