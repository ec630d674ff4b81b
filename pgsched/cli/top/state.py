"""The state of `pgsched top`, from which the screen is drawn.

Invariant: the state is one immutable value. Each key and each look at the database makes a new one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from pgsched.services.top import Change, Look, Page

Target = tuple[str, int | str]


@dataclass(frozen=True, slots=True)
class Pick:
    """The selected line of a page.

    `target`: the run, job or queue that the line is about.
    `index`: the place of the line, used if the target is gone.
    """

    target: Target | None = None
    index: int = 0


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question in the last line of the screen.

    `change`: the change that the answer starts; None for a filter.
    `text`: what was typed; None for a yes/no question, where only y means yes.
    `next_prompt`: the next question.
    """

    question: str
    change: Change | None = None
    text: str | None = None
    next_prompt: Prompt | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """The result of an action, shown in the last line; `bad` if it failed."""

    text: str
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Trouble:
    """A database that does not answer: the error, and for how many seconds."""

    text: str
    since_s: float


@dataclass(frozen=True, slots=True)
class State:
    """Everything that the screen shows.

    `every_s`: seconds between two looks at the database.
    `tab`: the page chosen from PAGES.
    `opened_targets`: the runs, jobs and queues opened from the tab; the last one is shown.
    `selections`: the selected line of each page.
    `filters`: the filter's text of each page, by the page's name.
    `scroll`: the first visible line of a run's page; None follows the end of its output.
    `look`: the last look; of another page until the new page is read.
    """

    width: int = 80
    height: int = 24
    every_s: float = 2.0
    tab: str = "overview"
    opened_targets: tuple[Target, ...] = ()
    selections: Mapping[Page, Pick] = field(default_factory=dict)
    filters: Mapping[str, str] = field(default_factory=dict)
    scroll: int | None = None
    prompt: Prompt | None = None
    note: Note | None = None
    help: bool = False
    look: Look | None = None
    trouble: Trouble | None = None

    @property
    def page(self) -> Page:
        """Return the page that is shown and read."""
        if self.opened_targets:
            return Page(*self.opened_targets[-1])
        return Page(self.tab, find=self.filters.get("jobs") or None if self.tab == "jobs" else None)

    @property
    def page_without_filter(self) -> Page:
        """Return the page without its filter, as `selections` has it."""
        return replace(self.page, find=None)

    @property
    def filter_text(self) -> str:
        """Return the filter's text of this page, or an empty text."""
        return self.filters.get(self.page.name, "")

    @property
    def current_look(self) -> Look | None:
        """Return the last look if it is a look at this page, else None."""
        return (
            self.look
            if self.look is not None and replace(self.look.page, find=None) == self.page_without_filter
            else None
        )
