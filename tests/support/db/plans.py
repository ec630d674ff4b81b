"""Which indexes the hot statements may go by, and what a plan, as EXPLAIN gives it in JSON, does to big tables.

`leading`: the first column of each index, by its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

Plan = dict[str, Any]

BIG = {"runs", "attempts", "jobs", "dependencies", "kept_keys", "run_logs", "rollups"}
READS_ALL = ("Seq Scan", "Bitmap Heap Scan")
GATHERS = ("Sort", "Incremental Sort", "Hash", "Materialize")
OF_A_BATCH = ("CTE Scan", "WorkTable Scan", "Function Scan", "Limit")
FINDS_FEW = re.compile(r"\w+_pkey|runs_open_of_job")
FEW_ALIKE = {"runs_finished"}  # what such an index has in order an incremental sort gives a few rows after the other
# By which indexes each goes, as `indexes` names them, `|` between two of which either will do; None: by any.
WORKER = {
    "claim": "runs_claim runs_pkey",
    "claim_start": "runs_claim runs_pkey",
    "claim_many": "runs_claim runs_pkey",
    "claim_unconfirmed": "runs_claim",
    "claim_lease_left": "runs_pkey",
    "claimable_queues": "runs_claim[] runs_claim",
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
    "dependencies_slots": "runs_waiting runs_slot jobs_pkey",
    "dependencies_no_slot": "runs_pkey jobs_pkey",
    "runs_expire": "runs_expiring[] runs_held[] runs_pkey",
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
    "rollup_look": "runs_finished[]",
    "rollup_reach": "runs_finished[]",
    "rollup": "runs_finished[]",
    "rollup_prune": "rollups_pkey",
    "prune_pick": "runs_finished[] runs_slot jobs_pkey",
    "prune_delete": "runs_pkey runs_waiting attempts_pkey run_logs_pkey dependencies_pkey dependencies_parent"
    " kept_keys_pkey kept_keys_met jobs_pkey",
    "prune_keys": "kept_keys_expires_at[]",
    "prune_backfills": "runs_backfill",
    "prune_jobs": "jobs_done_once* runs_slot jobs_pkey",
    "declare_withdrawn": "jobs_declared",
    "declare_withdraw": "jobs_pkey|jobs_declared*",
    "plans_look": "jobs_pkey[]",
    "plans_again": "jobs_pkey",
    "lease_longest": "",
    "runs_needing_attention": None,
    "leader_newest_term": None,
    "slots_next": None,
    "runs_open_by_state": None,
    "workers_alive": None,
    "alert_look": "jobs_watched*",
    "alert_check": "jobs_watched[] runs_slot runs_open_of_job runs_pkey attempts_pkey jobs_pkey rollups_of_job",
}
# Nobody's run waits for these: what a person, a page, a command or a start-up asks, by its prefix or its name.
ASKED = (
    "alert_list alert_test audit_ backfill_calendar backfill_cancel backfill_count backfill_rerun"
    " backfill_show calendar_ catalog_ check_ declare_ declared_by dependencies_progress dependencies_retry"
    " dependencies_tree dependencies_waits doctor_ explain_ first_result health_ job_ jobs_after jobs_counted"
    " jobs_in_error jobs_known jobs_live jobs_of_clock jobs_of_interest jobs_similar limit_applied limit_list"
    " limit_remove limit_save limit_shut limit_unapplied limit_writers metrics_ migrate_ open_runs pause_ prune_count"
    " queue_list"
    " queues_set_or_paused retention_ run_attempts run_cancel run_cancel_many run_holding run_log_end"
    " run_log_last run_log_read run_newest_id run_present run_relatives run_retry run_retry_many run_show"
    " run_watch runs_bad_since runs_ended_since runs_failed_newest runs_failing runs_finished_by_stretch"
    " runs_finished_lately runs_hurry runs_live runs_of_job_newest runs_of_queue runs_open_counted"
    " runs_open_of_tasks runs_running_longest runs_unfinished_of_task slot_ slots_of_job slots_of_job_by_day"
    " slots_of_jobs_newest succeeded_slots time_travel worker_ workers_alive_draining workers_gone"
    " workers_offering names_known names_of_runs other_queues queue_has_runs tasks_offered roles_of_login"
)
# What is left: no table that grows, one row by its key, or rows of the caller's (of what inserts: its triggers').
# (`dependencies_release` goes by its indexes from PostgreSQL 16 on; without statistics 15 hashes the edges.)
FEW = (
    "alert_led alert_no_leader alert_owed alert_take alert_told backfill_add backfill_advance clock now"
    " flags_may_rebuild flags_rebuild identity_missing identity_make lost_note"
    " leader_candidates"
    " dependencies_add dependencies_release dependencies_runs enqueue enqueue_at enqueue_keyed enqueue_plain"
    " enqueue_rows enqueue_told leader_elect leader_resign"
    " leader_contested leader_seen leader_sleeps leader_try leader_unlock leader_vacant"
    " limit_refunds notifications_clear passed_over_first prune_audit prune_workers rollup_lock rollup_stretches"
    " set_aside_all set_aside_drop set_aside_note set_aside_seen set_aside_session task_register"
    " task_standing tick_wait which_database"
)


def is_accounted(name: str) -> bool:
    """Is the plan of a statement looked at, or has somebody said why not?"""
    asked = any(name.startswith(one) if one.endswith("_") else name == one for one in ASKED.split())
    return name in WORKER or name in LEADER or name in FEW.split() or asked


def allowed(name: str, found: set[str]) -> set[str]:
    """The indexes that a statement may go by: those found, where none are listed."""
    listed = (WORKER | LEADER)[name]
    return found if listed is None else set(re.split("[ |]", listed))


def relying(index: str) -> set[str]:
    """The statements for which no other index will do."""
    ways = {index, f"{index}[]", f"{index}*"}
    return {name for name, listed in (WORKER | LEADER).items() if listed and ways & set(listed.split())}


def nodes(plan: Plan) -> Iterator[Plan]:
    yield plan
    for child in plan.get("Plans", []):
        yield from nodes(child)


def misdeeds(plan: Plan, leading: Mapping[str, str]) -> set[str]:
    """Each scan of a whole big table, and each node that takes all rows of one before it gives any."""
    found = {(node["Node Type"], node.get("Relation Name")) for node in nodes(plan) if node["Node Type"] in READS_ALL}
    for node in nodes(plan):
        of_an_instant = "Presorted Key" in node and node["Plans"][0].get("Index Name") in FEW_ALIKE
        if node["Node Type"] in GATHERS and not of_an_instant:
            found |= {(node["Node Type"], table) for table in gathered(node, leading)}
    return {f"{kind}: {table}" for kind, table in found if table in BIG}


def gathered(node: Plan, leading: Mapping[str, str]) -> Iterator[str]:
    """The tables whose rows come to a node, unless there are few of them.

    There are few of what a CTE, given arrays or a limit bound, of what is counted into one row, and of what a primary
    key, or the index of what one job has open, finds for such rows. A subquery's rows do not come to the node.
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
    """How big tables are read: `x` finds values in that index, `x[]` reads a range of it, `x*` reads it from an end."""
    return {
        scan["Index Name"] + ("" if finds(scan, leading) else "[]" if bounds(scan, leading) else "*")
        for scan in nodes(plan)
        if scan.get("Relation Name") in BIG and "Index Name" in scan
    }


def finds(scan: Plan, leading: Mapping[str, str]) -> bool:
    """Does an index scan look for one value, or for some, in the index's first column?"""
    column = re.escape(leading[scan["Index Name"]])
    return re.search(rf"\({column} (= |IS NULL)", scan.get("Index Cond", "")) is not None


def bounds(scan: Plan, leading: Mapping[str, str]) -> bool:
    """Does an index scan's condition say more of the index's first column than that there is a value?"""
    column = re.escape(leading[scan["Index Name"]])
    return re.search(rf"\((ROW\()?{column}\b(?! IS NOT NULL)", scan.get("Index Cond", "")) is not None


def numbering(text: bytes) -> tuple[bytes, tuple[str, ...]]:
    """A statement with the placeholders `$1`, `$2` for `%(name)s`, and the names in that order."""
    names: dict[str, int] = {}

    def number(found: re.Match[bytes]) -> bytes:
        if found[1] is None:
            return b"%"
        return b"$%d" % names.setdefault(found[1].decode(), len(names) + 1)

    return re.sub(rb"%(?:\((\w+)\)s|%)", number, text), tuple(names)
