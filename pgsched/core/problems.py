"""Judge whether work gets done: one list of problems for status, doctor, top, the console, metrics and /readyz.

Pure: `Facts` are the input, problems the result, each with its cause and a cure. The system is healthy if there is no
problem. A note is information that needs no action.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from shlex import quote

from pgsched.config import BACKLOG_S
from pgsched.core.backlog import STUCK_S, find_backlog_problems, format_seconds, format_task_counts
from pgsched.core.facts import Facts, JobCounts, Leader, LiveWorker, Queue
from pgsched.core.units import format_count

TERMS_A_MINUTE = 6
OVERDUE_S = 10.0
FAILING_S = 10.0
SHUT_S = 10.0  # the leader opens a queue after 5 s at most
AHEAD_S = 60.0
NOTIFY_FULL = 0.5
LISTED = 5
# The kinds of problem: labels of the metric pgsched_problems.
KINDS = (
    "leader", "duty", "worker", "unroutable", "backlog", "pause", "limit", "full", "job", "mark", "pruning", "notify",
    "alert",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Problem:
    """One problem: its cause in `text`, and the action to take in `cure`. A `note` leaves the system healthy."""

    kind: str
    text: str
    cure: str
    note: bool = False


@dataclass(frozen=True, slots=True)
class Patience:
    """For how many seconds runs may wait, in any queue and in certain ones."""

    backlog_s: float = BACKLOG_S
    queues: Mapping[str, float] = field(default_factory=dict)

    def for_queue(self, queue: str) -> float:
        """Return the patience for this queue, in seconds."""
        return self.queues.get(queue, self.backlog_s)


def find_problems(facts: Facts, patience: Patience | None = None) -> list[Problem]:
    """Return all problems and notes, the gravest kinds first."""
    return [
        *leader_problems(facts),
        *duty_problems(facts.leader),
        *worker_problems(facts),
        *unroutable_problems(facts),
        *release_problems(facts),
        *shut_problems(facts),
        *(Problem(*found) for found in find_backlog_problems(facts, (patience or Patience()).for_queue)),
        *full_problems(facts),
        *job_problems(facts),
        *mark_problems(facts),
        *pruning_problems(facts),
        *notify_problems(facts),
        *alert_problems(facts),
        *lost_worker_notes(facts),
    ]


def leader_problems(facts: Facts) -> Iterator[Problem]:
    """Report that no process leads, if work waits for a leader."""
    leader, jobs = facts.leader, facts.jobs
    if leader is not None and leader.alive:
        yield from slow_leader_problems(leader, jobs)
        return
    later = sum(queue.scheduled + queue.waiting for queue in facts.queues)
    if not jobs.planned and not later:
        if not facts.workers:
            text = f"no process works: no live worker, and {describe_absence(leader)}; nothing waits for them"
            yield Problem("leader", text, "start a `pgsched worker`", note=True)
        return
    what = f"{format_count(jobs.planned, 'job')} and {format_count(later, 'scheduled or waiting run')} wait for one"
    cure = "start a `pgsched worker`; if one runs, `pgsched doctor` says what keeps it from leading"
    yield Problem("leader", f"no live leader: {describe_absence(leader)}; {what}", cure)


def describe_absence(leader: Leader | None) -> str:
    """Describe why no process leads."""
    if leader is None:
        return "no process has ever led"
    if leader.resigned:
        return f"{leader.holder} resigned"
    return f"{leader.holder} was last seen {leader.seen_s:.0f} s ago"


def slow_leader_problems(leader: Leader, jobs: JobCounts) -> Iterator[Problem]:
    """Report a leader that is late, and leaders that change often."""
    if jobs.overdue_s is not None and jobs.overdue_s > OVERDUE_S:
        text = f"the leader is {jobs.overdue_s:.0f} s behind with due slots"
        cure = f"see the log of {leader.holder}, and `pgsched doctor` for the session that blocks it"
        yield Problem("leader", text, cure)
    if leader.terms_lately > TERMS_A_MINUTE:
        text = f"{leader.terms_lately} terms began within a minute: leaders fail, see the workers' logs"
        yield Problem("leader", text, "mend what their logs say")


def duty_problems(leader: Leader | None) -> Iterator[Problem]:
    """Report duties of the leader that fail."""
    if leader is None or not leader.alive:
        return
    for one in leader.failing:
        if one.since_s >= FAILING_S:
            what = "is left undone, because it has cost the leader its session" if one.left else "has failed"
            text = f"the leader's duty {one.duty} {what} for {format_seconds(one.since_s)}"
            yield Problem("duty", text, "`pgsched doctor` says with which error; it is tried again by itself")


def worker_problems(facts: Facts) -> Iterator[Problem]:
    """Report that no live worker takes queued runs, and workers in trouble."""
    queued = sum(queue.queued for queue in unpaused_queues(facts))
    if queued and not any(not worker.stopping for worker in facts.workers):
        text = f"no live worker, and {format_count(queued, 'run')} {'is' if queued == 1 else 'are'} queued"
        yield Problem("worker", text, "start a `pgsched worker`")
    for worker in facts.workers:
        yield from problems_of_worker(worker)


def problems_of_worker(worker: LiveWorker) -> Iterator[Problem]:
    """Report abandoned handlers and a blocked event loop of one worker."""
    if worker.abandoned:
        text = f"worker {worker.name}: {format_count(worker.abandoned, 'abandoned handler')} still at work in it"
        cure = f"restart it (SIGTERM to {worker.pid} on {worker.hostname}): such a handler ignores its timeout"
        yield Problem("worker", text, cure)
    if worker.blocked_s is not None:
        text = (
            f"worker {worker.name}: its event loop has been blocked for {worker.blocked_s:.0f} s by"
            f" {worker.blocked_by}; it keeps its claims and runs nothing else"
        )
        yield Problem("worker", text, "make that handler a plain function, which has a thread of its own")


def unpaused_queues(facts: Facts) -> list[Queue]:
    """Return the queues that are not paused; runs of a paused queue wait on purpose."""
    if any(pause.what == "all" for pause in facts.paused):
        return []
    stopped = {pause.name for pause in facts.paused if pause.what == "queue"}
    return [queue for queue in facts.queues if queue.name not in stopped]


def unroutable_problems(facts: Facts) -> Iterator[Problem]:
    """Report queued runs that no live worker offers to run."""
    if not any(not worker.stopping for worker in facts.workers):
        return
    for what in facts.unroutable[:LISTED]:
        name = f"task {what.task}" if what.task else f"kind {what.kind}"
        text = f"unroutable: no live worker offers {name} on queue {what.queue} ({what.count} queued){what.hint}"
        flag = f"start a worker whose app has it ({what.task})" if what.task else f"start one with --allow {what.kind}"
        yield Problem("unroutable", text, flag)
    if len(facts.unroutable) > LISTED:
        yield Problem("unroutable", f"unroutable: {len(facts.unroutable) - LISTED} further tasks", "see them all in "
                      "`pgsched status --json`")  # fmt: skip


def release_problems(facts: Facts) -> Iterator[Problem]:
    """Report runs that wait for a release that no live worker has had for `STUCK_S` seconds.

    A shorter absence is not reported: a worker that is just restarting will take them.
    """
    gone = [one for one in facts.releases if one.gone_s > STUCK_S]
    for one in gone[:LISTED]:
        verb = "waits" if one.count == 1 else "wait"
        text = (
            f"{format_count(one.count, 'run')} of task {one.task} {verb} for its newest release, and no live worker"
            f" has had it for {format_seconds(one.gone_s)}: the arguments fit no release that is there"
        )
        cure = (
            f"start a worker of that release; if it was taken back, `pgsched run cancel --task {quote(one.task)}"
            " --error 'newest release'`, and delete its row in pgsched.tasks (docs/how-to/handlers.md)"
        )
        yield Problem("unroutable", text, cure)
    if len(gone) > LISTED:
        text = f"runs of {format_count(len(gone) - LISTED, 'further task')} wait for a release that no live worker has"
        yield Problem("unroutable", text, "`pgsched run list --state scheduled` shows them")


def shut_problems(facts: Facts) -> Iterator[Problem]:
    """Report queues that wait for their first limit longer than the leader needs to put it in force."""
    for one in facts.shut_queues:
        if one.since_s > SHUT_S:
            pids = ", ".join(str(pid) for pid in one.waits_for[:LISTED])
            whom = f"it waits for transactions of pid {pids}" if pids else "the leader has not put it in force"
            text = f"queue {one.queue} has been shut for {format_seconds(one.since_s)} for its first limit: {whom}"
            cure = "end them: SELECT pg_terminate_backend(PID)" if pids else "see the leader's log"
            yield Problem("limit", text, cure)


def full_problems(facts: Facts) -> Iterator[Problem]:
    """Report full queues: they refuse or cancel runs."""
    then = {"reject": "new runs are refused", "shed_oldest": "its oldest runs are cancelled"}
    for queue in facts.full_queues:
        text = f"queue {queue.name} is full: {queue.depth} runs wait, {queue.max_depth} may; {then[queue.on_full]}"
        yield Problem("full", text, f"start more workers, or `pgsched queue set {queue.name} --max-depth N`")


def job_problems(facts: Facts) -> Iterator[Problem]:
    """Report jobs that cannot be evaluated."""
    for job in facts.errors[:LISTED]:
        cure = f"mend it (`pgsched job update {quote(job.name)}`), or `pgsched job pause {quote(job.name)}`"
        yield Problem("job", f"job {job.name} is in error: {job.error}", cure)
    if (more := facts.jobs.broken - len(facts.errors[:LISTED])) > 0:
        yield Problem("job", f"{more} further jobs are in error", "`pgsched job list --state error`")


def mark_problems(facts: Facts) -> Iterator[Problem]:
    """Report jobs without slots because the clock was ahead once."""
    for job in facts.marked_ahead[:LISTED]:
        if job.ahead_s > AHEAD_S:
            text = (
                f"job {job.name}: its slots count as decided until {job.until:%Y-%m-%d %H:%M:%S} UTC,"
                f" {format_seconds(job.ahead_s)} ahead of the clock: none runs until then"
            )
            yield Problem("mark", text, f"`pgsched job reset-mark {quote(job.name)}`")


def pruning_problems(facts: Facts) -> Iterator[Problem]:
    """Report that old runs are not deleted."""
    if (found := facts.unpruned) is None or facts.leader is None or not facts.leader.alive:
        return
    fails = any(one.duty == "pruning" for one in facts.leader.failing)
    why = ": it fails, `pgsched doctor` says why" if fails else ""
    age, keep = format_seconds(found.age_s), format_seconds(found.keep_s)
    text = f"pruning is stuck: run {found.run_id} ended {age} ago and is kept for {keep}{why}"
    yield Problem("pruning", text, "`pgsched prune` does it now, and says what is in the way")


def notify_problems(facts: Facts) -> Iterator[Problem]:
    """Report a notification queue that is nearly full."""
    if facts.notify_usage >= NOTIFY_FULL:
        text = f"the notification queue is {facts.notify_usage:.0%} full: when it is full, commits that notify fail"
        yield Problem("notify", text, "`pgsched doctor` names the session that holds it up: end it")


def alert_problems(facts: Facts) -> Iterator[Problem]:
    """Report open alerts."""
    for one in facts.alerts[:LISTED]:
        about = f"job {one.job}, " if one.job else ""
        text = f"alert {one.id}, open for {format_seconds(one.since_s)}: {about}{one.kind}: {one.details}"
        yield Problem("alert", text, f"`pgsched job show {quote(one.job)}`" if one.job else "`pgsched alerts`")
    if len(facts.alerts) > LISTED:
        yield Problem("alert", f"{len(facts.alerts) - LISTED} further alerts are open", "`pgsched alerts`")


def lost_worker_notes(facts: Facts) -> Iterator[Problem]:
    """Note workers that vanished lately, and the runs that they held."""
    for one in facts.lost_workers[:LISTED]:
        runs_text = format_task_counts(one.runs_by_task) if one.runs_by_task else format_count(one.running, "run")
        text = f"worker {one.name} was lost {format_seconds(one.seen_s)} ago; it held {runs_text}"
        cure = "what it held starts again elsewhere; see why its process or host went"
        yield Problem("worker", text, cure, note=True)
    if len(facts.lost_workers) > LISTED:
        yield Problem(
            "worker", f"{len(facts.lost_workers) - LISTED} further workers were lost", "`pgsched doctor`", note=True
        )
