"""docs/how-to/monitoring.md lists every exported metric; the dashboard and the alert rules use no other."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pgsched.telemetry.catalogue import BY_NAME, METRICS
from tests.support.paths import ROOT

DOCS = ROOT / "docs" / "how-to"
RULES = DOCS / "monitoring" / "alerts.yaml"
DASHBOARD = json.loads((DOCS / "monitoring" / "dashboard.json").read_text())
NAME = re.compile(r"\bpgsched_\w+")
SELECTOR = re.compile(r"\b(pgsched_\w+?)(?:_bucket|_sum|_count)?\{([^}]*)\}")


def test_the_table_lists_the_metrics_of_the_catalogue() -> None:
    rows = [
        line.split("|")[1:5] for line in (DOCS / "monitoring.md").read_text().splitlines() if line.startswith("| `pgs")
    ]
    found = [tuple(cell.strip() for cell in row) for row in rows]
    assert found == [
        (f"`{metric.name}`", metric.kind, ", ".join(f"`{label}`" for label in metric.labels), metric.meaning)
        for scope in ("worker", "leader", "database")
        for metric in METRICS
        if metric.scope == scope
    ]


def expressions() -> list[str]:
    rules = [rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    panels = [target["expr"] for panel in DASHBOARD["panels"] for target in panel.get("targets", [])]
    variables = [one["definition"] for one in DASHBOARD["templating"]["list"] if "definition" in one]
    return [*rules, *panels, *variables, *(one["expr"] for one in DASHBOARD["annotations"]["list"])]


@pytest.mark.parametrize("expression", expressions())
def test_expressions_use_existing_metrics_and_labels(expression: str) -> None:
    for name in NAME.findall(expression):
        metric = BY_NAME.get(name) or BY_NAME[re.sub(r"_(bucket|sum|count)$", "", name)]
        assert (metric.kind == "histogram") == (name not in BY_NAME), name
    for name, given in SELECTOR.findall(expression):
        labels = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", given)
        assert set(labels) <= {*BY_NAME[name].labels, "job"}, name


def test_each_metric_for_people_is_on_the_dashboard() -> None:
    shown = " ".join(expressions())
    beside = {"pgsched_worker_draining", "pgsched_database_read_seconds", "pgsched_database_read_age_seconds"}
    missing = {metric.name for metric in METRICS if metric.name not in shown} - beside
    assert missing == set()


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at: dict[str, Any] = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_alert_has_a_severity_a_summary_and_a_description() -> None:
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("warning", "critical")
            assert set(rule["annotations"]) == {"summary", "description"}


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (apt install prometheus)")
def test_prometheus_takes_the_rules_and_they_fire(tmp_path: Path) -> None:
    checked = subprocess.run(["promtool", "check", "rules", RULES], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tests = tmp_path / "tests.yaml"
    tests.write_text((Path(__file__).parent / "alerts_test.yaml").read_text().replace("{{RULES}}", str(RULES)))
    fired = subprocess.run(["promtool", "test", "rules", tests], capture_output=True, text=True)
    assert fired.returncode == 0, fired.stdout + fired.stderr
