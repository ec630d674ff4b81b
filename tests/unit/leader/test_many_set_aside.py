"""Many rows set aside at once cost the leader one transaction and a few lines of log."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from pgsched.leader.isolation import duty_guard, set_aside
from pgsched.leader.isolation.duty_guard import FEW, DutyGuard
from pgsched.leader.isolation.set_aside import SetAside


def test_many_rows_are_set_aside_in_one_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    said: list[dict[str, Any]] = []

    @contextlib.contextmanager
    def leading() -> Iterator[Any]:
        begun.append(1)
        yield None

    monkeypatch.setattr(set_aside.set_aside, "set_aside_rows", lambda _, __, bad: {one.row_id: 1 for one in bad})
    monkeypatch.setattr(duty_guard, "logger", SimpleNamespace(error=lambda event, **fields: said.append(fields)))
    aside = SetAside()
    one = DutyGuard(SimpleNamespace(closed=False), leading, aside)  # type: ignore[arg-type]
    one.set_aside("jobs", [(str(n), "no") for n in range(500)], proven=True)
    assert len(aside.skipped_rows("jobs")) == 500
    assert len(begun) == 1
    assert len(said) == FEW + 1 and said[-1] == {"duty": "jobs", "count": 500 - FEW}


def test_rows_are_set_aside_even_if_they_cannot_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def refused() -> Iterator[Any]:
        raise ValueError("no")
        yield None

    aside = SetAside()
    one = DutyGuard(SimpleNamespace(closed=False), refused, aside)  # type: ignore[arg-type]
    one.set_aside("jobs", [("1", "no"), ("2", "no")], proven=True)
    assert sorted(aside.skipped_rows("jobs")) == ["1", "2"]
