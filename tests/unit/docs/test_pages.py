"""Links, anchors, images, commands and options on the pages exist."""

from __future__ import annotations

import os
import re

import pytest

from tests.support.docs.grammar import all_options, faults
from tests.support.docs.reading import LINKED, PAGES, read
from tests.support.paths import ROOT

LANGUAGES = {
    "sh",
    "console",
    "sql",
    "python",
    "json",
    "toml",
    "yaml",
    "ini",
    "crontab",
    "js",
    "ruby",
    "text",
    "mermaid",
}
# options of programs other than pgsched
OTHERS = {"--table", "--dbname"}
# commands may be named without `pgsched` before them
SHORT = r"(job|run|schedule|limit|queue|retention) [a-z]+( |$)"
ALL = {name: read(name) for name in LINKED}
PATH = re.compile(r"(?<![\w/.-])(?:docs|bench|examples)/[\w/.-]+\.(?:md|yaml|json|png)\b")
MADE_UP = {"docs/made-up.md"}


@pytest.mark.parametrize("name", PAGES)
def test_code_stands_in_fences_that_name_its_language(name: str) -> None:
    page = ALL[name]
    assert [block.place for block in page.blocks if block.language not in LANGUAGES] == []
    indented = [
        f"{name}:{number}"
        for (_, above), (number, line) in zip(page.prose, page.prose[1:], strict=False)
        if re.match(r" {4}\S", line) and not above.strip()
    ]
    assert indented == [], "code by indentation: give it a fence"


@pytest.mark.parametrize("name", LINKED)
def test_targets_of_links_exist(name: str) -> None:
    folder = (ROOT / name).parent
    for number, target in ALL[name].links:
        if re.match(r"https?:", target):
            continue
        path, _, section = target.partition("#")
        found = (folder / path).resolve() if path else ROOT / name
        assert found.exists(), f"{name}:{number}: there is no {target}"
        if section:
            known = read(str(found.relative_to(ROOT))).anchors
            assert section in known, f"{name}:{number}: there is no section {target}"


@pytest.mark.parametrize("name", PAGES)
def test_images_have_content(name: str) -> None:
    for target in ALL[name].images:
        assert ((ROOT / name).parent / target).stat().st_size > 1000, target


def test_every_page_is_linked_from_the_index() -> None:
    linked = {os.path.normpath(f"docs/{target.partition('#')[0]}") for _, target in ALL["docs/README.md"].links}
    pages = {name for name in LINKED if name.startswith("docs/")} - {"docs/README.md"}
    assert pages - linked == set()
    assert "docs/README.md" in {target for _, target in ALL["README.md"].links}


@pytest.mark.parametrize("folder", ["pgsched", "sql", "migrations", "tests", "bench", ".ci"])
def test_code_names_pages_that_exist(folder: str) -> None:
    """When a page moves, this test finds the messages, comments and docstrings that still name its old path."""
    texts = [
        path
        for path in sorted((ROOT / folder).rglob("*"))
        if path.is_file() and path.suffix in ("", ".py", ".sql", ".mjs", ".rb", ".html", ".toml")
        if "1000_initial" not in path.parts and "__pycache__" not in path.parts
    ]
    assert texts
    gone = [
        f"{path.relative_to(ROOT)}: {named}"
        for path in texts
        for named in PATH.findall(path.read_text(encoding="utf-8"))
        if named not in MADE_UP and not (ROOT / named).exists()
    ]
    assert gone == []


@pytest.mark.parametrize("name", PAGES)
def test_commands_in_the_text_exist(name: str) -> None:
    wrong = [
        f"{name}:{number}: {fault}"
        for number, span in ALL[name].spans
        if re.match(rf"(PGSCHED_\w+=\S+ )?(pgsched( |$)|{SHORT})", span)
        for fault in faults("pgsched " + re.sub(r"^(PGSCHED_\w+=\S+ )?(pgsched( |$))?", "", span))
    ]
    assert wrong == []


@pytest.mark.parametrize("name", PAGES)
def test_options_in_the_text_exist(name: str) -> None:
    wrong = [
        f"{name}:{number}: {span}"
        for number, span in ALL[name].spans
        if (option := re.match(r"--[a-z][a-z-]*", span)) and option[0] not in all_options() | OTHERS
    ]
    assert wrong == []


def test_wrong_commands_and_options_are_found() -> None:
    assert faults("pgsched run list, show, retry ID --json") == []
    assert faults("pgsched prune/retention") == []
    assert faults("pgsched job lst") and faults("pgsched run list --jsn") and faults("pgsched wrker")
