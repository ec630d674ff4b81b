"""Two releases of one program: in the new one the task `greet` takes a further argument and other options."""

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
