"""docs/introduction/comparison.md: every source has an address, and every figure stands in bench/RESULTS.md."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "introduction" / "comparison.md").read_text()
DEFINED = set(re.findall(r"^\[([\w-]+)\]: https://\S+$", PAGE, re.MULTILINE))


def test_every_source_has_an_address_and_every_address_is_used() -> None:
    named = set(re.findall(r"\]\[([\w-]+)\]", PAGE))
    assert len(named) > 30
    assert named == DEFINED


def test_every_figure_stands_in_the_results_of_the_benchmarks() -> None:
    measured = (ROOT / "bench" / "RESULTS.md").read_text()
    table = PAGE[PAGE.index("## How fast") : PAGE.index("[aps3]: ")]
    figures = re.findall(r"\d+,\d{3}|\d+\.\d\d(?= ms)|\d+ %", table)
    assert len(figures) > 15
    assert {figure for figure in figures if figure not in measured} == set()


def test_linked_pages_and_their_sections_exist() -> None:
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        path, _, section = target.partition("#")
        text = (ROOT / "docs" / "introduction" / path).resolve().read_text()
        headings = {re.sub(r"[^\w -]", "", line.lstrip("# ").lower()).replace(" ", "-") for line in text.splitlines()
                    if line.startswith("#")}  # fmt: skip
        assert not section or section in headings, target
