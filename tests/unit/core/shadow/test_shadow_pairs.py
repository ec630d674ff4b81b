"""Which job a logged text means, and which slot a start belongs to."""

from __future__ import annotations

from array import array
from random import Random
from typing import Any

import pytest

from pgsched.core.shadow.comparing import ComparedTime, Comparison, compare
from pgsched.core.shadow.matching import Matcher, as_cron_prints, read_mapping
from pgsched.errors import InputError


def job(name: str, task: str, kind: str = "shell", args: Any = None) -> dict[str, Any]:
    return {"name": name, "kind": kind, "task": task, "args": {} if args is None else args}


def meant(matcher: Matcher, text: str, **more: Any) -> tuple[str, ...] | None:
    group = matcher.find(text, **more)
    return None if group is None else matcher.groups[group]


JOBS = [
    job("hourly", "cd / && run-parts --report /etc/cron.hourly"),
    job("dump", "pg_dump", "command", ["-Fc", "my db", "-f", "/srv/x"]),
    job("tabs", "a\tb ä"),
    job("load", "etl.load", "task"),
    job("twin-1", "./sync.sh"),
    job("twin-2", "./sync.sh"),
]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("   cd / &&  run-parts --report /etc/cron.hourly ", "hourly"),
        ("pg_dump -Fc my db -f /srv/x", "dump"),
        ("pg_dump -Fc 'my db' -f /srv/x", "dump"),
        ("a^Ib \\303\\244", "tabs"),
        ("a b ä", "tabs"),
        ("load", "load"),
        ("etl/load", "load"),
        ("etl.load", None),
        ("etl/hourly", "hourly"),
        ("run-parts", None),
        ("", None),
        ("x/load y", None),
    ],
)
def test_a_text_means_a_job_by_its_command_or_its_name(text: str, name: str | None) -> None:
    assert meant(Matcher(JOBS), text) == (None if name is None else (name,))


def test_jobs_with_one_command_are_one_to_the_log() -> None:
    matcher = Matcher(JOBS)
    assert meant(matcher, "./sync.sh") == meant(matcher, "twin-2") == ("twin-1", "twin-2")
    assert len(matcher.groups) == len(JOBS) - 1


def test_a_command_that_is_cut_means_the_only_one_that_begins_so() -> None:
    long = "x" * 60
    matcher = Matcher([job("a", f"{long} 1"), job("b", f"{long} 2"), job("c", "y" * 80)])
    assert meant(matcher, long, cut=True) is None
    assert meant(matcher, "y" * 50, cut=True) == ("c",)
    assert Matcher([job("c", "y" * 80)]).find("y" * 20, cut=True) is None


def test_a_mapping_comes_first() -> None:
    lines = ["# text, job", "", '"old, name",load', "/usr/bin/foo *,dump", "load,hourly"]
    matcher = Matcher(JOBS, read_mapping(lines, [one["name"] for one in JOBS]))
    assert meant(matcher, "old,  name") == ("load",)
    assert meant(matcher, "/usr/bin/foo --x") == ("dump",)
    assert meant(matcher, "/usr/bin/fo") is None
    assert meant(matcher, "load") == ("hourly",)


@pytest.mark.parametrize(
    ("line", "reason"),
    [("a", "line 1: expected a text and the name of a job, got 1 columns"),
     ("a,nighly", 'line 1: no job named "nighly" is compared; did you mean nightly?')],
)  # fmt: skip
def test_a_wrong_line_of_a_mapping_is_refused(line: str, reason: str) -> None:
    with pytest.raises(InputError) as refused:
        read_mapping([line], ["nightly"])
    assert str(refused.value) == f"map: {reason}"


def test_a_similar_command_is_a_hint_only_for_a_job_without_starts() -> None:
    matcher = Matcher(JOBS)
    text = "cd / && run-parts --report /etc/cron.daily"
    assert matcher.hints([text], range(len(matcher.groups))) == {text: "hourly"}
    assert matcher.hints([text], []) == {}


def test_bytes_are_printed_as_cron_does() -> None:
    assert as_cron_prints("a\tb\x7fä%") == "a^Ib^?\\303\\244%"


# ---- pairs

MINUTE = 60.0


def pairs(slots: list[float], starts: list[float], due: list[float] | None = None, late: set[float] | None = None,
          begin_s: float = 0, end_s: float = 10_000, tolerance_s: float = 60) -> Comparison:  # fmt: skip
    span = ComparedTime(begin_s, end_s, tolerance_s)
    return compare(("j",), array("d", slots), late or set(), array("d", starts), array("d", due or starts), span)


def counts(found: Comparison) -> tuple[int, int, int]:
    return found.matched, found.only_here, found.only_there


def test_starts_a_moment_after_or_before_their_slots_are_paired() -> None:
    found = pairs([600, 1200, 1800], [601.5, 1199.2, 1805])
    assert counts(found) == (3, 0, 0) and not found.differs
    assert (found.lateness_p50_s, found.lateness_max_s) == (1.5, 5)


def test_a_missing_start_does_not_shift_the_others() -> None:
    slots = [MINUTE * n for n in range(1, 100)]
    found = pairs(slots, [slot + 1 for slot in slots if slot != 600])
    assert counts(found) == (98, 1, 0)
    assert [one.timestamp() for one in found.here] == [600]


def test_a_second_start_and_one_between_slots_are_only_there() -> None:
    found = pairs([600, 1200], [601, 602, 900, 1201])
    assert counts(found) == (2, 0, 2)
    assert [one.timestamp() for one in found.there] == [602, 900]


def test_two_jobs_may_have_a_slot_at_one_time() -> None:
    assert counts(pairs([600, 600, 1200], [601, 602, 1201])) == (3, 0, 0)
    assert counts(pairs([600, 600, 1200], [601, 1201])) == (2, 1, 0)


def test_the_edges_of_the_time_are_not_counted() -> None:
    slots = [0.0, 600, 1200, 1800]
    found = pairs(slots, [1, 601], begin_s=600, end_s=1230)
    assert counts(found) == (1, 0, 0), "the slot at 1200 may still start, and the first start is that of a slot before"


def test_a_planned_time_decides_and_lateness_counts_from_it() -> None:
    found = pairs([600, 1200], [900, 1205], due=[600, 1200])
    assert counts(found) == (2, 0, 0)
    assert found.lateness_max_s == 300


def test_slots_that_were_decided_late_are_counted() -> None:
    assert pairs([600, 1200], [601, 1201], late={600}).decided_late == 1


def test_many_differences_are_counted_and_few_are_kept() -> None:
    found = pairs([10.0 * n for n in range(1, 500)], [], tolerance_s=1)
    assert (found.only_here, len(found.here)) == (499, 100)


def test_each_slot_and_each_start_is_counted_once() -> None:
    rng = Random(7)
    for _ in range(300):
        slots = sorted(rng.choice([60.0, 61, 120]) * rng.randrange(1, 30) for _ in range(rng.randrange(40)))
        starts = sorted(rng.uniform(0, 2000) for _ in range(rng.randrange(40)))
        found = pairs(slots, starts, begin_s=-1000, tolerance_s=rng.choice([0.5, 30, 90]))
        assert found.matched + found.only_here == len(slots)
        assert found.matched + found.only_there == len(starts)


def test_a_line_of_a_crontab_with_bash_is_known_by_the_line_alone() -> None:
    from datetime import UTC, datetime

    from pgsched.importers.crontab.importing import CrontabOptions, import_crontab

    text = "SHELL=/bin/bash\n5 * * * * [[ -f /x ]] &&  ./a.sh\n"
    (made,) = import_crontab(text, CrontabOptions("UTC", datetime(2026, 5, 1, tzinfo=UTC))).jobs
    matcher = Matcher([{"name": made.name, **made.columns}])
    assert meant(matcher, "[[ -f /x ]] && ./a.sh") == (made.name,)
    assert meant(matcher, "/bin/bash -c [[ -f /x ]] && ./a.sh") == (made.name,)
    assert meant(Matcher([job("other", "/bin/echo", "command", ["x"])]), "x") is None
