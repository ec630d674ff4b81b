"""Handlers for workers behind a pooler: those of the ledger app, and some for each connection that a worker has."""

from __future__ import annotations

from typing import Any

from pgsched import Run
from tests.support.apps.ledger import app, write


@app.task(name="own")
def own(run: Run) -> None:
    """Write a row and settle the run in one transaction; the result is the connection's search_path."""
    with run.transaction() as conn:
        conn.execute("INSERT INTO public.ledger (run_id, token, event) VALUES (%s, %s, 'end')", [run.id, run.token])
        run.set_result({"path": conn.execute("SHOW search_path").fetchone()[0]})  # type: ignore[index]


@app.task(name="own_async")
async def own_async(run: Run) -> None:
    """Write a row and settle the run in one transaction, with asyncio."""
    async with run.transaction() as conn:
        await conn.execute(
            "INSERT INTO public.ledger (run_id, token, event) VALUES (%s, %s, 'end')", [run.id, run.token]
        )


@app.task(name="talk", capture=True)
def talk(run: Run) -> dict[str, Any]:
    """Print a line, and report progress."""
    print("hello from behind the pooler")
    run.progress(1, 2, "half")
    write(run.id, run.token, "end")
    return {"said": True}


@app.task(name="spawn")
def spawn(run: Run) -> None:
    """Enqueue another run."""
    app.tasks["note"].enqueue()
    write(run.id, run.token, "end")
