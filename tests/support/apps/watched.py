"""Handlers for tests that watch runs: one that runs until it is cancelled, and one that always fails."""

from __future__ import annotations

from pgsched import App, Run

app = App("watched")


@app.task(name="copies", capture=True)
def copies(run: Run) -> None:
    run.progress(42, 100, "copying")
    print("the first line", flush=True)
    run.cancelled.wait(120)


@app.task(name="breaks")
def breaks() -> None:
    raise ConnectionError("bank.example: connection refused")
