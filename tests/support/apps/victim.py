"""The app whose workers tests/support/hostile/victim.py starts."""

from pgsched import App

app = App("victim")


@app.task(name="victim.ok")
def ok() -> None:
    """Succeed at once."""
