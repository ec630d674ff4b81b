"""Delivery of an alert to a program: the delivery has an end and a result, whatever the program does."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from pgsched.leader.alerting import sinks
from pgsched.leader.alerting.sinks import NotDelivered, make_command

TOLD = {"id": "pgsched-alert-1", "event": "opened", "text": "[alert] x"}


@pytest.mark.long
def test_a_program_with_endless_errors_costs_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sinks, "COMMAND_S", 1.0)
    kept: list[int] = []
    before = os.read

    def read(descriptor: int, n: int) -> bytes:
        found = before(descriptor, n)
        kept.append(len(found))
        return found

    monkeypatch.setattr(os, "read", read)
    with pytest.raises(NotDelivered, match="longer than 1 s"):
        make_command("/bin/sh -c 'yes >&2'")(TOLD)
    assert sum(kept) > 1_000_000, "it said a lot"
    with pytest.raises(NotDelivered, match="exit code 3") as told:
        make_command("/bin/sh -c 'head -c 1000000 /dev/zero | tr \"\\\\0\" x >&2; echo the end >&2; exit 3'")(TOLD)
    assert (str(told.value).endswith("the end"), len(str(told.value)) < 400) == (True, True)


def test_the_errors_of_a_program_can_be_stored() -> None:
    with pytest.raises(NotDelivered) as told:
        make_command("/bin/sh -c 'printf \"no\\\\000such host\" >&2; exit 1'")(TOLD)
    assert str(told.value) == "exit code 1: no\ufffdsuch host"


def test_a_program_that_leaves_a_process_running_has_ended(tmp_path: Path) -> None:
    """The process that it leaves still has the program's output open."""
    began = time.monotonic()
    make_command(f"/bin/sh -c 'sleep 25 & echo $! > {tmp_path}/pid'")(TOLD)
    assert time.monotonic() - began < 15
    os.kill(int((tmp_path / "pid").read_text()), 9)


def test_a_program_may_get_a_large_message_and_need_not_read_it(tmp_path: Path) -> None:
    much = TOLD | {"details": "x" * 100_000}
    make_command("/bin/true")(much)
    make_command(f"/bin/sh -c 'sleep 0.2; cat > {tmp_path}/got'")(much)
    assert json.loads((tmp_path / "got").read_text()) == much


def test_the_errors_of_a_program_are_kept_without_passwords() -> None:
    with pytest.raises(NotDelivered) as told:
        make_command("/bin/sh -c 'echo cannot reach postgresql://eve:hunter2@db/x >&2; exit 1'")(TOLD)
    assert ("cannot reach" in str(told.value), "hunter2" in str(told.value)) == (True, False)
