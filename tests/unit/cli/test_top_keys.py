"""The keys of `pgsched top`, without a terminal: each key gives a new state and the changes to make."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pgsched.cli.top.control import QUIT, press
from pgsched.cli.top.frame import frame, selectable_items, selected_item
from pgsched.cli.top.keys import decode_keys
from pgsched.cli.top.state import State
from pgsched.services.top import Change, Page
from tests.support.cli.top_sample import ROWS, job, look, run, state, text, typed

# ---- keys


def test_bytes_become_keys() -> None:
    assert decode_keys(b"q\x1b[A\x1b[B\x1bOC\x1b[5~\x1b[1;5D\r\t\x1b[Z\x7f\x0c") == (
        ["q", "up", "down", "right", "pgup", "left", "enter", "tab", "backtab", "backspace", "ctrl-l"],
        b"",
    )
    assert decode_keys("ü日👍".encode()) == (["ü", "日", "👍"], b"")


def test_a_key_that_comes_in_pieces_is_decoded_when_it_is_complete() -> None:
    for whole, name in ((b"\x1b[6~", "pgdn"), ("日".encode(), "日"), (b"\x1bOA", "up")):
        for cut in range(1, len(whole)):
            found, rest = decode_keys(whole[:cut])
            assert (found, rest) == ([], whole[:cut])
            assert decode_keys(rest + whole[cut:]) == ([name], b"")


def test_a_single_escape_byte_is_the_escape_key() -> None:
    assert decode_keys(b"\x1b", all_there=True) == (["esc"], b"")
    assert decode_keys(b"\x1b\x1b[A") == (["esc", "up"], b"")


def test_an_unknown_escape_sequence_is_ignored() -> None:
    assert decode_keys(b"\x1b[24;5~\x1b[<0;10;10M\x1b[?1;2c") == ([], b"")


def test_pasted_text_is_no_command() -> None:
    found, rest = decode_keys(b"\x1b[200~cyq\r\n\x1b[201~")
    assert (found, rest) == (["paste:cyq\r\n"], b"")
    assert typed(state("running"), *found) == (state("running"), [])
    shown, wanted = typed(state("running"), "c", "y", *found, "enter")
    assert wanted == [Change("cancel", "run", 50, "cyq")]
    assert shown.prompt is None


# ---- pages and selection


def test_numbers_and_tab_choose_a_page() -> None:
    assert typed(state(), "4")[0].page == Page("jobs")
    assert typed(state(), "tab")[0].page == Page("running")
    assert typed(state(), "backtab")[0].page == Page("workers")
    assert typed(state(), "9", "0", "²")[0].page == Page("overview")


def test_enter_opens_the_selected_item_and_escape_goes_back() -> None:
    shown, _ = typed(state("jobs"), "j", "enter")
    assert shown.page == Page("job", "nightly")
    shown = replace(shown, look=look("job", "nightly"))
    shown, _ = typed(shown, "j", "enter")
    assert shown.page == Page("run", 41)
    assert typed(shown, "esc")[0].page == Page("job", "nightly")
    assert typed(shown, "esc", "left")[0].page == Page("jobs")
    assert typed(shown, "esc", "esc", "esc")[0].page == Page("jobs")
    assert typed(shown, "3")[0].page == Page("queues")


def test_the_selection_stays_on_its_row_when_the_order_changes() -> None:
    shown, _ = typed(state("running"), "down")
    there = ROWS["running"]["running"]
    turned = look("running", rows={"running": [there[2], there[0], there[1]]})
    found = selected_item(replace(shown, look=turned))
    assert found is not None
    assert found.target == ("run", 51)


def test_when_the_selected_row_disappears_the_nearest_one_is_selected() -> None:
    shown, _ = typed(state("running"), "end")
    there = ROWS["running"]["running"]
    found = selected_item(replace(shown, look=look("running", rows={"running": there[:2]})))
    assert found is not None
    assert found.target == ("run", 51)
    assert selected_item(replace(shown, look=look("running", rows={"running": []}))) is None


@pytest.mark.long
@pytest.mark.parametrize("name", ["jobs", "failures", "job", "overview"])
def test_every_line_can_be_reached_and_is_seen_when_selected(name: str) -> None:
    rows = {
        "jobs": {"jobs": [job(f"job {n}") for n in range(99)]},
        "failures": {"failing": [run(n, "scheduled") for n in range(30)],
                     "failures": [run(n, "dead") for n in range(30, 90)]},
        "job": {"job": [job("nightly")], "runs": [run(n) for n in range(60)]},
        "overview": ROWS["overview"],
    }[name]  # fmt: skip
    shown = state(name)
    shown = replace(shown, look=look(shown.page.name, shown.page.key, rows))
    for item in selectable_items(shown):
        found = selected_item(shown)
        assert found is not None
        assert found.target == item.target
        assert sum(line.plain.startswith(">") for line in frame(shown)) == 1
        shown, _ = press(shown, "down")
    shown, _ = press(shown, "home")
    found = selected_item(shown)
    assert found is not None
    assert found.target == selectable_items(shown)[0].target


def test_a_filter_keeps_only_the_rows_that_contain_its_text() -> None:
    shown, _ = typed(state("running"), "/", *"COPY")
    assert len(selectable_items(shown)) == 0, "progress is drawn, not searched"
    shown, _ = typed(state("failures"), "/", *"too la", "enter")
    assert [item.target for item in selectable_items(shown)] == [("run", 40)]
    assert " /too la" in text(shown)
    shown, _ = typed(shown, "/", "backspace", "ctrl-u", *"xyz")
    assert selectable_items(shown) == []
    shown, _ = typed(shown, "esc")
    assert len(selectable_items(shown)) == 4
    assert press(shown, "q") == (shown, QUIT)


def test_the_filter_of_the_jobs_page_is_applied_by_the_database() -> None:
    shown, _ = typed(state("jobs"), "/", *"nig", "enter")
    assert shown.page == Page("jobs", find="nig")
    assert shown.current_look is not None, "what was read before is shown meanwhile"


def test_the_page_of_a_run_follows_the_end_of_its_log_until_it_is_scrolled() -> None:
    log = [{"attempt": 1, "seq": 1, "stream": "stdout", "chunk": "".join(f"line {n}\n" for n in range(100))}]
    shown = state("run", look=look("run", 50, {"run": [run(50)], "log": log}))
    assert "line 99" in text(shown)
    assert "run 50 nightly: running" in text(shown)
    up, _ = press(shown, "up")
    assert "line 98" in text(up)
    assert "line 99" not in text(up)
    top, _ = press(up, "home")
    assert "line 0\n" in text(top)
    assert "line 98" not in text(top)
    assert typed(top, "G")[0].scroll is None
    down = top
    while down.scroll is not None:
        down, _ = press(down, "pgdn")
    assert "line 99" in text(down)


# ---- commands


def test_cancel_asks_for_confirmation_and_takes_a_reason() -> None:
    shown, wanted = typed(state("running"), "c")
    assert wanted == []
    assert "cancel run 50 nightly? y/N" in text(shown)
    shown, wanted = typed(shown, "y")
    assert wanted == []
    shown, wanted = typed(shown, *"wrong dxx", "backspace", "backspace", *"ata", "enter")
    assert wanted == [Change("cancel", "run", 50, "wrong data")]
    assert shown.prompt is None


@pytest.mark.parametrize("said_no", ["c n", "c enter", "c esc", "c y esc", "c y x esc"])
def test_a_cancel_that_is_not_confirmed_changes_nothing(said_no: str) -> None:
    shown, wanted = typed(state("running"), *said_no.split())
    assert wanted == []
    assert shown.prompt is None


def test_a_command_changes_the_row_that_was_selected_at_the_key_press() -> None:
    shown, _ = typed(state("running"), "c", "y")
    shown = replace(shown, look=look("running", rows={"running": ROWS["running"]["running"][1:]}))
    assert typed(shown, "enter")[1] == [Change("cancel", "run", 50)]


def test_a_dead_run_is_retried() -> None:
    shown, _ = typed(state("failures"), "down", "down")
    assert typed(shown, "r", "y")[1] == [Change("retry", "run", 41)]
    dead = look("run", 41, {"run": [ROWS["failures"]["failures"][0]], "log": []})
    assert typed(State(opened_targets=(("run", 41),), look=dead), "r", "y")[1] == [Change("retry", "run", 41)]


def test_a_command_that_does_not_apply_says_why() -> None:
    for shown, key, said_so in (
        (state("running"), "r", "only dead, cancelled, missed and skipped runs"),
        (typed(state("failures"), "down", "down")[0], "c", "run 41 nightly: it has ended"),
        (state("jobs"), "c", "no run is selected to cancel"),
        (state("running"), "p", "p pauses a job or a queue"),
        (state("workers"), "o", "no run of a job is selected"),
    ):
        after, wanted = typed(shown, key)
        assert wanted == []
        assert said_so in text(after)


def test_a_job_and_a_queue_are_paused_with_a_reason_and_resumed() -> None:
    on_job, _ = typed(state("jobs"), "down")
    assert typed(on_job, "p", *"why", "enter")[1] == [Change("pause", "job", "nightly", "why")]
    assert typed(on_job, "down", "p", "y")[1] == [Change("resume", "job", "weekly")]
    assert typed(state("queues"), "p", "enter")[1] == [Change("pause", "queue", "default")]
    assert typed(state("queues"), "down", "p", "y")[1] == [Change("resume", "queue", "mail")]


def test_p_pauses_or_resumes_the_job_or_queue_of_the_page() -> None:
    assert typed(state("job"), "p", "enter")[1] == [Change("pause", "job", "nightly")]
    paused = look("job", "nightly", {"job": [job("nightly", "paused")], "runs": [run(50)]})
    assert typed(state("job", look=paused), "p", "y")[1] == [Change("resume", "job", "nightly")]
    assert typed(state("queue"), "p", "enter")[1] == [Change("pause", "queue", "default")]


def test_o_opens_the_job_of_a_run() -> None:
    assert typed(state("run"), "o")[0].page == Page("job", "nightly")
    assert typed(state("failures"), "down", "o")[0].page == Page("job", "nightly")


def test_while_a_prompt_is_open_keys_are_text_and_no_commands() -> None:
    shown, wanted = typed(state("jobs"), "p", *"q4r?")
    assert wanted == []
    assert shown.page == Page("jobs")
    assert shown.prompt is not None
    assert shown.prompt.text == "q4r?"


def test_the_help_names_every_key_and_any_key_ends_it() -> None:
    shown, _ = typed(state(), "?")
    assert all(f" {key} " in text(shown) for key in ("Enter", "o", "c", "r", "p", "/", "q,"))
    assert "…" not in text(shown)
    assert not typed(shown, "x")[0].help
    assert typed(shown, "q")[1] == [QUIT]
