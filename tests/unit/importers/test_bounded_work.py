"""Small sources that name one text or value many times: what an import makes of them stays small, and is quick."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from pgsched.errors import InputError
from pgsched.importers import imported as limits
from pgsched.importers.apscheduler import pickles
from pgsched.importers.apscheduler.jobs import import_states
from pgsched.importers.apscheduler.pickles import PickleRefused, read_pickle
from pgsched.importers.arguments import add_arguments
from pgsched.importers.crontab.importing import CrontabOptions, import_crontab
from pgsched.importers.crontab.lines import LONGEST_LINE, BadLine, read_crontab
from pgsched.importers.imported import Imported, ImportedJob, Reason, count_characters, merge_imported
from pgsched.importers.kubernetes import cronjobs
from pgsched.importers.kubernetes.cronjobs import ManifestOptions, import_cronjobs
from pgsched.importers.kubernetes.fields import MOST_LISTED
from pgsched.importers.systemd.command_lines import CommandRefused, parse_commands
from pgsched.importers.systemd.elapse import elapse_settings
from pgsched.importers.systemd.units import Unit
from tests.support.importing.stores import dump, interval, job_state

NOW = datetime(2026, 5, 1, tzinfo=UTC)
TOO_LONG_S = 5.0  # of the processor; each of these takes minutes or hours where the work is not bounded


@contextmanager
def quick() -> Iterator[None]:
    """Check that a block computes for a bounded time."""
    begun = time.process_time()
    yield
    assert time.process_time() - begun < TOO_LONG_S


def manifest(**container: Any) -> dict[str, Any]:
    full = {"name": "a", "image": "shop:1", "command": ["shop"], **container}
    pod = {"spec": {"containers": [full]}}
    return {"kind": "CronJob", "metadata": {"name": "a"},
            "spec": {"schedule": "0 6 * * *", "jobTemplate": {"spec": {"template": pod}}}}  # fmt: skip


def test_variables_that_double_each_time_are_refused() -> None:
    env = [{"name": "A0", "value": "x" * 10}, *({"name": f"A{n}", "value": f"$(A{n - 1})" * 2} for n in range(1, 36))]
    with quick():
        found = import_cronjobs(yaml.safe_dump(manifest(env=env)), ManifestOptions(NOW))
    assert found.jobs == []
    assert "more than 1,048,576 characters" in found.omitted[0].remark.text


def test_signs_that_begin_no_variable_take_no_quadratic_time() -> None:
    with quick():
        found = import_cronjobs(yaml.safe_dump(manifest(args=["$(" * 40_000, "$" * 90_000])), ManifestOptions(NOW))
    assert [len(one) for one in found.jobs[0].columns["args"]["argv"]] == [80_000, 45_000]


def test_a_list_that_aliases_name_many_times_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    found = import_cronjobs(yaml.safe_dump(manifest(args=["x"] * (MOST_LISTED + 1))), ManifestOptions(NOW))
    assert f"has more than {MOST_LISTED} values" in found.omitted[0].remark.text
    rules = manifest()
    rules["spec"]["jobTemplate"]["spec"]["podFailurePolicy"] = {"rules": [{"action": "Count"}] * 21}
    assert "more than 20 rules" in import_cronjobs(yaml.safe_dump(rules), ManifestOptions(NOW)).omitted[0].remark.text
    monkeypatch.setattr(cronjobs, "MOST_ITEMS", 3)
    listed = yaml.safe_dump({"kind": "List", "items": [manifest()] * 4})
    cut = import_cronjobs(listed, ManifestOptions(NOW))
    assert cut.jobs == []
    assert "more than 3 items" in cut.omitted[0].remark.text


def test_the_characters_of_all_jobs_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_CHARACTERS", 100_000)
    with pytest.raises(InputError, match="import the source in parts"):
        import_crontab(f"A={'a' * 9000}\n" + "* * * * * b\n" * 20, CrontabOptions("UTC", NOW))
    job = ImportedJob("a", {"task": "a" * 40_000}, [], "line 1")
    parts = [Imported([job]), Imported([job]), Imported([job])]
    with pytest.raises(InputError, match="import the source in parts"):
        merge_imported(parts)
    assert count_characters({"a": [1, "bc", {}], "d": None}) >= 4


def test_a_setting_is_as_long_as_a_line_at_most() -> None:
    with quick():
        found = list(read_crontab(f"A=x{' ' * 1_000_000}x\nB=x{' ' * 60_000}x\n* * * * * b\n", user_column=False))
    assert isinstance(found[0], BadLine)
    assert found[0].remark.text == f"longer than {LONGEST_LINE} characters"
    assert len(found) == 3


def test_a_variable_that_a_command_names_many_times_makes_it_a_unit() -> None:
    unit = Unit("a.service")
    with quick(), pytest.raises(CommandRefused, match="more than"):
        parse_commands(unit, "/bin/a " + "${V} " * 100_000, {"V": "v" * 500_000})


@pytest.mark.parametrize(
    "text",
    ["[Timer]\n" + "A=\n" * 150_000, "[Timer]\n" + "A=x\nA=\n" * 75_000 + "B=x\n" * 50_000,
     "[Timer]\n" + "OnCalendar=daily\n" * 60_000, "[Timer]\nA=" + "\\\n" * 400_000],
)  # fmt: skip
def test_a_unit_is_read_in_linear_time(text: str) -> None:
    unit = Unit("a.timer")
    with quick():
        unit.read(text)
        elapse_settings(unit)
    assert "A" not in {name for name, value in unit.items("Timer") if value == "x"}


def test_a_text_that_arguments_name_many_times_is_left_out() -> None:
    text = "a" * 800_000
    columns: dict[str, Any] = {}
    with quick():
        remarks = add_arguments(columns, [text] * 49_000, None)
    assert columns == {}
    assert [one.reason for one in remarks] == [Reason.ARGUMENTS]


def nested(levels: int) -> Any:
    """Return lists in lists, each twice in the next: 2^levels values in all."""
    found: list[Any] = []
    for _ in range(levels):
        found = [found, found]
    return found


def test_a_random_delay_that_is_no_number_is_not_written_out() -> None:
    state = read_pickle(dump(job_state(trigger=interval(60))))
    state["trigger"].state["jitter"] = nested(60)
    with quick():
        found = import_states([("a", state)], [], NOW)
    assert found.jobs == []
    assert "jitter" in found.omitted[0].remark.text


def test_numbers_in_the_memo_that_were_made_to_collide_are_refused() -> None:
    with pytest.raises(PickleRefused, match="memo"):
        read_pickle(b"N" + f"p{2**61 - 1}\n".encode() + b".")
    assert read_pickle(b"\x80\x04Nr" + (pickles.MOST_OPCODES).to_bytes(4, "little") + b".") is None
