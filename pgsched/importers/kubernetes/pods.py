"""Make the command of a job from the pod of a CronJob.

Invariant: the command has the program, arguments, variables and directory of the container. What it cannot have has a
remark.

The rules are those of the API reference of Container and PodSpec: `command` takes the place of the image's entry point,
`$(NAME)` stands for a variable of the container, and `$$` for `$`. pgsched runs the command in the
container of a worker: that has the image, the mounts and the account, and its queue says which one is meant.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from pgsched.core.policies import LONGEST
from pgsched.importers.imported import Reason, Remark
from pgsched.importers.kubernetes.fields import FieldRefused, Fields
from pgsched.importers.variables import split_own

MOST_CHARACTERS = 1024 * 1024  # of a container's variables and arguments: a variable may name another one many times
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
    expander = _Expander()
    env = _environment(container, expander, remarks)
    words = [expander.expand(one) for one in [*container.texts("command"), *container.texts("args")]]
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


def _environment(container: Fields, expander: _Expander, remarks: list[Remark]) -> dict[str, str]:
    env = expander.variables
    elsewhere = [one for one in ("envFrom",) if one in container]
    for variable in container.list("env"):
        name = variable.text("name") or ""
        if not name or "=" in name:
            continue
        if "valueFrom" in variable:
            elsewhere.append(name)
        else:
            env[name] = expander.expand(variable.text("value") or "")
    if elsewhere:
        text = f"{', '.join(elsewhere)[:300]}: let the command read it, such as from a file that is mounted"
        remarks.append(Remark(Reason.ENVIRONMENT, text, "args" if env else None))
    own, found = split_own(env)
    remarks += found
    return own


class _Expander:
    """Replaces what begins with `$` in the texts of a container, as Kubernetes does (its function Expand).

    Invariant: the texts that it returns have at most MOST_CHARACTERS characters together.
    """

    def __init__(self) -> None:
        self.variables: dict[str, str] = {}
        self._left = MOST_CHARACTERS

    def expand(self, text: str) -> str:
        """Return a text with `$(NAME)` replaced, and each `$$` by `$`. Names that are not known stay.

        Raises FieldRefused for too many characters.
        """
        pieces: list[str] = []
        at, last = 0, text.rfind(")")
        while 0 <= (sign := text.find("$", at)) < len(text) - 1:
            pieces.append(text[at:sign])
            if text[sign + 1] == "(" and sign < last:
                end = text.index(")", sign) + 1
                pieces.append(self.variables.get(text[sign + 2 : end - 1], text[sign:end]))
            else:
                end = sign + 2
                pieces.append("$" if text[sign + 1] == "$" else text[sign:end])
            self._take(pieces[-2:])
            at = end
        pieces.append(text[at:])
        self._take(pieces[-1:])
        return "".join(pieces)

    def _take(self, pieces: list[str]) -> None:
        self._left -= sum(map(len, pieces))
        if self._left < 0:
            raise FieldRefused(f"its variables and arguments have more than {MOST_CHARACTERS:,} characters")


def _say_what_the_worker_needs(spec: Fields, container: Fields, remarks: list[Remark]) -> None:
    needs = [name for name in OF_THE_POD if name in spec]
    needs += [name for name in OF_THE_CONTAINER if name in container and name != "envFrom"]
    if needs:
        remarks.append(Remark(Reason.WORKER_IMAGE, f"its pod has {', '.join(needs)}: so must the worker"))
