"""What the screen of `pgsched top` rests on. The rule: all of it is one value; a key makes another, a look another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pgsched.services.top import Change, Look, Page

Target = tuple[str, int | str]


@dataclass(frozen=True, slots=True)
class Pick:
    """The line that is selected: by what it is about, and where it was, should that be gone."""

    target: Target | None = None
    index: int = 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question in the last line. `text`: what was typed; None: only y says yes. `then`: the next question."""

    question: str
    change: Change | None = None
    text: str | None = None
    then: Prompt | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """What came of something."""

    text: str
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """The database does not answer: why, and since how many seconds."""

    text: str
    since_s: float


@dataclass(frozen=True, slots=True)
class State:
    """The whole. `trail`: what was opened above a tab, the last of it is shown; `scroll`: the first line of a run's
    page, None: its end is followed; `look` may be of another page until the new one is read."""

    width: int = 80
    height: int = 24
    every_s: float = 2.0
    tab: str = "overview"
    trail: tuple[Target, ...] = ()
    picks: Mapping[Page, Pick] = field(default_factory=dict)
    filters: Mapping[str, str] = field(default_factory=dict)
    scroll: int | None = None
    prompt: Prompt | None = None
    note: Note | None = None
    help: bool = False
    look: Look | None = None
    trouble: Trouble | None = None

    @property
    def page(self) -> Page:
        """What is shown, and asked for."""
        if self.trail:
            return Page(*self.trail[-1])
        return Page(self.tab, find=self.filters.get("jobs") or None if self.tab == "jobs" else None)

    @property
    def spot(self) -> Page:
        """The page as `picks` has it, whatever is filtered."""
        return replace(self.page, find=None)

    @property
    def find(self) -> str:
        """The filter of this page."""
        return self.filters.get(self.page.name, "")

    @property
    def fresh(self) -> Look | None:
        """The last look, if it is one at this page."""
        return self.look if self.look is not None and replace(self.look.page, find=None) == self.spot else None
