"""One faulty row stops no other: duties can be done in pieces, and no statement casts the JSON of a row."""

from __future__ import annotations

import re
from typing import Any, cast

from pgsched.config import LeaderSettings
from pgsched.leader.loop import LeaderLoop
from pgsched.leader.term import Term
from tests.support.paths import ROOT

# duties that handle one row at a time, or whose success depends on no row of a user
WHOLE = {"changed limits", "changed calendars", "replanning", "claims", "alerts", "tidying", "declarations",
         "notifications", "looking below", "circles", "next slots", "sessions", "names"}  # fmt: skip


def test_each_duty_can_be_done_in_pieces() -> None:
    loop = LeaderLoop(Term(cast(Any, None), 1, LeaderSettings()), reap_from=0.0)
    assert {duty.name for duty in loop.duties if not duty.pieces} == WHOLE


def test_each_duty_has_a_name_of_its_own() -> None:
    """The failures of a duty are stored under its name."""
    loop = LeaderLoop(Term(cast(Any, None), 1, LeaderSettings()), reap_from=0.0)
    names = [duty.name for duty in loop.duties]
    assert len(names) == len({*names}) == 21


def test_no_statement_casts_the_options_of_runs() -> None:
    """Only pgsched.not_before_of and pgsched.after_jobs_of read these options. They accept any content."""
    casts = re.compile(r"options\s*->>?\s*'[a-z_]+'\s*\)+\s*::|jsonb_array_elements(_text)?\([a-z.]*options\b")
    found = {
        f"{path.name}: {match[0]}"
        for path in sorted((ROOT / "sql").glob("*.sql"))
        for match in casts.finditer(path.read_text())
    }
    assert found - {"doctor.sql: options ->> 'autovacuum_vacuum_threshold')::",
                    "doctor.sql: options ->> 'autovacuum_vacuum_scale_factor')::"} == set()  # fmt: skip
