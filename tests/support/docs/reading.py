"""Read the Markdown pages: code blocks, inline command lines, links and headings.

Invariant: nothing that looks like code is skipped. A fence without a language, or code by indentation, is a fault
of the page (test_pages.py).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.support.paths import ROOT

PARTS = ("introduction", "how-to", "concepts", "reference")
# The pages whose blocks are run, and whose commands must exist.
PAGES = (
    *("README.md", "docs/README.md"),
    *(f"docs/{part}/{path.name}" for part in PARTS for path in sorted((ROOT / "docs" / part).glob("*.md"))),
    *(str(path.relative_to(ROOT)) for path in sorted((ROOT / "examples").glob("*/README.md"))),
)
# The pages whose links are checked: those above, and some more.
LINKED = (
    *PAGES,
    *sorted({str(path.relative_to(ROOT)) for folder in ("", "docs", "docs/adr", "bench", "examples", ".github")
             for path in (ROOT / folder).glob("*.md")} - {*PAGES}),
)  # fmt: skip

FENCE = re.compile(r"^(\s*)```(\S*)\s*$")
SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
LINK = re.compile(r"(!?)\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block.

    `line` is the number of its first line of text. `before`: the page shows it under "Before:", as the former state.
    """

    page: str
    line: int
    language: str
    text: str
    before: bool = False

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Page:
    name: str
    blocks: tuple[Block, ...]
    prose: tuple[tuple[int, str], ...]  # the lines outside of blocks, with their numbers

    @property
    def spans(self) -> list[tuple[int, str]]:
        """Return each piece of inline code, with its line's number."""
        return [(number, found) for number, line in self.prose for found in SPAN.findall(line)]

    @property
    def links(self) -> list[tuple[int, str]]:
        return [(number, target) for number, line in self.prose for _, target in LINK.findall(SPAN.sub("", line))]

    @property
    def images(self) -> list[str]:
        return [target for _, line in self.prose for mark, target in LINK.findall(line) if mark]

    @property
    def anchors(self) -> set[str]:
        """Return the anchors that GitHub makes from the headings."""
        return {anchor(line.lstrip("#")) for _, line in self.prose if line.startswith("#")}


def anchor(heading: str) -> str:
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip())
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


def read(name: str) -> Page:
    blocks: list[Block] = []
    prose: list[tuple[int, str]] = []
    inside: list[str] | None = None
    language = indent = said = ""
    start = 0
    for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), 1):
        fence = FENCE.match(line)
        if inside is None and fence:
            inside, indent, language, start = [], fence[1], fence[2], number + 1
        elif inside is not None and fence and not fence[2]:
            blocks.append(Block(name, start, language, "\n".join(inside) + "\n", said == "Before:"))
            inside = None
        elif inside is not None:
            inside.append(line.removeprefix(indent))
        else:
            prose.append((number, line))
            said = line.strip() or said
    assert inside is None, f"{name}:{start}: the block does not end"
    return Page(name, tuple(blocks), tuple(prose))
