"""requirements.hashed lists what an image needs, in the versions of requirements.lock, and names no package index."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.paths import ROOT

LOCK = (ROOT / "requirements.lock").read_text()
HASHED = (ROOT / "requirements.hashed").read_text()
PINNED = re.compile(r"^([A-Za-z0-9._-]+)==([^ \n]+)", re.MULTILINE)


def versions(text: str) -> dict[str, str]:
    return {canonicalize_name(name): version for name, version in PINNED.findall(text)}


def test_both_files_name_the_same_versions() -> None:
    locked = versions(LOCK)
    assert len(versions(HASHED)) > 20
    assert {name: locked.get(name) for name in versions(HASHED)} == versions(HASHED)


def test_every_requirement_has_hashes_and_nothing_else() -> None:
    for block in re.split(r"\n(?=\S)", HASHED.split("\n", 2)[2].rstrip()):
        first, *hashes = block.split(" \\\n")
        assert re.fullmatch(r"[a-z0-9._-]+==[0-9][0-9a-z.]*", first), block
        assert hashes and all(re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}", line) for line in hashes), block


def test_no_file_says_where_packages_come_from() -> None:
    for text in (LOCK, HASHED, (ROOT / "compose.yaml").read_text()):
        assert not re.search(r"https?://(?!127\.0\.0\.1)|--(extra-)?index-url|--find-links|--trusted-host", text)


def test_every_package_that_the_image_needs_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    asked = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    asked += [text for extra in ("web", "http", "metrics") for text in extras[extra]]
    known, missing = versions(HASHED), set()
    seen: set[str] = set()
    while asked:
        wanted = Requirement(asked.pop())
        name = canonicalize_name(wanted.name)
        if name not in known:
            missing.add(name)
        for extra in ["", *wanted.extras]:
            if f"{name}[{extra}]" not in seen:
                seen.add(f"{name}[{extra}]")
                needs = [Requirement(text) for text in metadata.requires(name) or []]
                here = {
                    "extra": extra,
                    "python_version": "3.12",
                    "python_full_version": "3.12.0",
                    "sys_platform": "linux",
                }
                asked += [
                    str(one).partition(";")[0] for one in needs if one.marker is None or one.marker.evaluate(here)
                ]
    assert not missing
