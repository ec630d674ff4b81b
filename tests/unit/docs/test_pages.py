"""The pages hang together: links, anchors and images are there, commands and options in the text exist."""

from __future__ import annotations

import re

import pytest

from pgsched.core.model import State
from tests.support.docs.grammar import all_options, faults
from tests.support.docs.reading import PAGES, read
from tests.support.paths import ROOT

LANGUAGES = {"sh", "console", "sql", "python", "json", "toml", "yaml", "ini", "crontab", "js", "ruby", "text"}
# options of other programs than ours
OTHERS = {"--table", "--dbname"}
# commands are also named without the program
SHORT = r"(job|run|schedule|limit|queue|retention) [a-z]+( |$)"
ALL = {name: read(name) for name in PAGES}


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


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name: str) -> None:
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


def test_every_page_is_linked_from_the_readme() -> None:
    linked = {target.partition("#")[0] for _, target in ALL["README.md"].links}
    assert {*PAGES} - {"README.md"} <= linked


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


def test_the_states_are_those_that_there_are() -> None:
    table = re.findall(r"^\| `(\w+)` \| ", (ROOT / "docs" / "concepts.md").read_text(), re.MULTILINE)
    assert {*table} == {*State}
    diagram = next(
        block.text for block in ALL["docs/concepts.md"].blocks if "──" in block.text and "queued" in block.text
    )
    assert {state for state in State if state not in diagram} == set()


def test_a_wrong_command_would_be_found() -> None:
    assert faults("pgsched run list, show, retry ID --json") == []
    assert faults("pgsched prune/retention") == []
    assert faults("pgsched job lst") and faults("pgsched run list --jsn") and faults("pgsched wrker")
