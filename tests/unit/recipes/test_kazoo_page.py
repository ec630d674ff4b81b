"""docs/how-to/kazoo.md names all that pgsched.recipes.kazoo has, and all that it refuses."""

from __future__ import annotations

import re
from typing import Any

import pytest

from pgsched.recipes import kazoo
from pgsched.recipes.kazoo import KazooClient, exceptions
from pgsched.recipes.kazoo.client import ABSENT
from pgsched.recipes.kazoo.exceptions import ConfigurationError
from pgsched.recipes.kazoo.tree import Absent, Tree
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "how-to" / "kazoo.md").read_text(encoding="utf-8")
THERE, NOT_THERE = (
    PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0] for title in ("What is there", "What is not there")
)


def words(text: str) -> set[str]:
    return {word for span in re.findall(r"`([^`]+)`", text) for word in re.findall(r"\w+", span)}


def items(part: str) -> set[str]:
    """Return the names that one part of the list has, up to its last sentence."""
    (text,) = re.findall(rf"^- \*\*{part}\*\*(.*?)(?=^- |\Z)", NOT_THERE, re.MULTILINE | re.DOTALL)
    return words(text)


def test_the_page_has_each_name_that_can_be_imported() -> None:
    names = {name for name in vars(kazoo) if name[0].isupper()}
    assert len(names) > 30
    assert names - words(THERE) == set()


def test_the_page_has_each_method_of_the_client() -> None:
    methods = {name for name in dir(KazooClient) if name[0].islower() and callable(getattr(KazooClient, name))}
    own = {"perform", "begin_wait", "end_wait", "read_state", "before_fork", "forget_parent"}  # for the recipes
    refused = {name for name, value in vars(Tree).items() if isinstance(value, Absent)}
    assert methods - own - refused - words(THERE) == set()


def test_the_page_has_each_argument_that_is_refused() -> None:
    listed = items("Arguments of the client") - {"ConfigurationError"}
    assert listed == ABSENT.keys()
    for name in listed:
        options: dict[str, Any] = {name: "x"}
        with pytest.raises(ConfigurationError, match=name):
            KazooClient(**options)


def test_the_page_has_each_method_that_is_refused() -> None:
    refused = {name for name, value in vars(Tree).items() if isinstance(value, Absent)}
    listed = items("Methods of the client") | items("Recipes")
    assert refused - listed == set()
    assert items("Methods of the client") - refused == {"UnimplementedError", "acl"}


def test_no_exception_of_the_list_is_there() -> None:
    listed = items("Exceptions") - {"Exception"}
    assert len(listed) > 15
    assert {name for name in listed if hasattr(exceptions, name)} == set()
