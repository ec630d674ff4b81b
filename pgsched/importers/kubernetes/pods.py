"""Make the command of a job from the pod of a CronJob.

Invariant: the command has the program, arguments, variables and directory of the container. What it cannot have has a
remark.

The rules are those of the API reference of Container and PodSpec: `command` takes the place of the image's entry point,
`$(NAME)` stands for a variable of the container, and `$$(NAME)` for that text itself. pgsched runs the command in the
container of a worker: that has the image, the mounts and the account, and its queue says which one is meant.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from pgsched.core.policies import LONGEST
from pgsched.importers.imported import Reason, Remark
from pgsched.importers.kubernetes.fields import Fields

REFERENCE = re.compile(r"\$(\$)?\(([-._a-zA-Z][-._a-zA-Z0-9]*)\)")
DEFAULT_GRACE_S = 30
# What a worker has to have as well, by the field that asks for it.
OF_THE_POD = ("serviceAccountName", "serviceAccount", "nodeSelector", "affinity", "tolerations", "hostNetwork",
              "hostPID", "runtimeClassName", "hostAliases", "dnsConfig", "topologySpreadConstraints")  # fmt: skip
OF_THE_CONTAINER = ("volumeMounts", "securityContext", "resources", "envFrom", "lifecycle")
SHELL = ("/bin/sh", "-c")


class NoCommand(Exception):
    """The container has no command of its own."""


def pod_columns(spec: Fields, remarks: list[Remark]) -> tuple[dict[str, Any], str]:
    """Return the columns that run a pod's container, and its image. Raises NoCommand and FieldRefused."""
    containers = spec.list("containers")
    if not containers:
        raise NoCommand("the pod has no container")
    container = containers[0]
    image = container.text("image") or "an image"
    others = [one.text("name") or "?" for one in [*containers[1:], *spec.list("initContainers")]]
    if others:
        remarks.append(Remark(Reason.CONTAINERS, f"{', '.join(others)[:200]} is left out", "task"))
    env = _environment(container, remarks)
    words = [_expand(one, env) for one in [*container.texts("command"), *container.texts("args")]]
    if not container.texts("command"):
        raise NoCommand(f"{image} has its own entry point: write it as command:")
    args: dict[str, Any] = {}
    if env:
        args["env"] = env
    if directory := container.text("workingDir"):
        args["cwd"] = directory
    columns: dict[str, Any]
    if tuple(words[:2]) == SHELL and len(words) == 3:
        columns = {"kind": "shell", "task": words[2]}
    else:
        columns = {"kind": "command", "task": words[0]}
        args = {"argv": words[1:], **args} if words[1:] else args
    if args:
        columns["args"] = args
    grace = spec.number("terminationGracePeriodSeconds")
    columns["kill_after"] = min(timedelta(seconds=DEFAULT_GRACE_S if grace is None else grace), LONGEST)
    if not columns["task"].strip():
        raise NoCommand("its command is empty")
    _say_what_the_worker_needs(spec, container, remarks)
    return columns, image


def _environment(container: Fields, remarks: list[Remark]) -> dict[str, str]:
    env: dict[str, str] = {}
    elsewhere = [one for one in ("envFrom",) if one in container]
    for variable in container.list("env"):
        name = variable.text("name") or ""
        if not name or "=" in name:
            continue
        if "valueFrom" in variable or name.startswith("PGSCHED_"):
            elsewhere.append(name)
        else:
            env[name] = _expand(variable.text("value") or "", env)
    if elsewhere:
        text = f"{', '.join(elsewhere)[:300]}: let the command read it, such as from a file that is mounted"
        remarks.append(Remark(Reason.ENVIRONMENT, text, "args" if env else None))
    return env


def _expand(text: str, env: Mapping[str, str]) -> str:
    """Return a text with its `$(NAME)` replaced; names that are not known stay."""

    def replace(match: re.Match[str]) -> str:
        if match[1]:
            return f"$({match[2]})"
        return env.get(match[2], match[0])

    return REFERENCE.sub(replace, text)


def _say_what_the_worker_needs(spec: Fields, container: Fields, remarks: list[Remark]) -> None:
    needs = [name for name in OF_THE_POD if name in spec]
    needs += [name for name in OF_THE_CONTAINER if name in container and name != "envFrom"]
    if needs:
        remarks.append(Remark(Reason.WORKER_IMAGE, f"its pod has {', '.join(needs)}: so must the worker"))
