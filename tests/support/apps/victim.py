"""The app of tests/support/victim.py."""

from pgsched import App

app = App("victim")


@app.task(name="victim.ok")
def ok() -> None:
    """Over at once."""
