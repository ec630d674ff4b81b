"""The body of `POST /runs` has the options of an enqueue, by their annotations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import pytest

from pgsched.app.options import OptionKeywords
from pgsched.cli import run_options
from pgsched.core.schedule import time_words
from pgsched.errors import InputError
from pgsched.web.api import enqueue_body
from pgsched.web.api.enqueue_body import BODY, LEFT_OUT, option_schema, read_key, read_option


@dataclass(frozen=True, slots=True)
class Sliding:
    period_s: float


HINTS: dict[str, Any] = {
    "expires": float | timedelta | datetime | None,
    "names": bool | tuple[str, ...] | list[str] | None,
    "scope": Literal["while_active", "while_queued"] | Sliding | None,
    "part": float | None,
    "word": Literal["a", "b"] | None,
    "parents": Iterable[int] | None,
}


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Options that an enqueue could have."""
    monkeypatch.setattr(enqueue_body, "HINTS", HINTS)


def test_every_option_of_an_enqueue_is_a_field_of_the_body() -> None:
    assert BODY.keys() == {"task", "args", *OptionKeywords.__annotations__} - {*LEFT_OUT}
    assert all(schema for schema in BODY.values())


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("expires", ["number", "string", "string", "null"]),
        ("names", ["boolean", "array", "null"]),
        ("scope", ["string", "null"]),
        ("part", ["number", "null"]),
        ("word", ["string", "null"]),
        ("parents", ["array", "null"]),
    ],
)
def test_a_schema_follows_the_annotation(name: str, kinds: list[str]) -> None:
    assert [one["type"] for one in option_schema(HINTS[name])["anyOf"]] == kinds


@pytest.mark.usefixtures("hints")
@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("expires", "2h", timedelta(hours=2)),
        ("expires", "90 s", timedelta(seconds=90)),
        ("expires", 90, 90),
        ("expires", "2031-05-01T02:00:00Z", datetime(2031, 5, 1, 2, tzinfo=UTC)),
        ("expires", "2031-05-01 02:00Z", datetime(2031, 5, 1, 2, tzinfo=UTC)),
        ("scope", "sliding(1h)", Sliding(3600)),
        ("scope", "while_queued", "while_queued"),
        ("names", ["user"], ["user"]),
        ("names", True, True),
        ("word", "a", "a"),
    ],
)
def test_a_value_is_read_by_the_annotation(name: str, text: Any, value: Any) -> None:
    assert read_option(name, text) == value


@pytest.mark.parametrize("text", ["22:00", "6:00", "monday 6:00", "2h", "in 2 hours", "tomorrow 6:00"])
def test_both_doors_read_the_same_instant_ahead(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """The command line and HTTP: a run for 22:00 waits until tonight."""
    now = datetime(2026, 5, 6, 15, tzinfo=UTC)  # a Wednesday
    parse = time_words.parse_time
    monkeypatch.setattr(time_words, "parse_time", lambda text, _, tz, *, ahead: parse(text, now, tz, ahead=ahead))
    by_http, by_cli = read_option("at", text), run_options.read_options({"at": text}).at
    assert by_http == by_cli and now < by_http < now + timedelta(days=7)


@pytest.mark.usefixtures("hints")
@pytest.mark.parametrize(("name", "text"), [("expires", "soon"), ("scope", "bag(1h)"), ("scope", "sliding(soon)")])
def test_a_wrong_text_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(InputError) as error:
        read_option(name, text)
    assert error.value.field == name


@pytest.mark.parametrize(
    ("header", "key"),
    [(None, None), ("order 7", "order 7"), ('"order 7"', "order 7"), ('"a\\"b"', 'a"b'), ('"', '"'), ('""', '""')],
)
def test_a_key_may_stand_in_quotes(header: str | None, key: str | None) -> None:
    assert read_key(header) == key
