"""Read the starts of CronJobs from `kubectl get jobs -o json`: a list, one job, or several of these one after another.

A Job that a CronJob made has it as its owner. Since Kubernetes 1.32 an annotation has the time for which it was
planned: `batch.kubernetes.io/cronjob-scheduled-timestamp` ("Well-Known Labels, Annotations and Taints"). Controllers
also write that time behind the CronJob's name, in minutes since 1970. A Job that a person made of a CronJob has the
annotation `cronjob.kubernetes.io/instantiate: manual`, and is no slot.

A listing has only the Jobs that the history limits of each CronJob have left. So of each name nothing is known before
its first Job.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pgsched.core.shadow.stamps import StampReader
from pgsched.core.shadow.starts import Start
from pgsched.errors import InputError

MOST_BYTES = 100_000_000
PLANNED = "batch.kubernetes.io/cronjob-scheduled-timestamp"
MANUAL = "cronjob.kubernetes.io/instantiate"
PLANNED_IN_NAME = re.compile(r"-(?:(\d{8})|(\d{10}))", re.ASCII)  # in minutes; until 1.20 in seconds


class KubernetesReader:
    """Reads the starts of a listing. `begin_s`, `end_s`: when the first Job was due, and the last one began."""

    def __init__(self, stamps: StampReader) -> None:
        self._stamps = stamps
        self._seen: set[str] = set()
        self.begin_s: float | None = None
        self.end_s: float | None = None

    def read(self, text: str) -> Iterator[Start]:
        """Yield the starts. Raises InputError for what is no listing."""
        for place, document in enumerate(documents(text), 1):
            for item in items_of(document, place):
                if (found := self._start(item)) is None:
                    continue
                due_s = found.at_s if found.due_s is None else min(found.due_s, found.at_s)
                self.begin_s = due_s if self.begin_s is None else min(due_s, self.begin_s)
                self.end_s = found.at_s if self.end_s is None else max(found.at_s, self.end_s)
                yield found

    def _start(self, job: dict[str, Any]) -> Start | None:
        """Return the start of a Job; None for one that no CronJob has made, or that was listed before."""
        about, notes = part(job, "metadata"), part(part(job, "metadata"), "annotations")
        owners = about.get("ownerReferences")
        mine = [one for one in owners if isinstance(one, dict)] if isinstance(owners, list) else []
        name = next((one.get("name") for one in mine if one.get("kind") == "CronJob"), None)
        if not isinstance(name, str) or notes.get(MANUAL) == "manual":
            return None
        space, own = str(about.get("namespace") or ""), str(about.get("name") or "")
        uid = str(about.get("uid") or f"{space}/{own}")
        began = part(job, "status").get("startTime") or about.get("creationTimestamp")
        at_s = self._stamps.read(began) if isinstance(began, str) else None
        if at_s is None or uid in self._seen:
            return None
        self._seen.add(uid)
        planned = notes.get(PLANNED)
        due_s = self._stamps.read(planned) if isinstance(planned, str) else None
        behind = PLANNED_IN_NAME.fullmatch(own.removeprefix(name))
        if due_s is None and behind is not None:
            due_s = 60.0 * int(behind[1]) if behind[1] else float(behind[2])
        return Start(f"{space}/{name}" if space else name, at_s, due_s)


def documents(text: str) -> Iterator[Any]:
    """Yield the JSON documents of a text. Raises InputError at the first one that is none."""
    decoder, place = json.JSONDecoder(), 0
    text = text.removeprefix("\ufeff")
    while place < len(text):
        if text[place].isspace():
            place += 1
            continue
        try:
            found, place = decoder.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            line = text.count("\n", 0, getattr(error, "pos", place)) + 1
            reason = getattr(error, "msg", "nested too deep")
            raise InputError(f"log: line {line}: not JSON: {reason}", "log") from None
        yield found


def items_of(document: Any, place: int) -> list[dict[str, Any]]:
    """Return the objects of a listing, of one Job, or of an event of a watch. Raises InputError for anything else."""
    if isinstance(document, dict) and isinstance(document.get("object"), dict):
        document = document["object"]
    if isinstance(document, dict) and isinstance(document.get("items"), list):
        return [one for one in document["items"] if isinstance(one, dict)]
    if not isinstance(document, dict) or document.get("kind") != "Job":
        raise InputError(f"log: document {place} is no listing of jobs: expected `kubectl get jobs -o json`", "log")
    return [document]


def part(value: dict[str, Any], name: str) -> dict[str, Any]:
    """Return an object within an object; an empty one where there is none."""
    found = value.get(name)
    return found if isinstance(found, dict) else {}
