"""Check the blocks of the docs that are no programs, each with a parser of its format."""

from __future__ import annotations

import configparser
import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import yaml

from pgsched.core.schedule.cron import parse
from tests.support.docs.grammar import faults
from tests.support.docs.shell import Failed

POOLER_SETTINGS = {"pool_mode", "default_pool_size", "max_client_conn", "max_prepared_statements", "auth_type"}


def as_json(text: str, _: Path) -> None:
    json.loads(text)


def as_toml(text: str, _: Path) -> None:
    tomllib.loads(text)


def as_yaml(text: str, folder: Path) -> None:
    """Check YAML: a Kubernetes object needs a kind and a name, and promtool must accept Prometheus' configuration."""
    for document in yaml.safe_load_all(text):
        if not isinstance(document, dict):
            raise Failed(f"this is no mapping: {document!r}")
        if "apiVersion" in document and not (document.get("kind") and document["metadata"].get("name")):
            raise Failed("an object has a kind and a name")
        for command in starts(document):
            judged(command)
        if "scrape_configs" in document and shutil.which("promtool"):
            (folder / "prometheus.yaml").write_text(text)
            asked("promtool", "check", "config", str(folder / "prometheus.yaml"))


def starts(document: Any) -> Iterator[list[str]]:
    """Yield the command of every container."""
    if isinstance(document, dict):
        if "command" in document:
            yield document["command"]
        for value in document.values():
            yield from starts(value)
    elif isinstance(document, list):
        for value in document:
            yield from starts(value)


def judged(command: list[str]) -> None:
    if command[0].rpartition("/")[2] == "pgsched" and (wrong := faults(" ".join(command))):
        raise Failed("; ".join(wrong))


def asked(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Failed(f"{command[0]}: {done.stdout}{done.stderr}")
    return done.stdout


def as_ini(text: str, folder: Path) -> None:
    """Check a unit of systemd, or settings of PgBouncer."""
    unit = "[Unit]" in text
    parser = configparser.ConfigParser(interpolation=None, inline_comment_prefixes=(";",), strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(text if unit else f"[pgbouncer]\n{text}")
    if not unit:
        if unknown := set(parser["pgbouncer"]) - POOLER_SETTINGS:
            raise Failed(f"not settings of PgBouncer: {unknown}")
        return
    if "ExecStart" not in parser["Service" if "Service" in parser else "Unit"]:  # a timer
        return
    started = parser["Service"]["ExecStart"].split()
    if PurePosixPath(started[0]).name != "pgsched":  # a unit of the reader's, which this machine need not know
        return
    judged(started)
    if shutil.which("systemd-analyze"):
        path = folder / "pgsched.service"
        path.write_text(re.sub(r"^ExecStart=\S+", "ExecStart=/bin/true", text, flags=re.MULTILINE))
        done = subprocess.run(["systemd-analyze", "verify", path], capture_output=True, text=True, timeout=60)
        if wrong := [line for line in done.stderr.splitlines() if path.name in line]:
            raise Failed("\n".join(wrong))


def as_crontab(text: str, _: Path) -> None:
    """Check that each line is an assignment, a time and a command, or anacron's period, delay, name and command."""
    for line in filter(None, text.splitlines()):
        if re.match(r"\s*(#|[A-Z_]+=)", line) or line.startswith("@reboot "):
            continue
        if re.match(r"\d+\s+\d+\s+[a-z-]+\s+/", line):
            continue
        fields = line.split(None, 1 if line.startswith("@") else 5)
        if len(fields) < (2 if line.startswith("@") else 6):
            raise Failed(f"no command: {line}")
        parse(" ".join(fields[:-1]), "UTC")


def as_text(_: str, __: Path) -> None:
    """Accept any text: a block of output is not checked."""


PARSERS: dict[str, Callable[[str, Path], None]] = {
    "json": as_json, "toml": as_toml, "yaml": as_yaml, "ini": as_ini, "crontab": as_crontab, "text": as_text,
    "mermaid": as_text,
}  # fmt: skip
