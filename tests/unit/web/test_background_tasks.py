"""The background work of the console goes on after an unforeseen error."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from pgsched.errors import PgschedError
from pgsched.services.check import Finding, ok
from pgsched.web.pages import depth, doctor
from pgsched.web.pages.depth import Depth, Depths, record_depths
from pgsched.web.pages.doctor import Diagnosis
from tests.support.waiting import wait_until


def findings_of(diagnosis: Diagnosis) -> list[Finding]:
    """Return the findings of a diagnosis as soon as there are any."""
    return wait_until(lambda: diagnosis.last(all_of_it=True)[0], what="the end of a check") or []


@pytest.mark.parametrize("error", [ValueError("secret"), PgschedError("not now")])
def test_a_check_that_fails_is_shown_and_followed_by_another_one(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    failing = [True]

    def check(*_: Any) -> list[Finding]:
        if failing[0]:
            raise error
        return [ok("workers", "2 live workers")]

    monkeypatch.setattr(doctor, "doctor", check)
    monkeypatch.setattr(doctor, "OLD_S", 0.0)
    diagnosis = Diagnosis("dbname=none")
    found = findings_of(diagnosis)
    assert [one.level for one in found] == ["fail"]
    assert found[0].text == ("not now" if isinstance(error, PgschedError) else
                             "ValueError: this is a bug in pgsched; the console's log shows where")  # fmt: skip
    failing[0] = False
    wait_until(lambda: findings_of(diagnosis)[0].level == "ok", what="a second check")


def test_a_check_that_cannot_begin_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoThread:
        def __init__(self, **_: Any) -> None:
            pass

        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    diagnosis = Diagnosis("dbname=none")
    with monkeypatch.context() as patch:
        patch.setattr(doctor, "Thread", NoThread)
        with pytest.raises(RuntimeError):
            diagnosis.last(all_of_it=True)
    monkeypatch.setattr(doctor, "doctor", lambda *_: [ok("workers", "2 live workers")])
    assert findings_of(diagnosis)[0].level == "ok"


class Kept(list[Depth]):
    """The recorded depths; sets an event with the first one."""

    def __init__(self, recorded: asyncio.Event) -> None:
        super().__init__()
        self._recorded = recorded

    def append(self, one: Depth) -> None:
        super().append(one)
        self._recorded.set()


def test_depths_are_recorded_after_an_unforeseen_error(monkeypatch: pytest.MonkeyPatch) -> None:
    readings: list[Any] = [ValueError("odd"), KeyError("scheduled"), Depth(1.0, 2, 3, 4)]

    def read(_: Any) -> Depth:
        one = readings.pop(0) if len(readings) > 1 else readings[0]
        if isinstance(one, Exception):
            raise one
        return one  # type: ignore[no-any-return]

    monkeypatch.setattr(depth, "read_depth", read)
    depths, recorded = Depths(), asyncio.Event()
    monkeypatch.setattr(depths, "records", kept := Kept(recorded))
    monkeypatch.setattr(depth, "EVERY_S", 0.0)

    async def main() -> None:
        task = asyncio.create_task(record_depths(None, depths))  # type: ignore[arg-type]
        await asyncio.wait([task, asyncio.create_task(recorded.wait())], timeout=10,
                           return_when=asyncio.FIRST_COMPLETED)  # fmt: skip
        task.cancel()

    asyncio.run(main())
    assert kept[0] == Depth(1.0, 2, 3, 4)
