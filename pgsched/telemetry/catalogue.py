"""Every metric that pgsched exports: its name, type, labels and meaning. No other metric is exported.

Invariant: labels have few values. The first MOST tasks and queues of a process keep their names; further ones count as
`other`. A metric has at most MOST_SERIES series; in further ones both queue and task count as `other`. Work that is no
Python task counts under its kind.

docs/how-to/monitoring.md shows this list (tests/integration/docs/test_monitoring_docs.py compares).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

MOST = 100
MOST_SERIES = 1000
MANY = ("queue", "task")  # labels that may have many values
OTHER = "other"
SHORT_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 3600.0)
LONG_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)


class Metric(NamedTuple):
    """One metric, and which process exports it.

    `scope`: one of three values:
    - `worker`: each worker process exports its own figures.
    - `leader`: only the process that leads exports it.
    - `database`: figures of the whole database; only the process that leads exports them.
    """

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    labels: tuple[str, ...]
    scope: str
    meaning: str
    buckets: tuple[float, ...] = ()


METRICS = (
    Metric("pgsched_attempts_total", "counter", ("queue", "kind", "task", "outcome"), "worker",
           "Attempts that ended, by outcome: succeeded, failed, timed_out, crashed, cancelled, interrupted, released "
           "(handed back before it began), snoozed, or lost (another process owned the run by then)."),
    Metric("pgsched_runs_finished_total", "counter", ("queue", "kind", "task", "state"), "worker",
           "Runs that this process brought to their end, by final state: succeeded, dead or cancelled."),
    Metric("pgsched_attempt_duration_seconds", "histogram", ("queue", "kind", "task"), "worker",
           "How long attempts took, from the handler's start to its end.", LONG_S),
    Metric("pgsched_pickup_latency_seconds", "histogram", ("queue",), "worker",
           "From the moment an attempt could start (enqueued, due, or due again) to its start.", SHORT_S),
    Metric("pgsched_lateness_seconds", "histogram", ("queue",), "worker",
           "From a job's slot to the start of its first attempt. Backfilled slots are not counted.", SHORT_S),
    Metric("pgsched_leases_lost_total", "counter", ("reason",), "worker",
           "Claims lost while their attempt ran: denied (by the answer to a heartbeat), deadline (not renewed in time),"
           " or settled_late (the outcome came too late to count)."),
    Metric("pgsched_claim_batch_size", "histogram", (), "worker", "Runs taken by one claim.", SIZES),
    Metric("pgsched_settle_batch_size", "histogram", (), "worker", "Outcomes written by one batch.", SIZES),
    Metric("pgsched_worker_slots", "gauge", (), "worker", "The worker's places: attempts at the same time."),
    Metric("pgsched_worker_slots_busy", "gauge", (), "worker", "Places in which an attempt runs now."),
    Metric("pgsched_worker_prefetched", "gauge", (), "worker", "Runs claimed ahead that have not been started."),
    Metric("pgsched_worker_unsettled", "gauge", (), "worker",
           "Attempts that have ended and whose outcome is not written yet."),
    Metric("pgsched_worker_abandoned", "gauge", (), "worker",
           "Handlers that go on although they were told to stop; the worker waits for them no longer."),
    Metric("pgsched_worker_draining", "gauge", (), "worker", "1 while the worker takes no more runs, else 0."),
    Metric("pgsched_event_loop_lag_seconds", "gauge", (), "worker",
           "How late the worker's event loop came to a timer, at worst in the last 15 to 30 seconds."),
    Metric("pgsched_heartbeat_age_seconds", "gauge", (), "worker", "Since the database answered a heartbeat."),
    Metric("pgsched_reconnects_total", "counter", ("purpose",), "worker",
           "Tries to connect again: claim, settle, heartbeat, listen, leader, logs or metrics."),
    Metric("pgsched_build_info", "gauge", ("version", "python"), "worker", "Always 1; what runs here."),
    Metric("pgsched_leader", "gauge", (), "worker", "1 in the process that leads, else 0."),
    Metric("pgsched_leader_term", "gauge", (), "leader", "The number of the leader's term; it rises at each election."),
    Metric("pgsched_tick_duration_seconds", "histogram", (), "leader",
           "How long deciding one batch of due jobs took, without the wait for their instant.", SHORT_S),
    Metric("pgsched_tick_slots", "histogram", (), "leader", "Slots decided by one tick.", (*SIZES, 20000.0)),
    Metric("pgsched_slots_decided_total", "counter", (), "leader", "Slots decided: run, skipped or missed."),
    Metric("pgsched_runs_reaped_total", "counter", ("state",), "leader",
           "Runs whose claim expired, by what became of them: scheduled or queued (tried again) or dead."),
    Metric("pgsched_runs_pruned_total", "counter", (), "leader", "Finished runs that were removed."),
    Metric("pgsched_queue_runs", "gauge", ("queue", "state"), "database",
           "Unfinished runs: queued, running, scheduled or waiting. Up to a million of each are counted."),
    Metric("pgsched_queue_oldest_age_seconds", "gauge", ("queue", "state"), "database",
           "Of the oldest such run: since it could start, or since it was started (running)."),
    Metric("pgsched_jobs", "gauge", ("state",), "database",
           "Jobs: planned (with a next slot), paused, or in error (and not paused)."),
    Metric("pgsched_jobs_overdue_seconds", "gauge", (), "database",
           "For how long the oldest due slot has not been decided; 0 where there is none."),
    Metric("pgsched_problems", "gauge", ("kind",), "database",
           "What `pgsched status` calls a problem, by what it is about. While no process leads, "
           "every process reports it."),
    Metric("pgsched_table_dead_tuples", "gauge", ("table",), "database", "Dead rows that vacuum has not removed yet."),
    Metric("pgsched_table_live_tuples", "gauge", ("table",), "database", "Live rows, as the server estimates them."),
    Metric("pgsched_database_read_seconds", "gauge", (), "database",
           "How long the last reading of these figures took; they are read every 15 s, or less often if that is slow."),
    Metric("pgsched_database_read_age_seconds", "gauge", (), "database", "Since these figures were read."),
)  # fmt: skip
BY_NAME = {metric.name: metric for metric in METRICS}
