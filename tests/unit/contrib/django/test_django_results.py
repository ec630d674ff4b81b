"""A run's row as Django's TaskResult: errors and their classes, priorities."""

from __future__ import annotations

import traceback

import pytest

from pgsched.app.signals import format_error
from pgsched.contrib.django.priorities import django_value_of, priority_of
from pgsched.contrib.django.results import class_path
from tests.support.django_project.settings import shop_tasks

Declined = shop_tasks().Declined


def raised(error: BaseException) -> tuple[str, str]:
    """Return the error and the traceback as an attempt's row has them."""
    try:
        raise error
    except BaseException as one:
        return format_error(one), "".join(traceback.format_exception(one))


def chain() -> ExceptionGroup[Exception]:
    return ExceptionGroup("several", [ValueError("one"), KeyError("two")])


@pytest.mark.parametrize(
    ("error", "path"),
    [
        (ValueError("no"), "builtins.ValueError"),
        (ValueError(), "builtins.ValueError"),
        (KeyError("a: b"), "builtins.KeyError"),
        (SystemExit("end"), "builtins.SystemExit"),
        (Declined("card 4"), f"{Declined.__module__}.Declined"),
        (Declined("first line\n  second: line\n\nthird"), f"{Declined.__module__}.Declined"),
        (ValueError("x" * 5000), "builtins.ValueError"),
        # texts of somebody else in the message name no class
        (ValueError("a\nos.system.ValueError: a"), "builtins.ValueError"),
        (ValueError("\nantigravity.ValueError: "), "builtins.ValueError"),
        (ValueError(f"a\nos.system.ValueError: b{'x' * 2000}"), "builtins.ValueError"),
        (RuntimeError("Traceback (most recent call last):\nthis.RuntimeError: b"), "builtins.RuntimeError"),
    ],
)
def test_the_class_of_an_exception_is_found_again(error: BaseException, path: str) -> None:
    assert class_path(*raised(error)) == path


def test_the_last_exception_of_a_chain_counts() -> None:
    try:
        try:
            raise Declined("twice")
        except Declined as first:
            raise ValueError("twice") from first
    except ValueError as error:
        assert class_path(format_error(error), "".join(traceback.format_exception(error))) == "builtins.ValueError"


def raised_from(error: BaseException, cause: BaseException) -> tuple[str, str]:
    try:
        raise cause
    except BaseException as first:
        try:
            raise error from first
        except BaseException as one:
            return format_error(one), "".join(traceback.format_exception(one))


LONG = "x" * 2000
NAMED = type("ValueError", (Exception,), {"__module__": "requests"})


@pytest.mark.parametrize(
    ("cause", "text", "path"),
    [
        (OSError("bad\nthis.ValueError: import failed"), "import failed", "builtins.ValueError"),
        (NAMED("twice"), "twice", "builtins.ValueError"),
        # of a long text the error has no more than the beginning: what could be either is none
        (OSError(f"bad\nthis.ValueError: {LONG}"), LONG, "pgsched.errors.PgschedError"),
        (OSError("bad"), LONG, "builtins.ValueError"),
    ],
)
def test_the_text_of_a_cause_names_no_class(cause: BaseException, text: str, path: str) -> None:
    assert class_path(*raised_from(ValueError(text), cause)) == path


def test_notes_name_no_class() -> None:
    error = ValueError("no")
    error.add_note("a note")
    assert class_path(*raised(error)) == "builtins.ValueError"
    error.add_note("this.ValueError: no")
    assert class_path(*raised(error)) == "pgsched.errors.PgschedError"


@pytest.mark.parametrize(
    ("error", "text"),
    [("ValueError: no", None), ("timed out after 5 s", "x"), ("a b: c", "a b: c"), ("ValueError: no", "KeyError: no")],
)
def test_without_a_class_the_base_class_of_pgsched_stands(error: str, text: str | None) -> None:
    assert class_path(error, text) == "pgsched.errors.PgschedError"


def test_a_higher_priority_of_django_is_a_lower_number_of_pgsched() -> None:
    found = [priority_of(value) for value in range(-100, 101)]
    assert found == sorted(found, reverse=True) and {*found} == {*range(10)}
    assert (priority_of(0), priority_of(1), priority_of(-1), priority_of(100.0)) == (5, 4, 6, 0)
    assert [priority_of(django_value_of(priority)) for priority in range(10)] == [*range(10)]
