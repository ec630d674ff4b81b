"""A plain script: it enqueues, watches, waits, cancels and retries, and needs no framework."""

import sys

from pgsched import App, Run, RunFailed, State

app = App("reports")


@app.task(name="reports.build")
def build(run: Run, days: int) -> dict[str, int]:
    """Build a report; a worker does that (pgsched worker --app report:app)."""
    if days <= 0:
        raise ValueError("days: give at least one")
    for day in range(1, days + 1):
        run.progress(day, days)
    return {"days": days}


def main() -> int:
    run = build.enqueue(days=7)
    print(f"run {run} is {run.state()}", file=sys.stderr)
    print("report:", run.result(timeout=60))

    many = build.enqueue_many([{"days": n} for n in range(1, 101)], return_ids=True)
    states = app.wait(many, timeout=60)
    print("reports:", sum(state is State.SUCCEEDED for state in states.values()))

    broken = build.options(max_attempts=1).enqueue(days=0)
    try:
        broken.result(timeout=60)
    except RunFailed as error:
        print("failed:", error.error)

    later = build.options(delay=3600).enqueue(days=1)
    later.update(priority=1)
    print("cancelled:", later.cancel("not needed"), later.retry(), later.wait(timeout=60))
    return 0


if __name__ == "__main__":
    sys.exit(main())
