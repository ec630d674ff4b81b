"""Sessions that were logged out stay invalid until they would have expired, however many there are."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from pgsched.web.security import keys
from pgsched.web.security.keys import EndedSessions
from pgsched.web.security.secrets import Session, new_session


def session(name: str, left_s: float) -> Session:
    return Session(name, "a secret", time.time() + left_s)


def test_no_ended_session_is_valid_again_after_many_logouts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_ENDED", 10)
    file = tmp_path / "web.ended"
    ended = EndedSessions(file)
    all_of_them = [session(f"s{n}", 1000 + n) for n in range(50)]
    for one in all_of_them:
        ended.add(one)
    for known in (ended, EndedSessions(file)):
        assert [one.id for one in all_of_them if one not in known] == []
    assert len(file.read_text().splitlines()) <= 11
    assert session("of a later login", 2000) not in ended


def test_ended_sessions_of_two_full_consoles_stay_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_ENDED", 10)
    file = tmp_path / "web.ended"
    both = [EndedSessions(file), EndedSessions(file)]
    all_of_them = [session(f"s{n}", 1000 + n) for n in range(40)]
    for n, one in enumerate(all_of_them):
        both[n % 2].add(one)
    assert [one.id for one in all_of_them if one not in EndedSessions(file)] == []


def test_expired_sessions_are_forgotten_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "MOST_ENDED", 10)
    file = tmp_path / "web.ended"
    file.write_text("".join(f"old{n} {int(time.time()) - 5}\n" for n in range(20)))
    ended = EndedSessions(file)
    ended.add(session("out", 1000))
    assert [line.split()[0] for line in file.read_text().splitlines()] == ["out"]
    assert session("older, and not logged out", 500) not in ended


def test_ending_a_session_again_does_not_change_the_file(tmp_path: Path) -> None:
    file = tmp_path / "web.ended"
    first = replace(new_session("a secret"), until=float(int(time.time()) + 100))
    EndedSessions(file).add(first)
    before = file.read_text()
    EndedSessions(file).add(first)
    assert file.read_text() == before
