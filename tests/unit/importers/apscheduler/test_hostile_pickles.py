"""Pickles that were made to do harm: nothing in them is imported or called, and reading them is bounded."""

from __future__ import annotations

import os
import pickle
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pgsched.importers.apscheduler import pickles
from pgsched.importers.apscheduler.jobs import MOST_JOBS, Row, import_export, import_rows, import_states
from pgsched.importers.apscheduler.pickles import Foreign, Named, PickleRefused, read_pickle
from pgsched.importers.imported import Imported, Reason
from tests.support.fuzz.profile import examples
from tests.support.importing.slots import NOW
from tests.support.importing.stores import Called, Pickled, cron_trigger, dump, interval, job_state, number, zone

COMBINATION = "apscheduler.triggers.combining:OrTrigger"


class Evil:
    """Pickles as the call of a function, as any class may."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.function, self.args = function, args

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self.function, self.args


def read(state: Any) -> Imported:
    return import_rows([Row("nightly", dump(state))], NOW)


@pytest.mark.parametrize("protocol", range(6))
def test_a_call_is_named_and_not_made(tmp_path: Path, protocol: int) -> None:
    witness = tmp_path / "called"
    data = pickle.dumps(Evil(os.system, f"touch {witness}"), protocol)
    assert read_pickle(data) == Foreign(f"{os.system.__module__}.system")
    found = import_rows([Row("x", data)], NOW)
    assert found.jobs == []
    assert not witness.exists()


def test_a_module_that_is_named_is_not_imported() -> None:
    data = b"cantigravity\nfly\n)R."
    assert read_pickle(data) == Foreign("antigravity.fly")
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "function",
    ["os.system", "builtins.eval", "builtins.exec", "builtins.__import__", "subprocess.Popen", "pickle.loads",
     "operator.attrgetter", "apscheduler.util.ref_to_obj", "importlib.import_module", "builtins.open", "pty.spawn",
     "zoneinfo.ZoneInfo.from_file", "datetime.datetime.strptime", "_codecs.decode", "copyreg.add_extension"],
)  # fmt: skip
def test_only_the_calls_of_the_closed_list_are_read(function: str) -> None:
    assert read_pickle(dump(Called(function, "id"))) == Foreign(function)


def test_getattr_gives_no_name_but_that_of_the_zones() -> None:
    for owner, attribute, allowed in (
        (b"czoneinfo\nZoneInfo\n", "_unpickle", True),
        (b"czoneinfo\nZoneInfo\n", "from_file", False),
        (b"cos\npath\n", "os", False),
    ):
        data = b"cbuiltins\ngetattr\n(" + owner + pickle.dumps(attribute, 0)[:-1] + b"tR."
        expected = Named("zoneinfo.ZoneInfo._unpickle") if allowed else Foreign("builtins.getattr")
        assert read_pickle(data) == expected


def test_the_result_of_a_call_is_not_called() -> None:
    data = b"cbuiltins\ngetattr\n(cos\nsystem\n" + pickle.dumps("x", 0)[:-1] + b"tR)R."
    assert read_pickle(data) == Foreign("builtins.getattr")


@pytest.mark.parametrize(
    "opcode",
    [b"\x82\x01", b"\x83\x01\x00", b"\x84\x01\x00\x00\x00", b"Pid\n", b"NQ", b"(cos\nsystem\no", b"(ios\nsystem\n",
     b"\x97"],
)  # fmt: skip
def test_opcodes_that_no_job_store_has_are_refused(opcode: bytes) -> None:
    with pytest.raises(PickleRefused):
        read_pickle(b"\x80\x05" + opcode + b".")


def test_a_job_with_a_foreign_trigger_is_left_out_and_named() -> None:
    found = read(job_state(trigger=Pickled("shop.triggers.FullMoon", {"a": 1})))
    assert found.jobs == []
    (left,) = found.omitted
    assert left.remark.reason is Reason.SCHEDULE
    assert "shop.triggers.FullMoon" in left.remark.text


def test_a_foreign_argument_is_left_out_and_named() -> None:
    (job,) = read(job_state(args=(Called("os.system", "id"), 1))).jobs
    assert "args" not in job.columns
    (remark,) = (one for one in job.remarks if not one.reason.informs)
    assert remark.reason is Reason.ARGUMENTS
    assert "os.system" in remark.text


def calendar_interval(**changed: Any) -> Pickled:
    """Return a calendar interval of a day at 5:00, from 1 January 2026 on."""
    state = {"start_date": Called("datetime.date", b"\x07\xea\x01\x01"), "end_date": None, "interval": [0, 0, 0, 1],
             "time": [5, 0, 0], "timezone": zone("UTC"), "jitter": None}  # fmt: skip
    return Pickled("apscheduler.triggers.calendarinterval.CalendarIntervalTrigger", state | changed)


def one_in_another(levels: int) -> Pickled:
    """Return combinations of one trigger each, in each other."""
    state: dict[str, Any] = {"triggers": []}
    for _ in range(levels):
        state = {"triggers": [(COMBINATION, state)]}
    return Pickled(COMBINATION.replace(":", "."), state)


def test_a_calendar_interval_is_read() -> None:
    (job,) = read(job_state(trigger=calendar_interval())).jobs
    assert job.columns["schedule"] == "0 5 * * *"


def test_a_combination_that_holds_only_itself_is_named() -> None:
    state = read_pickle(dump(job_state(trigger=one_in_another(1))))
    own = state["trigger"].state
    own["triggers"] = [(COMBINATION, own)]
    found = import_states([("a", state), ("good", read_pickle(dump(job_state())))], [], NOW)
    assert [job.name for job in found.jobs] == ["good"]
    assert "nested too deeply" in found.omitted[0].remark.text


def test_a_value_that_nobody_foresaw_ends_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    from pgsched.importers.apscheduler import jobs

    def fail(*_: Any) -> None:
        raise OverflowError

    monkeypatch.setattr(jobs, "add_instances", fail)
    found = read(job_state())
    assert (found.jobs, found.omitted[0].remark.text) == ([], "a damaged state: OverflowError")


@pytest.mark.parametrize(
    "changed",
    [
        {"func": 7}, {"trigger": None}, {"trigger": 5}, {"name": [1]}, {"max_instances": "a"}, {"max_instances": -1},
        {"misfire_grace_time": 10**400}, {"misfire_grace_time": [1]}, {"executor": 5}, {"kwargs": {"a": float("nan")}},
        {"args": ["\0"]}, {"func": "a" * 100_000}, {"id": None}, {"next_run_time": {}}, {"coalesce": []},
        {"trigger": Pickled("apscheduler.triggers.interval.IntervalTrigger", {"interval": 5, "start_date": None})},
        {"trigger": Pickled("apscheduler.triggers.interval.IntervalTrigger", {})},
        {"trigger": Pickled("apscheduler.triggers.date.DateTrigger", {"run_date": zone("UTC")})},
        {"trigger": Pickled("apscheduler.triggers.date.DateTrigger",
                            {"run_date": Called("datetime.datetime", b"\xff" * 10, zone("../../etc/passwd"))})},
        {"trigger": Pickled("apscheduler.triggers.combining.OrTrigger", {"triggers": [], "jitter": None})},
        {"trigger": Pickled("apscheduler.triggers.combining.OrTrigger", {"triggers": [("os:system", {})]})},
        {"trigger": Pickled("apscheduler.triggers.cron.CronTrigger", {"fields": [], "timezone": zone("UTC")})},
        {"trigger": Pickled("apscheduler.triggers.cron.CronTrigger", (None, None, None))},
        {"max_instances": 10**5000}, {"trigger": interval(60, jitter=10**5000)},
        {"trigger": interval(60, jitter=float("nan"))},
        {"trigger": calendar_interval(time=[30, 0, 0])}, {"trigger": calendar_interval(time=[5.0, 0, 0])},
        {"trigger": calendar_interval(interval=[0, 1.0, 0, 0])},
        {"trigger": cron_trigger(zone("Europe/Berlin"), month=[number(2)], day=[number(30)])},
        {"trigger": one_in_another(100)},
    ],
)  # fmt: skip
def test_damaged_states_are_jobs_or_named(changed: dict[str, Any]) -> None:
    found = import_rows([Row("good", dump(job_state())), Row("bad", dump(job_state(**changed)))], NOW)
    assert found.jobs[0].name == "good"
    assert len(found.jobs) + len(found.omitted) == 2


def test_no_more_bytes_are_read_than_a_job_needs() -> None:
    with pytest.raises(PickleRefused, match="at most"):
        read_pickle(b"\x80\x04" + b"N0" * pickles.MOST_BYTES + b"N.")


def test_no_more_opcodes_are_followed_than_a_job_needs() -> None:
    with pytest.raises(PickleRefused, match="opcodes"):
        read_pickle(b"\x80\x04" + b"N0" * (pickles.MOST_OPCODES // 2) + b"N.")


def test_a_number_in_the_memo_takes_no_memory() -> None:
    """Python's own unpickler makes room for as many values as the number says: here 16 GiB."""
    tracemalloc.start()
    with pytest.raises(PickleRefused, match="memo"):
        read_pickle(b"\x80\x04Nr\xff\xff\xff\x7f.")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1024 * 1024


def test_a_length_that_is_not_there_takes_no_memory() -> None:
    tracemalloc.start()
    with pytest.raises(PickleRefused):
        read_pickle(b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\x00\x00abc.")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1024 * 1024


def nested(levels: int) -> bytes:
    """Return a pickle of lists in lists, each twice in the next: 2^levels values in all."""
    lists = b"".join(b"](h%ch%ce\x940" % (level, level) for level in range(levels))
    return b"\x80\x04](NNe\x940" + lists + b"h%c." % levels


def test_arguments_that_are_the_same_many_times_are_left_out_at_once() -> None:
    state = read_pickle(nested(60))
    found = import_export_of(state)
    (job,) = found.jobs
    assert [one.reason for one in job.remarks if not one.reason.informs] == [Reason.ARGUMENTS]


def test_arguments_that_contain_themselves_are_left_out() -> None:
    circle: list[Any] = []
    circle.append(circle)
    (job,) = import_export_of(circle).jobs
    assert [one.reason for one in job.remarks if not one.reason.informs] == [Reason.ARGUMENTS]


def import_export_of(arguments: Any) -> Imported:
    """Import a job with these arguments."""
    return import_states([("a", read_pickle(dump(job_state())) | {"args": arguments})], [], NOW)


def test_keys_that_were_made_to_collide_are_refused() -> None:
    """A dictionary of 10,000 numbers with one hash takes half a minute."""
    prime = 2**61 - 1
    with pytest.raises(PickleRefused, match="key"):
        read_pickle(pickle.dumps({n * prime: None for n in range(1, 1000)}, 4))


def test_a_string_of_digits_takes_no_quadratic_time() -> None:
    started = time.process_time()
    with pytest.raises(PickleRefused):
        read_pickle(b"L" + b"9" * 500_000 + b"L\n.")
    assert time.process_time() - started < 1


@examples(150, 300)
@given(st.data())
def test_whatever_the_bytes_are_they_are_a_job_or_named(data: st.DataObject) -> None:
    whole = bytearray(dump(job_state(args=(1, "a"))))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(whole) - 1))
        match data.draw(st.sampled_from(["set", "cut", "copy"])):
            case "set":
                whole[at] = data.draw(st.integers(0, 255))
            case "cut":
                del whole[at : at + data.draw(st.integers(1, 40))]
            case "copy":
                whole[at:at] = whole[: data.draw(st.integers(1, 40))]
        whole = whole or bytearray(b".")
    found = import_rows([Row("a", bytes(whole))], NOW)
    assert len(found.jobs) + len(found.omitted) == 1


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"version": 2, "jobs": []}', "[" * 100_000, '{"version": 1, "jobs": 7}']
)
def test_a_file_that_export_jobs_did_not_write_is_refused(text: str) -> None:
    from pgsched.errors import InputError

    with pytest.raises(InputError):
        import_export(text, NOW)


def test_pickles_inside_an_exported_file_are_read_in_the_same_way(tmp_path: Path) -> None:
    import base64

    witness = tmp_path / "called"
    evil = base64.b64encode(pickle.dumps(Evil(os.system, f"touch {witness}"))).decode()
    text = (
        '{"version": 1, "jobs": [{"id": "a", "func": "a:b", "trigger": {"__apscheduler_pickle__": "%s"}},'
        ' {"id": "b", "func": "a:b", "trigger": {"__apscheduler_class__": "os:system", "__apscheduler_state__": {}}}]}'
    )
    found = import_export(text % evil, NOW)
    assert [left.where for left in found.omitted] == ["job a", "job b"]
    assert not witness.exists()


def test_more_jobs_than_anybody_has_are_refused() -> None:
    from pgsched.errors import InputError

    row = Row("a", b"N.")
    with pytest.raises(InputError, match="at most"):
        import_rows([row] * (MOST_JOBS + 1), NOW)
