"""Jobs made of CronJobs: commands, policies, retries, images, lists of documents, and what is refused."""

from __future__ import annotations

import textwrap
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from pgsched.core.schedule.cron import parse
from pgsched.importers.imported import Imported, ImportedJob, Reason
from pgsched.importers.kubernetes.cronjobs import ManifestNames, ManifestOptions, import_cronjobs
from pgsched.importers.kubernetes.documents import DEEPEST, MOST_VALUES, ManifestError, read_documents

NOW = datetime(2026, 5, 1, tzinfo=UTC)
SAMPLES = Path(__file__).parent / "samples" / "charts"
CONTAINER: dict[str, Any] = {"name": "a", "image": "registry.example.org/shop:1", "command": ["shop", "run"]}


def read(text: str, **options: Any) -> Imported:
    return import_cronjobs(textwrap.dedent(text), ManifestOptions(NOW, **options))


def manifest(
    spec: dict[str, Any] | None = None, job: dict[str, Any] | None = None, pod: dict[str, Any] | None = None,
    container: dict[str, Any] | None = None, **metadata: Any,
) -> str:  # fmt: skip
    containers = [{**CONTAINER, **(container or {})}]
    of_job = {"spec": {"template": {"spec": {"containers": containers, **(pod or {})}}, **(job or {})}}
    return yaml.safe_dump({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "nightly", **metadata},
        "spec": {"schedule": "0 6 * * *", "jobTemplate": of_job, **(spec or {})},
    })  # fmt: skip


def one(*parts: Any, **more: Any) -> ImportedJob:
    imported = read(manifest(*parts, **more))
    assert len(imported.jobs) == 1, imported.omitted
    return imported.jobs[0]


def reasons(job: ImportedJob) -> list[Reason]:
    return [remark.reason for remark in job.remarks]


def test_a_cronjob_becomes_a_job_that_is_tried_as_often() -> None:
    job = one(job={"backoffLimit": 4}, container={"args": ["--all"], "env": [{"name": "N", "value": "4"}]})
    assert job.exact and job.columns == {
        "schedule": "0 6 * * *", "timezone": "UTC", "kind": "command", "task": "shop",
        "args": {"argv": ["run", "--all"], "env": {"N": "4"}}, "kill_after": timedelta(seconds=30), "queue": "shop",
        "overlap": "allow", "catch_up": "latest", "catch_up_window": timedelta(days=3600), "max_attempts": 5,
        "backoff": "exponential", "backoff_base": timedelta(seconds=10), "backoff_max": timedelta(minutes=6),
        "backoff_jitter": 0.0,
    }  # fmt: skip


@pytest.mark.parametrize(("spec", "columns", "reason"), [
    ({"concurrencyPolicy": "Allow"}, {"overlap": "allow"}, []),
    ({"concurrencyPolicy": "Replace"}, {"overlap": "replace"}, []),
    ({"concurrencyPolicy": "Forbid"}, {"overlap": "buffer_one"}, [Reason.FORBID]),
    ({"concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 600},
     {"overlap": "skip", "retry_within": timedelta(minutes=10), "catch_up_window": timedelta(minutes=10)},
     [Reason.FORBID, Reason.STARTING_DEADLINE]),
    ({"concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 90_000}, {"overlap": "skip"},
     [Reason.CONCURRENCY_POLICY, Reason.STARTING_DEADLINE]),
    ({"startingDeadlineSeconds": 20}, {"misfire_after": timedelta(seconds=20)}, [Reason.STARTING_DEADLINE]),
    ({"suspend": True}, {"paused": True}, [Reason.SUSPENDED]),
    ({"timeZone": "Asia/Tokyo"}, {"timezone": "Asia/Tokyo"}, []),
])  # fmt: skip
def test_policies(spec: dict[str, Any], columns: dict[str, Any], reason: list[Reason]) -> None:
    job = one(spec)
    assert {name: job.columns[name] for name in columns} == columns
    assert reasons(job) == reason


@pytest.mark.parametrize(("job", "pod", "columns", "reason"), [
    ({"backoffLimit": 0, "activeDeadlineSeconds": 60}, {}, {"max_attempts": 1, "timeout": timedelta(seconds=60)}, []),
    ({"activeDeadlineSeconds": 60}, {}, {"max_attempts": 7}, [Reason.ACTIVE_DEADLINE]),
    ({}, {"activeDeadlineSeconds": 60}, {"timeout": timedelta(seconds=60)}, []),
    ({"backoffLimit": 5000}, {}, {"max_attempts": 1000}, [Reason.RETRIES]),
    ({}, {"restartPolicy": "OnFailure"}, {"backoff_max": timedelta(minutes=5)}, []),
    ({"parallelism": 3}, {}, {}, [Reason.CONTAINERS]),
    ({"completions": 3, "completionMode": "Indexed"}, {}, {}, [Reason.CONTAINERS]),
    ({"backoffLimitPerIndex": 1}, {}, {}, [Reason.RETRIES]),
    ({"podFailurePolicy": {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42, 43]}}]}},
     {}, {"dead_codes": [42, 43]}, []),
    ({"podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": []}]}}, {}, {}, [Reason.RETRIES]),
    ({}, {"terminationGracePeriodSeconds": 5}, {"kill_after": timedelta(seconds=5)}, []),
    ({}, {"serviceAccountName": "a"}, {}, [Reason.WORKER_IMAGE]),
    ({}, {"initContainers": [{"name": "wait"}]}, {}, [Reason.CONTAINERS]),
])  # fmt: skip
def test_attempts_and_pods(
    job: dict[str, Any], pod: dict[str, Any], columns: dict[str, Any], reason: list[Reason]
) -> None:
    found = one(None, job, pod)
    assert {name: found.columns[name] for name in columns} == columns
    assert reasons(found) == reason


def test_variables_are_put_in_as_kubernetes_does() -> None:
    env = [
        {"name": "A", "value": "1"},
        {"name": "B", "value": "$(A)2"},
        {"name": "C", "valueFrom": {"secretKeyRef": {}}},
    ]
    job = one(container={"env": env, "args": ["$(B)", "$$(B)", "$(NO)", "$B"], "workingDir": "/srv"})
    assert job.columns["args"] == {
        "argv": ["run", "12", "$(B)", "$(NO)", "$B"],
        "env": {"A": "1", "B": "12"},
        "cwd": "/srv",
    }
    assert reasons(job) == [Reason.ENVIRONMENT] and not job.exact


@pytest.mark.parametrize(("text", "found"), [
    ("echo $$$$ > x", "echo $$ > x"), ("$$$$(A)", "$$(A)"), ("$$$(A)", "$1"), ("$(a b)", "$(a b)"), ("$(A", "$(A"),
    ("$", "$"), ("$$", "$"), ("$()", "$()"), ("$x$(A)", "$x1"), ("$($(A)", "$($(A)"), ("a)$(A)", "a)1"),
    ("$(A)$", "1$"),
])  # fmt: skip
def test_two_signs_are_one_wherever_they_stand(text: str, found: str) -> None:
    """The cases of the function Expand of Kubernetes, in a variable and in an argument."""
    job = one(container={"env": [{"name": "A", "value": "1"}, {"name": "B", "value": text}], "args": [text]})
    assert (job.columns["args"]["argv"][1], job.columns["args"]["env"]["B"]) == (found, found)


def test_a_variable_that_pgsched_sets_is_left_out() -> None:
    job = one(container={"env": [{"name": "PGSCHED_X", "value": "1"}], "args": ["$(PGSCHED_X)"]})
    assert job.columns["args"] == {"argv": ["run", "1"]}
    assert reasons(job) == [Reason.ENVIRONMENT]


def test_an_exit_code_of_many_digits_is_none() -> None:
    rule = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": ["0" * 5000, "7"]}}
    assert one(job={"podFailurePolicy": {"rules": [rule]}}).columns["dead_codes"] == [7]


def test_a_shell_line_is_a_shell_line() -> None:
    job = one(container={"command": ["/bin/sh", "-c", "a | b"]})
    assert (job.columns["kind"], job.columns["task"], "args" in job.columns) == ("shell", "a | b", False)


def test_the_queue_tells_the_image() -> None:
    images = ["shop:1", "registry:5000/team/shop@sha256:00", "shop:1", "Odd Name!:2"]
    text = "---\n".join(manifest(container={"image": image}, name=f"n{n}") for n, image in enumerate(images))
    assert [job.columns["queue"] for job in read(text).jobs] == ["shop", "shop-2", "shop", "Odd-Name"]
    named = read(manifest(namespace="eu"), queue="{namespace}-{image}").jobs[0]
    assert named.columns["queue"] == "eu-shop"


def test_names_of_two_namespaces() -> None:
    text = "---\n".join(manifest(namespace=one) for one in ("a", "b")) + "---\n" + manifest()
    assert [job.name for job in read(text).jobs] == ["nightly", "b/nightly", "nightly-2"]


@pytest.mark.parametrize(("spec", "container", "reason"), [
    ({"schedule": "0 0 * * 7"}, {}, Reason.SYNTAX), ({"schedule": None}, {}, Reason.SYNTAX),
    ({"concurrencyPolicy": "Never"}, {}, Reason.SYNTAX), ({"startingDeadlineSeconds": "soon"}, {}, Reason.SYNTAX),
    ({"suspend": "perhaps"}, {}, Reason.SYNTAX), ({"jobTemplate": "x"}, {}, Reason.SYNTAX),
    ({"timeZone": "Nowhere/Else"}, {}, Reason.SYNTAX), ({}, {"command": None}, Reason.NO_COMMAND),
    ({}, {"command": [["a"]]}, Reason.SYNTAX), ({"schedule": ["x"]}, {}, Reason.SYNTAX),
    ({"jobTemplate": {}}, {}, Reason.NO_COMMAND), ({"schedule": "0 0 30 2 *"}, {}, Reason.SCHEDULE),
])  # fmt: skip
def test_what_becomes_no_job(spec: dict[str, Any], container: dict[str, Any], reason: Reason) -> None:
    imported = read(manifest(spec, container=container))
    assert imported.jobs == []
    assert [(one.source, one.remark.reason) for one in imported.omitted] == [("CronJob nightly", reason)]


def test_several_documents_lists_and_other_kinds() -> None:
    listed = yaml.safe_dump({"kind": "List", "items": [yaml.safe_load(manifest(name="b")), {"kind": "Pod"}, None]})
    own = yaml.safe_dump({"kind": "CronJobList", "items": [yaml.safe_load(manifest(name="c"))]})
    text = "---\n".join(["# comment\n", manifest(name="a"), "kind: Pod\n", "- a\n", "just text\n", "", listed, own])
    imported = read(text)
    assert [job.name for job in imported.jobs] == ["a", "b", "c"] and imported.omitted == []
    assert imported.jobs[0].where == "line 3"


def test_anchors_and_merge_keys() -> None:
    text = """
        kind: CronJob
        metadata: {name: a}
        spec:
          schedule: "@daily"
          jobTemplate:
            spec:
              template:
                spec:
                  containers:
                    - &base
                      name: x
                      image: shop
                      command: [run]
                  more: {<<: *base, name: y}
        """
    assert read(text).jobs[0].columns["task"] == "run"


def test_json_is_read_too() -> None:
    import json

    assert [job.name for job in read(json.dumps(yaml.safe_load(manifest()), indent=1)).jobs] == ["nightly"]


@pytest.mark.parametrize(("text", "words"), [
    ("a: {{ .Values.x }}\n", "template"), ("a: [\n", "no YAML"), ("a: *b\n", "names no"), ("a: &x [*x]\n", "names no"),
    ("? [a]\n: b\n", "no text"), ("<<: 5\n", "needs a mapping"), ("a: \x07\n", "line 1"),
])  # fmt: skip
def test_a_file_that_is_no_manifest_is_one_line(text: str, words: str) -> None:
    imported = read(text, label="f.yaml")
    assert imported.jobs == [] and len(imported.omitted) == 1
    omitted = imported.omitted[0]
    assert words in f"{omitted.where}: {omitted.remark.text}" and "\n" not in omitted.remark.text


def test_the_depth_of_a_manifest_is_bounded() -> None:
    text = "[" * (DEEPEST + 1) + "]" * (DEEPEST + 1)
    with pytest.raises(ManifestError, match="nested more than"):
        list(read_documents(text))
    assert len(list(read_documents("[" * DEEPEST + "]" * DEEPEST))) == 1
    with pytest.raises(ManifestError):
        list(read_documents("[" * 1_000_000))


def test_the_values_of_a_manifest_are_bounded() -> None:
    merged = ", ".join(f"k{n}: 1" for n in range(1000))
    text = f"a: &a {{{merged}}}\n" + "".join(f"b{n}: {{<<: *a}}\n" for n in range(MOST_VALUES // 1000))
    with pytest.raises(ManifestError, match="more than"):
        list(read_documents(text))


def test_aliases_take_no_room() -> None:
    """Of the text that becomes a billion values elsewhere (billion laughs)."""
    text = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
    assert len(list(read_documents(text))) == 1


@settings(deadline=None, max_examples=200)
@given(st.text(st.sampled_from("kind: CronJob\n-[]{}&*!|>'\"#%@`\t<<\x00é"), max_size=120))
def test_any_text_is_read_or_refused(text: str) -> None:
    read(text)


def test_almost_all_cronjobs_of_real_charts_are_exact() -> None:
    names = ManifestNames()
    parts = [import_cronjobs(path.read_text(), ManifestOptions(NOW, label=path.name), names)
             for path in sorted(SAMPLES.rglob("*.y*ml"))]  # fmt: skip
    jobs = [job for part in parts for job in part.jobs]
    assert sum(len(part.omitted) for part in parts) == 0
    assert len(jobs) > 20 and sum(job.exact for job in jobs) / len(jobs) >= 0.95
    assert len({job.name for job in jobs}) == len(jobs)
    for job in jobs:
        parse(job.columns["schedule"], job.columns["timezone"])
