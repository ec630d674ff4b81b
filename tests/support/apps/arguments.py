"""Two releases of one app: in the new one, the task `greet` takes one more argument and has other options."""

from __future__ import annotations

from pgsched import App

old = App("hello")
new = App("hello")


@old.task(name="greet")
def greet(name: str) -> str:
    return f"old {name}"


@new.task(name="greet", max_attempts=5)
def greet_in(name: str, language: str = "en") -> str:
    return f"new {name} {language}"
