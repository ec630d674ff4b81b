"""What becomes of Kazoo's paths, bytes and retries."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.errors import InputError, LeaseLost, NotFound, PgschedError, SchemaTooOld
from pgsched.recipes.kazoo import exceptions
from pgsched.recipes.kazoo.exceptions import (
    BadArgumentsError,
    ConnectionClosedError,
    ConnectionLoss,
    NoNodeError,
    RetryFailedError,
    SessionExpiredError,
    SystemZookeeperError,
    translated,
)
from pgsched.recipes.kazoo.paths import clean_path, name_of, to_bytes, to_json
from pgsched.recipes.kazoo.retry import KazooRetry


@settings(deadline=None)
@given(st.one_of(st.binary(), st.text().map(lambda text: text.encode("utf-8", "surrogatepass"))))
def test_bytes_come_back_as_they_were(data: bytes) -> None:
    kept = json.dumps(to_json(data))
    assert "\\u0000" not in kept
    assert to_bytes(json.loads(kept)) == data


@pytest.mark.parametrize(
    ("value", "data"),
    [(None, None), (7, b"7"), ({"b64": 1}, b'{"b64":1}'), ({"b64": "!"}, b'{"b64":"!"}'), ([1], b"[1]")],
)
def test_a_value_of_another_program_reads_as_json(value: object, data: bytes | None) -> None:
    assert to_bytes(value) == data


def test_text_is_kept_as_text() -> None:
    assert to_json("grüß".encode()) == "grüß"
    assert to_json(b"\xff") == {"b64": "/w=="}
    assert to_json(None) is None


@pytest.mark.parametrize(("path", "clean"), [("/a/b", "/a/b"), ("a//b/", "/a/b"), ("/", "/"), ("", "/")])
def test_a_path_has_one_form(path: str, clean: str) -> None:
    assert clean_path(path) == clean


def test_the_name_of_a_path_has_no_slash_before_it() -> None:
    assert name_of("/app/locks/x") == "app/locks/x"
    with pytest.raises(TypeError):
        name_of(b"/a")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (LeaseLost("x"), SessionExpiredError), (NotFound("x"), NoNodeError), (InputError("x"), BadArgumentsError),
        (SchemaTooOld("x"), SystemZookeeperError), (NoNodeError("x"), NoNodeError),
    ],
)  # fmt: skip
def test_errors_get_kazoos_names(error: PgschedError, kind: type[Exception]) -> None:
    with pytest.raises(kind, match="x") as raised, translated():
        raise error
    assert type(raised.value) is kind


def test_each_exception_is_one_of_pgsched() -> None:
    kinds = [one for one in vars(exceptions).values() if isinstance(one, type) and issubclass(one, Exception)]
    assert len(kinds) > 30
    assert all(issubclass(one, PgschedError) for one in kinds)


# ---- retries


def failing(times: int, error: Exception) -> tuple[Callable[[int], int], list[int]]:
    calls: list[int] = []

    def call(value: int) -> int:
        calls.append(value)
        if len(calls) <= times:
            raise error
        return value

    return call, calls


def test_a_call_is_repeated_after_the_loss_of_the_connection() -> None:
    call, calls = failing(3, ConnectionLoss("away"))
    pauses: list[float] = []
    retry = KazooRetry(max_tries=-1, delay=1, backoff=2, max_delay=3, max_jitter=0, sleep_func=pauses.append)
    assert retry(call, 7) == 7
    assert calls == [7] * 4 and pauses == [1, 2, 3]


def test_the_last_repetition_fails_with_another_error() -> None:
    call, calls = failing(9, ConnectionLoss("away"))
    with pytest.raises(RetryFailedError, match="away"):
        KazooRetry(max_tries=3, sleep_func=lambda _: None)(call, 1)
    assert len(calls) == 3


def test_the_end_of_the_session_is_a_reason_to_repeat_unless_it_is_not_to_be() -> None:
    call, _ = failing(1, SessionExpiredError("gone"))
    assert KazooRetry(max_tries=3, sleep_func=lambda _: None)(call, 1) == 1
    call, _ = failing(1, SessionExpiredError("gone"))
    with pytest.raises(SessionExpiredError):
        KazooRetry(max_tries=3, ignore_expire=False, sleep_func=lambda _: None)(call, 1)


def test_a_stopped_client_and_other_errors_are_no_reason() -> None:
    for error in (ConnectionClosedError("stopped"), NoNodeError("none")):
        call, calls = failing(1, error)
        with pytest.raises(type(error)):
            KazooRetry(max_tries=3, sleep_func=lambda _: None)(call, 1)
        assert len(calls) == 1


def test_a_deadline_and_an_interrupt_end_the_repetitions() -> None:
    for options in ({"deadline": 0.0}, {"interrupt": lambda: True}):
        call, calls = failing(9, ConnectionLoss("away"))
        with pytest.raises(RetryFailedError):
            KazooRetry(max_tries=-1, sleep_func=lambda _: None, **options)(call, 1)
        assert len(calls) == 1


def test_a_copy_has_the_same_rules() -> None:
    call, calls = failing(9, ConnectionLoss("away"))
    with pytest.raises(RetryFailedError):
        KazooRetry(max_tries=2, sleep_func=lambda _: None).copy()(call, 1)
    assert len(calls) == 2
