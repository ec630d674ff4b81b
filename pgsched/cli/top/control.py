"""The keys of `pgsched top`: what each key does to the state.

Invariant: a key makes a new state and at most one action. Every change is confirmed first. It applies to the line that
was selected when the key was pressed, even if another line has moved into its place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pgsched.cli.top import PAGES, frame
from pgsched.cli.top.pieces import Item
from pgsched.cli.top.state import Note, Pick, Prompt, State
from pgsched.services.top import Change

QUIT, REDRAW = "quit", "redraw"
KeyResult = tuple[State, Change | str | None]
FAR = 10**9
REASON = "reason (Enter: none, Esc: no):"
LONGEST = 500
PASTE = "paste:"
OPENED = ("run", "job", "queue")


def press(state: State, key: str) -> KeyResult:
    """Return the state after a key, and the action to take: a Change, QUIT, REDRAW or None."""
    state = replace(state, note=None)
    if key == "ctrl-l":
        return state, REDRAW
    if state.prompt is not None:
        return answer_prompt(state, state.prompt, key)
    if state.help:
        return (state, QUIT) if key == "q" else (replace(state, help=False), None)
    if key == "q":
        return state, QUIT
    if key in ACTION_KEYS:
        return ACTION_KEYS[key](state), None
    if key in MOVEMENT_KEYS:
        return move_selection(state, MOVEMENT_KEYS[key](state)), None
    return (NAVIGATION_KEYS[key](state) if key in NAVIGATION_KEYS else open_tab(state, key)), None


# ---- moving between pages and lines


def open_tab(state: State, key: str) -> State:
    """Show the page with the number of this key; ignore other keys."""
    if key.isdecimal() and 1 <= int(key) <= len(PAGES):
        return replace(state, tab=PAGES[int(key) - 1], opened_targets=(), scroll=None)
    return state


def turn_page(state: State, by: int) -> State:
    """Show the next page (`by` is 1) or the previous one (-1)."""
    return replace(state, tab=PAGES[(PAGES.index(state.tab) + by) % len(PAGES)], opened_targets=(), scroll=None)


def open_selected(state: State) -> State:
    """Show the page of the run, job or queue on the selected line."""
    item = frame.selected_item(state)
    if item is None or item.target is None or item.target[0] not in OPENED:
        return state
    return replace(state, opened_targets=(*state.opened_targets, item.target), scroll=None)


def open_job_of_run(state: State) -> State:
    """Show the page of the selected run's job."""
    item = frame.item_for_action(state)
    if item is None or item.job is None:
        return with_refusal(state, "no run of a job is selected")
    if state.opened_targets[-1:] == (("job", item.job),):
        return state
    return replace(state, opened_targets=(*state.opened_targets, ("job", item.job)), scroll=None)


def go_back(state: State) -> State:
    """Go back one step; on a tab, remove its filter."""
    if state.opened_targets:
        return replace(state, opened_targets=state.opened_targets[:-1], scroll=None)
    return replace(state, filters={**state.filters, state.tab: ""})


def show_help(state: State) -> State:
    """Show the help."""
    return replace(state, help=True)


def move_selection(state: State, by: int) -> State:
    """Select the line `by` lines further down; scroll on a run's page."""
    if state.page.name == "run":
        return scroll_run(state, by)
    there = frame.selectable_items(state)
    at = frame.selected_index(state, there)
    if at is None:
        return state
    to = max(0, min(len(there) - 1, at + by))
    return replace(state, selections={**state.selections, state.page_without_filter: Pick(there[to].target, to)})


def scroll_run(state: State, by: int) -> State:
    """Scroll a run's page down by `by` lines; at the end, follow new output."""
    last = max(0, frame.count_run_lines(state) - frame.body_height(state))
    if by >= FAR or last == 0:
        return replace(state, scroll=None)
    now = state.scroll if state.scroll is not None else last if by < 0 else 0  # while following, both ends are visible
    to = max(0, now + by)
    return replace(state, scroll=to if to <= last else None)


# ---- actions, each confirmed by a question


def with_refusal(state: State, text: str) -> State:
    """Return the state with a note that says why nothing was done."""
    return replace(state, note=Note(text, bad=True))


def ask_for(verb: str) -> Callable[[State], State]:
    """Return a function that asks whether to cancel or retry the selected run."""

    def ask(state: State) -> State:
        item = frame.item_for_action(state)
        target = run_of(state, item)
        if item is None or target is None:
            return with_refusal(state, f"no run is selected to {verb}")
        if verb not in item.actions:
            why = "it has ended" if verb == "cancel" else "only dead, cancelled, missed and skipped runs can be retried"
            return with_refusal(state, f"{item.name}: {why}")
        change = Change(verb, "run", target)
        reason = Prompt(f"cancel {item.name}: {REASON}", change, "") if verb == "cancel" else None
        return replace(state, prompt=Prompt(f"{verb} {item.name}? y/N", change, None, reason))

    return ask


def run_of(state: State, item: Item | None) -> int | str | None:
    """Return the id of the run that the line, or else the page, is about; None if that is not a run."""
    target = item.target if item is not None and item.target is not None else (state.opened_targets or (("", 0),))[-1]
    return target[1] if target[0] == "run" else None


def ask_for_pause(state: State) -> State:
    """Ask whether to pause the selected job or queue, or whether to end its pause."""
    item = frame.item_for_action(state)
    targets = [item.target] if item is not None and item.target is not None else []
    targets += state.opened_targets[-1:]
    target = next((one for one in targets if one is not None and one[0] in ("job", "queue")), None)
    if target is None:
        return with_refusal(state, "p pauses a job or a queue: select one (3, 4; o: the job of a run)")
    what, key = target
    resuming = (
        "resume" in item.actions if item is not None and item.target == target else frame.is_paused(state, target)
    )
    about = f"{what} {key}"
    if resuming:
        return replace(state, prompt=Prompt(f"resume {about}? y/N", Change("resume", what, key)))
    return replace(state, prompt=Prompt(f"pause {about}? {REASON}", Change("pause", what, key), ""))


def ask_for_filter(state: State) -> State:
    """Ask for the text of a filter."""
    return replace(state, prompt=Prompt("show only:", None, state.filter_text)) if state.page.name != "run" else state


def answer_prompt(state: State, prompt: Prompt, key: str) -> KeyResult:
    """Handle a key while a question is shown."""
    if key == "esc":
        ended = replace(state, prompt=None)
        return (set_filter(ended, "") if prompt.change is None else ended), None
    if prompt.text is None:
        if key not in ("y", "Y"):
            return replace(state, prompt=None, note=Note("nothing was done")), None
        if prompt.next_prompt is not None:
            return replace(state, prompt=prompt.next_prompt), None
        return replace(state, prompt=None), prompt.change
    if key == "enter":
        change = prompt.change
        return replace(state, prompt=None), change and replace(change, reason=prompt.text.strip() or None)
    text = edit_text(prompt.text, key)
    state = replace(state, prompt=replace(prompt, text=text))
    return (set_filter(state, text) if prompt.change is None else state), None


def edit_text(text: str, key: str) -> str:
    """Return the typed text after one more key."""
    if key == "backspace":
        return text[:-1]
    if key == "ctrl-u":
        return ""
    typed = key.removeprefix(PASTE) if key.startswith(PASTE) else key if len(key) == 1 else ""
    return (text + "".join(one for one in typed if one.isprintable()))[:LONGEST]


def set_filter(state: State, text: str) -> State:
    """Show only lines that contain this text."""
    picks = {spot: pick for spot, pick in state.selections.items() if spot != state.page_without_filter}
    return replace(state, filters={**state.filters, state.page.name: text}, selections=picks)


ACTION_KEYS: dict[str, Callable[[State], State]] = {
    "c": ask_for("cancel"),
    "r": ask_for("retry"),
    "p": ask_for_pause,
    "/": ask_for_filter,
}
NAVIGATION_KEYS: dict[str, Callable[[State], State]] = {
    "enter": open_selected,
    "right": open_selected,
    "l": open_selected,
    "esc": go_back,
    "left": go_back,
    "h": go_back,
    "backspace": go_back,
    "o": open_job_of_run,
    "?": show_help,
    "tab": lambda state: turn_page(state, 1),
    "backtab": lambda state: turn_page(state, -1),
}
MOVEMENT_KEYS: dict[str, Callable[[State], int]] = {
    "down": lambda _: 1,
    "j": lambda _: 1,
    "up": lambda _: -1,
    "k": lambda _: -1,
    "pgdn": lambda state: max(1, frame.body_height(state) - 2),
    "pgup": lambda state: -max(1, frame.body_height(state) - 2),
    "home": lambda _: -FAR,
    "g": lambda _: -FAR,
    "end": lambda _: FAR,
    "G": lambda _: FAR,
}
