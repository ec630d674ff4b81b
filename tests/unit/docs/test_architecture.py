"""ARCHITECTURE.md names only paths, statements and packages that exist, and it names every package."""

from __future__ import annotations

import re

from tests.support.paths import ROOT

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PATHS = re.findall(r"`((?:pgsched|sql|migrations|tests|docs)(?:/[\w./]*)?|pyproject\.toml)`", PAGE)


def test_every_path_exists() -> None:
    assert len(PATHS) > 50
    assert [path for path in PATHS if not (ROOT / path).exists()] == []


def test_every_statement_is_in_the_file_that_it_names() -> None:
    named = re.findall(r"`(\w+)`\s+in\s+`(sql/\w+\.sql)`", PAGE)
    assert len(named) >= 4
    assert [name for name, path in named if f"-- name: {name}\n" not in (ROOT / path).read_text()] == []


def test_every_package_is_explained() -> None:
    packages = {f"pgsched/{path.parent.name}" for path in (ROOT / "pgsched").glob("*/__init__.py")}
    assert packages - {*PATHS} == set()


def test_the_picture_names_packages_that_exist() -> None:
    picture = PAGE.partition("```mermaid")[2].partition("```")[0]
    named = re.findall(r"\b([a-z]+)/(?=\W|<)", picture.replace("<br/>", " "))
    assert named and [name for name in named if not (ROOT / "pgsched" / name).is_dir()] == []


def test_the_page_has_at_most_150_lines() -> None:
    assert len(PAGE.splitlines()) <= 150
