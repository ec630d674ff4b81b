"""Hooks, CI workflow, issue forms and CONTRIBUTING.md name things that exist, and agree with each other."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

from tests.support.paths import ROOT
from tools.commit_subject import find_faults

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yaml").read_text())
HOOKS = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
CHECKS = re.findall(
    r"^step .* (\.venv/bin/(?:ruff|mypy|lint-imports|codespell).*)$", (ROOT / ".ci/run").read_text(), re.M
)


def commands(job: dict[str, Any]) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def test_hooks_need_nothing_but_the_environment() -> None:
    hooks = [hook for repo in HOOKS for hook in repo["hooks"]]
    assert {repo["repo"] for repo in HOOKS} == {"local"}
    assert {hook["language"] for hook in hooks} == {"system"}
    assert all(hook["entry"].startswith(".venv/bin/") for hook in hooks)
    entries = " ".join(hook["entry"] for hook in hooks)
    assert [check for check in CHECKS if check not in entries] == [], "what .ci/run asks for, the hooks ask for too"


def test_the_workflow_runs_the_checks_of_the_local_ci() -> None:
    assert len(CHECKS) >= 5
    assert [check for check in CHECKS if check not in commands(WORKFLOW["jobs"]["lint"])] == []


def test_the_workflow_tests_every_promised_version() -> None:
    named = {one.rpartition(" ")[2] for one in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", one)}
    assert {*WORKFLOW["jobs"]["unit"]["strategy"]["matrix"]["python"]} == named
    promised = re.search(r"PostgreSQL (\d+) to (\d+) and Python", (ROOT / "UPGRADING.md").read_text())
    assert promised is not None
    servers = WORKFLOW["jobs"]["postgres"]["strategy"]["matrix"]["postgres"]
    assert servers == [str(major) for major in range(int(promised[1]), int(promised[2]) + 1)]


def test_paths_and_modules_in_contributing_and_workflow_exist() -> None:
    texts = [CONTRIBUTING, *(line for job in WORKFLOW["jobs"].values() for line in commands(job))]
    named = {
        name for text in texts for name in re.findall(r"(?<![\w/])(\.ci/\w+|tests/[\w/.]+|bench|sql/|docs/)", text)
    }
    assert len(named) >= 3
    assert {name for name in named if not (ROOT / name).exists()} == set()
    modules = re.findall(r"python -m ((?:pgsched|tools)[\w.]*)", CONTRIBUTING)
    assert modules
    for module in modules:
        path = ROOT / module.replace(".", "/")
        assert path.is_dir() or path.with_suffix(".py").exists(), module


def test_contributing_is_one_screen_and_has_the_install_command() -> None:
    assert len(CONTRIBUTING.splitlines()) <= 50
    (install,) = re.findall(r"pip (install .*\[.*lint\]')", (ROOT / ".ci/steps").read_text())
    assert install in CONTRIBUTING


@pytest.mark.parametrize("name", ["bug.yaml", "idea.yaml"])
def test_issue_forms_are_valid_yaml_with_the_required_fields(name: str) -> None:
    form = yaml.safe_load((ROOT / ".github/ISSUE_TEMPLATE" / name).read_text())
    assert {"name", "description", "body"} <= form.keys()
    assert all(field["type"] == "markdown" or field["id"] for field in form["body"])


@pytest.mark.parametrize(
    ("message", "wrong"),
    [
        ("Add a glossary\n\nWhy.\n", ""),
        ("Merge branch 'a' into b", ""),
        ("# a comment\nMend it\n", ""),
        ("A" * 73, "73 characters"),
        ("add a glossary", "capital"),
        ("Add a glossary.", "full stop"),
        ("Added a glossary", "order"),
        ("Add a glossary\nand more", "second line"),
        ("", "capital"),
    ],
)
def test_faults_of_commit_subjects_are_found(message: str, wrong: str) -> None:
    found = find_faults(message)
    assert (wrong in " ".join(found)) if wrong else not found


def test_text_files_follow_the_editor_configuration() -> None:
    folders = ("pgsched", "tests", "sql", "migrations", "docs", "tools", ".github", "examples")
    paths = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file()]
    texts = [path for path in paths if path.suffix in {".py", ".sql", ".md", ".yaml", ".toml", ".html", ".css", ".js"}]
    assert len(texts) > 500
    wrong = []
    for path in texts:
        text = path.read_text(encoding="utf-8")
        if "\r" in text or (text and not text.endswith("\n")) or re.search(r"[ \t]+$", text, re.MULTILINE):
            wrong.append(str(path.relative_to(ROOT)))
    assert wrong == []
