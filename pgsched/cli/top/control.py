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
Done = tuple[State, Change | str | None]
FAR = 10**9
REASON = "reason (Enter: none, Esc: no):"
LONGEST = 500
PASTE = "paste:"
OPENED = ("run", "job", "queue")


def press(state: State, key: str) -> Done:
    """Return the state after a key, and the action to take: a Change, QUIT, REDRAW or None."""
    state = replace(state, note=None)
    if key == "ctrl-l":
        return state, REDRAW
    if state.prompt is not None:
        return answer(state, state.prompt, key)
    if state.help:
        return (state, QUIT) if key == "q" else (replace(state, help=False), None)
    if key == "q":
        return state, QUIT
    if key in ASKED:
        return ASKED[key](state), None
    if key in STEPS:
        return moved(state, STEPS[key](state)), None
    return (GOING[key](state) if key in GOING else tab(state, key)), None


# ---- moving between pages and lines


def tab(state: State, key: str) -> State:
    """Show the page with the number of this key; ignore other keys."""
    if key.isdecimal() and 1 <= int(key) <= len(PAGES):
        return replace(state, tab=PAGES[int(key) - 1], trail=(), scroll=None)
    return state


def turned(state: State, by: int) -> State:
    """Show the next page (`by` is 1) or the previous one (-1)."""
    return replace(state, tab=PAGES[(PAGES.index(state.tab) + by) % len(PAGES)], trail=(), scroll=None)


def opened(state: State) -> State:
    """Show the page of the run, job or queue on the selected line."""
    item = frame.chosen(state)
    if item is None or item.target is None or item.target[0] not in OPENED:
        return state
    return replace(state, trail=(*state.trail, item.target), scroll=None)


def its_job(state: State) -> State:
    """Show the page of the selected run's job."""
    item = frame.subject(state)
    if item is None or item.job is None:
        return with_refusal(state, "no run of a job is selected")
    if state.trail[-1:] == (("job", item.job),):
        return state
    return replace(state, trail=(*state.trail, ("job", item.job)), scroll=None)


def back(state: State) -> State:
    """Go back one step; on a tab, remove its filter."""
    if state.trail:
        return replace(state, trail=state.trail[:-1], scroll=None)
    return replace(state, filters={**state.filters, state.tab: ""})


def helped(state: State) -> State:
    """Show the help."""
    return replace(state, help=True)


def moved(state: State, by: int) -> State:
    """Select the line `by` lines further down; scroll on a run's page."""
    if state.page.name == "run":
        return scrolled(state, by)
    there = frame.items(state)
    at = frame.place(state, there)
    if at is None:
        return state
    to = max(0, min(len(there) - 1, at + by))
    return replace(state, picks={**state.picks, state.spot: Pick(there[to].target, to)})


def scrolled(state: State, by: int) -> State:
    """Scroll a run's page down by `by` lines; at the end, follow new output."""
    last = max(0, frame.length(state) - frame.room(state))
    if by >= FAR or last == 0:
        return replace(state, scroll=None)
    now = state.scroll if state.scroll is not None else last if by < 0 else 0  # while following, both ends are visible
    to = max(0, now + by)
    return replace(state, scroll=to if to <= last else None)


# ---- actions, each confirmed by a question


def with_refusal(state: State, text: str) -> State:
    """Return the state with a note that says why nothing was done."""
    return replace(state, note=Note(text, bad=True))


def asked(verb: str) -> Callable[[State], State]:
    """Return a function that asks whether to cancel or retry the selected run."""

    def ask(state: State) -> State:
        item = frame.subject(state)
        target = run_of(state, item)
        if item is None or target is None:
            return with_refusal(state, f"no run is selected to {verb}")
        if verb not in item.can:
            why = "it has ended" if verb == "cancel" else "only dead, cancelled, missed and skipped runs can be retried"
            return with_refusal(state, f"{item.about}: {why}")
        change = Change(verb, "run", target)
        reason = Prompt(f"cancel {item.about}: {REASON}", change, "") if verb == "cancel" else None
        return replace(state, prompt=Prompt(f"{verb} {item.about}? y/N", change, None, reason))

    return ask


def run_of(state: State, item: Item | None) -> int | str | None:
    """Return the id of the run that the line, or else the page, is about; None if that is not a run."""
    target = item.target if item is not None and item.target is not None else (state.trail or (("", 0),))[-1]
    return target[1] if target[0] == "run" else None


def pausing(state: State) -> State:
    """Ask whether to pause the selected job or queue, or whether to end its pause."""
    item = frame.subject(state)
    targets = [item.target] if item is not None and item.target is not None else []
    targets += state.trail[-1:]
    target = next((one for one in targets if one is not None and one[0] in ("job", "queue")), None)
    if target is None:
        return with_refusal(state, "p pauses a job or a queue: select one (3, 4; o: the job of a run)")
    what, key = target
    resuming = "resume" in item.can if item is not None and item.target == target else frame.is_paused(state, target)
    about = f"{what} {key}"
    if resuming:
        return replace(state, prompt=Prompt(f"resume {about}? y/N", Change("resume", what, key)))
    return replace(state, prompt=Prompt(f"pause {about}? {REASON}", Change("pause", what, key), ""))


def searched(state: State) -> State:
    """Ask for the text of a filter."""
    return replace(state, prompt=Prompt("show only:", None, state.find)) if state.page.name != "run" else state


def answer(state: State, prompt: Prompt, key: str) -> Done:
    """Handle a key while a question is shown."""
    if key == "esc":
        ended = replace(state, prompt=None)
        return (filtered(ended, "") if prompt.change is None else ended), None
    if prompt.text is None:
        if key not in ("y", "Y"):
            return replace(state, prompt=None, note=Note("nothing was done")), None
        if prompt.then is not None:
            return replace(state, prompt=prompt.then), None
        return replace(state, prompt=None), prompt.change
    if key == "enter":
        change = prompt.change
        return replace(state, prompt=None), change and replace(change, reason=prompt.text.strip() or None)
    text = edited(prompt.text, key)
    state = replace(state, prompt=replace(prompt, text=text))
    return (filtered(state, text) if prompt.change is None else state), None


def edited(text: str, key: str) -> str:
    """Return the typed text after one more key."""
    if key == "backspace":
        return text[:-1]
    if key == "ctrl-u":
        return ""
    typed = key.removeprefix(PASTE) if key.startswith(PASTE) else key if len(key) == 1 else ""
    return (text + "".join(one for one in typed if one.isprintable()))[:LONGEST]


def filtered(state: State, text: str) -> State:
    """Show only lines that contain this text."""
    picks = {spot: pick for spot, pick in state.picks.items() if spot != state.spot}
    return replace(state, filters={**state.filters, state.page.name: text}, picks=picks)


ASKED: dict[str, Callable[[State], State]] = {"c": asked("cancel"), "r": asked("retry"), "p": pausing, "/": searched}
GOING: dict[str, Callable[[State], State]] = {
    "enter": opened, "right": opened, "l": opened, "esc": back, "left": back, "h": back, "backspace": back,
    "o": its_job, "?": helped, "tab": lambda state: turned(state, 1), "backtab": lambda state: turned(state, -1),
}  # fmt: skip
STEPS: dict[str, Callable[[State], int]] = {
    "down": lambda _: 1, "j": lambda _: 1, "up": lambda _: -1, "k": lambda _: -1,
    "pgdn": lambda state: max(1, frame.room(state) - 2), "pgup": lambda state: -max(1, frame.room(state) - 2),
    "home": lambda _: -FAR, "g": lambda _: -FAR, "end": lambda _: FAR, "G": lambda _: FAR,
}  # fmt: skip
