"""Each duty has pieces, and no statement fails with what the JSON of a row holds: so one row stops no other."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

# one row each, or nothing that a row of somebody's decides
WHOLE = {"changed limits", "replanning", "claims", "leases", "alerts", "tidying", "declarations", "notifications",
         "looking below", "circles"}  # fmt: skip


def test_each_duty_can_be_done_in_pieces() -> None:
    loop = "".join((ROOT / "pgsched/leader" / name).read_text() for name in ("loop.py", "housekeeping.py"))
    pieces = (ROOT / "pgsched/leader/isolation/pieces.py").read_text()
    duties = set(re.findall(r'self\._do\("([^"]+)"', loop))
    table = pieces[pieces.index("    return {\n") : pieces.index("    }\n", pieces.index("    return {\n"))]
    done_in_pieces = set(re.findall(r'^        "([^"]+)":', table, re.MULTILINE))
    assert duties - done_in_pieces <= WHOLE
    assert done_in_pieces <= duties


def test_no_statement_casts_what_the_options_of_runs_hold() -> None:
    """pgsched.not_before_of and pgsched.after_jobs_of read them, whatever they are."""
    casts = re.compile(r"options\s*->>?\s*'[a-z_]+'\s*\)+\s*::|jsonb_array_elements(_text)?\([a-z.]*options\b")
    found = {
        f"{path.name}: {match[0]}"
        for path in sorted((ROOT / "sql").glob("*.sql"))
        for match in casts.finditer(path.read_text())
    }
    assert found - {"doctor.sql: options ->> 'autovacuum_vacuum_threshold')::",
                    "doctor.sql: options ->> 'autovacuum_vacuum_scale_factor')::"} == set()  # fmt: skip
