"""Nightly reports: one job each night, one run for each shop, one file for each run."""

import csv
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

from pgsched import App, Run

app = App("reports")
SHOPS = ("berlin", "paris", "rome")
FOLDER = Path("written")


@app.job(
    schedule="0 2 * * *",
    timezone="Europe/Berlin",
    catch_up="all",  # each night counts, also those in which nothing ran
    expect_every=timedelta(hours=26),  # an alert if a night goes by without success
)
@app.task(name="reports.nightly")
def nightly(run: Run) -> list[str]:
    """Order yesterday's report of each shop. This handler may run twice, so each order has a key."""
    day = ((run.scheduled_at or datetime.now(UTC)) - timedelta(days=1)).date().isoformat()
    for shop in SHOPS:
        write.options(idempotency_key=f"report of {shop} for {day}").enqueue(shop=shop, day=day)
    return [day, *SHOPS]


@app.task(name="reports.write", max_attempts=5, timeout=300)
def write(run: Run, shop: str, day: str) -> str:
    """Write the file of one shop. A second attempt writes the same file again."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"{shop}-{day}.csv"
    draft = path.with_suffix(f".{run.attempt}")
    with draft.open("w", newline="") as file:
        csv.writer(file).writerows([("product", "sold"), *sold(shop, date.fromisoformat(day))])
    draft.replace(path)  # a reader sees the whole report or none
    run.log(f"{path} is written")
    return str(path)


def sold(shop: str, day: date) -> list[tuple[str, int]]:
    """Return what a shop sold on a day. A real application would ask a database."""
    return [(product, len(shop) * day.day + n) for n, product in enumerate(("bread", "butter", "salt"))]
