"""The rule: a problem is something that somebody has to act on; each says what, why and what to do."""

from __future__ import annotations

from pgsched.services.status_model import JobCounts, JobError, Leader, LiveWorker, Queue, Unroutable

TERMS_A_MINUTE = 6
OLDEST_QUEUED_S = 300.0
OVERDUE_S = 10.0


def leader_problems(leader: Leader | None, jobs: JobCounts, queues: list[Queue]) -> list[str]:
    """Is anybody deciding slots?"""
    if leader is not None and leader.alive:
        late = jobs.overdue_s is not None and jobs.overdue_s > OVERDUE_S
        problems = [f"the leader is {jobs.overdue_s:.0f} s behind with due slots"] if late else []
        if leader.terms_lately > TERMS_A_MINUTE:
            problems.append(f"{leader.terms_lately} terms began within a minute: leaders fail, see the workers' logs")
        return problems
    held = sum(queue.scheduled + queue.waiting for queue in queues)
    if not jobs.planned and not held:
        return []
    if leader is None:
        why = "nobody has ever led"
    elif leader.resigned:
        why = f"{leader.holder} resigned"
    else:
        why = f"{leader.holder} was last seen {leader.seen_s:.0f} s ago"
    what = f"{jobs.planned} jobs and {held} held runs wait for one"
    return [f"no live leader: {why}; {what} (start a `pgsched worker`)"]


def worker_problems(workers: list[LiveWorker], queues: list[Queue], unroutable: list[Unroutable]) -> list[str]:
    """Is anybody running what is queued?"""
    problems = []
    queued = sum(queue.queued for queue in queues)
    taking = [worker for worker in workers if not worker.stopping]
    if queued and not taking:
        problems.append(f"no live worker, and {queued} runs are queued (start a `pgsched worker`)")
    for what in unroutable[:5] if taking else ():
        name = f"task {what.task}" if what.task else f"kind {what.kind}"
        problems.append(f"unroutable: no live worker offers {name} on queue {what.queue} ({what.count} queued)")
    if taking and len(unroutable) > 5:
        problems.append(f"unroutable: {len(unroutable) - 5} further tasks")
    for queue in queues:
        if queue.oldest_queued_s is not None and queue.oldest_queued_s > OLDEST_QUEUED_S:
            problems.append(f"queue {queue.name}: the oldest queued run has waited {queue.oldest_queued_s:.0f} s")
    if stuck := sum(worker.abandoned for worker in workers):
        problems.append(f"{stuck} abandoned handlers still occupy their workers")
    for worker in workers:
        if worker.blocked_s is not None:
            problems.append(
                f"worker {worker.name}: its event loop has been blocked for {worker.blocked_s:.0f} s by"
                f" {worker.blocked_by}; it keeps its claims and runs nothing else"
            )
    return problems


def job_problems(jobs: JobCounts, errors: list[JobError]) -> list[str]:
    """Can every job be evaluated?"""
    problems = [f"job {job.name} is in error: {job.error}" for job in errors[:5]]
    if jobs.broken > len(problems):
        problems.append(f"{jobs.broken - len(problems)} further jobs are in error")
    return problems
