"""Find the queues in which runs wait too long, and report the first cause that the facts support.

Pure. Runs that wait for a limit count like queued ones. All causes are reported after `patience` seconds, with two
exceptions:

- A limit of 0, which stops runs for good, is reported at once.
- Workers without a free place for a minute are reported after that minute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from shlex import quote

from pgsched.core.facts import BindingLimit, Facts, Paused, Queue, RunningTask
from pgsched.core.units import format_count, format_elapsed

STUCK_S = 60.0  # no run has started for this long: the queue is stuck
SEE_RUNNING = "`pgsched run list --state running` shows them"
FoundProblem = tuple[str, str, str]  # a problem: its kind, its text and its cure
PatienceOfQueue = Callable[[str], float]


def find_backlog_problems(facts: Facts, patience: PatienceOfQueue) -> Iterator[FoundProblem]:
    """Yield the problems of queues in which runs wait too long.

    `patience` returns for how many seconds runs of a queue may wait.
    """
    everything = next((pause for pause in facts.paused if pause.what == "all"), None)
    pauses = {pause.name: pause for pause in facts.paused if pause.what == "queue"}
    for queue in facts.queues:
        if pause := everything or pauses.get(queue.name):
            yield from report_paused_queue(queue, pause, patience(queue.name))
        else:
            yield from report_limited_runs(facts, queue, patience(queue.name))
            yield from report_unclaimed_runs(facts, queue, patience(queue.name))
    yield from report_zero_limits(facts)


def format_seconds(seconds: float) -> str:
    """Format seconds as words: `1 minute 10 seconds`."""
    return format_elapsed(timedelta(seconds=max(0, round(seconds))))


def describe_backlog(queue: str, number: int, oldest_s: float) -> str:
    """Describe the backlog of a queue: `queue mail: 12 runs wait, the oldest for 6 minutes`."""
    verb = "waits" if number == 1 else "wait"
    return f"queue {queue}: {format_count(number, 'run')} {verb}, the oldest for {format_seconds(oldest_s)}"


def report_paused_queue(queue: Queue, pause: Paused, longest_s: float) -> Iterator[FoundProblem]:
    """Report a paused queue in which runs wait: perhaps the pause was forgotten."""
    number = queue.queued + queue.limited
    oldest_s = min(max(queue.oldest_queued_s or 0.0, queue.oldest_limited_s or 0.0), pause.since_s)
    if not number or oldest_s <= longest_s:
        return
    what = "everything" if pause.what == "all" else "the queue"
    why, since = f": {pause.reason}" if pause.reason else "", format_seconds(pause.since_s)
    backlog = describe_backlog(queue.name, number, oldest_s)
    text = f"{backlog}; {what} has been paused for {since} by {pause.paused_by}{why}"
    yield "pause", text, "`pgsched resume --all`" if pause.what == "all" else f"`pgsched resume --queue {queue.name}`"


def report_unclaimed_runs(facts: Facts, queue: Queue, longest_s: float) -> Iterator[FoundProblem]:
    """Report queued runs that live workers offer to run but do not start."""
    if not (oldest_s := queue.oldest_offered_s):
        return
    serving = [worker for worker in facts.workers if worker.serves(queue.name)]
    if any(one.queue == queue.name for one in facts.shut_queues) or not serving:
        return
    places, busy = sum(one.concurrency for one in serving), sum(min(one.running, one.concurrency) for one in serving)
    seen = {name for worker in serving for name in worker.queues or ()}
    everywhere = any(worker.queues is None for worker in serving)
    there = [one for one in facts.running if everywhere or one.queue in seen]
    if oldest_s <= (min(STUCK_S, longest_s) if busy >= places and none_started_lately(there) else longest_s):
        return
    begin = describe_backlog(queue.name, queue.queued, oldest_s)
    if busy >= places:
        text = f"{begin}; all {places} places are busy{describe_running(there)}"
        yield "backlog", text, f"{SEE_RUNNING}: cancel what hangs, give it a timeout, or start more workers"
        return
    tasks = [pause.name for pause in facts.paused if pause.what == "task"]
    if tasks:
        yield "backlog", f"{begin}; paused tasks: {', '.join(tasks[:3])}", "`pgsched resume --task NAME`"
        return
    text = f"{begin}; {busy} of {places} places are busy, and the workers take no more"
    yield "backlog", text, "`pgsched doctor` names the session that blocks them; else see their logs"


def report_limited_runs(facts: Facts, queue: Queue, longest_s: float) -> Iterator[FoundProblem]:
    """Report runs that only a limit holds, if the oldest has waited for more than `longest_s` seconds."""
    if not (oldest_s := queue.oldest_limited_s) or any(
        one.concurrency == 0 for one in limits_of_queue(facts, queue.name)
    ):
        return
    there = [one for one in facts.running if one.queue == queue.name]
    if oldest_s <= (min(STUCK_S, longest_s) if there and none_started_lately(there) else longest_s):
        return
    begin = describe_backlog(queue.name, queue.limited, oldest_s)
    if facts.leader is None or not facts.leader.alive:
        yield "limit", f"{begin}, for a leader that lets them go", "start a `pgsched worker`"
        return
    names = [format_limit(one.name, one.concurrency) for one in limits_of_queue(facts, queue.name)]
    whose = f"for {', '.join(names[:3])}" if names else "for the limits of their jobs (concurrency_limit)"
    text = f"{begin}, {whose}{describe_running(there)}"
    yield "limit", text, f"`pgsched limit list` and `pgsched queue list` show the limits; {SEE_RUNNING}"


def limits_of_queue(facts: Facts, queue: str) -> list[BindingLimit]:
    """Return the limits that may hold runs of this queue: its own limit, or else the limits of concurrency keys."""
    own = [one for one in facts.limits if one.name == f"queue {queue}"]
    return own or [one for one in facts.limits if one.name.startswith("key ")]


def format_limit(name: str, concurrency: int | None) -> str:
    """Format a limit: `the limit of queue mail, 2 at once`."""
    return f"the limit of {name}" + ("" if concurrency is None else f", {concurrency} at once")


def report_zero_limits(facts: Facts) -> Iterator[FoundProblem]:
    """Report limits of 0: none of their runs can start."""
    for one in facts.limits:
        if one.concurrency == 0 and one.waiting:
            what, _, name = one.name.partition(" ")
            verb = "waits" if one.waiting == 1 else "wait"
            text = f"limit 0 on {one.name}: nothing of it starts, {format_count(one.waiting, 'run')} {verb}"
            set_it = (
                f"`pgsched queue set {name} --concurrency N`"
                if what == "queue"
                else f"`pgsched limit set {quote(name)} --concurrency N`"
            )
            yield "limit", text, set_it


def none_started_lately(running: list[RunningTask]) -> bool:
    """Check whether none of these runs started within the last `STUCK_S` seconds."""
    return min((one.newest_s for one in running), default=0.0) > STUCK_S


def describe_running(running: list[RunningTask]) -> str:
    """Describe the running runs: ` (8 x app.hang, the longest for 1 minute 10 seconds, without a timeout)`."""
    if not running:
        return ""
    counts: dict[str, int] = {}
    for one in running:
        counts[one.task] = counts.get(one.task, 0) + one.count
    longest = max(running, key=lambda one: one.oldest_s)
    endless = ", without a timeout" if longest.untimed else ""
    return f" ({format_task_counts(counts)}; the longest for {format_seconds(longest.oldest_s)}{endless})"


def format_task_counts(counts: Mapping[str, int]) -> str:
    """Format counts of tasks, the largest first, at most three: `4 x reports.build, 1 x mail`."""
    by_count = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    more = f" and {sum(n for _, n in by_count[3:])} more" if len(by_count) > 3 else ""
    return ", ".join(f"{n} x {task}" for task, n in by_count[:3]) + more
