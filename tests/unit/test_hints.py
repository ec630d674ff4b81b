"""Notifications and advisory locks are only hints: few places may use them, and each is listed here."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

NOTIFY = re.compile(r"\bpg_notify\(|^\s*NOTIFY ", re.MULTILINE)
ADVISORY = re.compile(r"\bpg_(?:try_)?advisory_(?:xact_)?lock(?:_shared)?\(")
# Places that may take an advisory lock although any role may take it: nothing depends on having it.
LOCKS = {
    "statement leader_try": "how candidates wait",
    "statement migrate_turn": "of one who may not migrate the next key is tried",
    "function tell_once": "who does not get it tells at most every 20 ms",
}


def blocks() -> dict[str, str]:
    """Return the texts of statements and of the schema's functions, without comments."""
    found = {}
    for path in (ROOT / "sql").glob("*.sql"):
        for block in re.split(r"^-- name: ", path.read_text(), flags=re.MULTILINE)[1:]:
            name, _, body = block.partition("\n")
            found[f"statement {name}"] = body
    schema = (ROOT / "migrations" / "schema.sql").read_text()
    for block in re.split(r"^CREATE OR REPLACE FUNCTION pgsched\.", schema, flags=re.MULTILINE)[1:]:
        name, _, body = block.partition("(")
        found[f"function {name}"] = body
    return {name: re.sub(r"--[^\n]*", "", body) for name, body in found.items()}


def test_only_one_function_notifies() -> None:
    """The function first checks how full the server's queue is. With a full queue, the commit would be refused.

    The test kit's recorder notifies too, in the transactions of tests.
    """
    assert {name for name, body in blocks().items() if NOTIFY.search(body)} == {
        "function notify", "statement recorder_mark",
    }  # fmt: skip


def test_only_listed_places_take_advisory_locks() -> None:
    assert {name for name, body in blocks().items() if ADVISORY.search(body)} == set(LOCKS)


def test_no_notification_carries_the_name_of_a_queue() -> None:
    told = re.compile(r"(?:notify|tell_once)\(\s*'pgsched_runs',\s*(.*)")
    found = {name: told.findall(body) for name, body in blocks().items() if told.search(body)}
    assert len(found) > 6
    clear = lambda text: "queue_mark(" in text or text.startswith(("CASE", "\n"))  # noqa: E731
    assert {name for name, texts in found.items() if not all(map(clear, texts))} == set()
