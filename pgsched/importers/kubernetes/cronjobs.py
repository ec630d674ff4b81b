"""Make jobs of CronJobs.

Invariant: a job starts when the controller would create a Job, and is tried as often; whatever differs has a remark.

What the fields mean is on the pages "CronJob" and "Jobs" of the documentation of Kubernetes. Forbid without a deadline
starts the latest slot that it missed as soon as the earlier Job has ended, and so does overlap buffer_one. With
startingDeadlineSeconds it starts only a slot that is not older, as retry_within does. A slot that was not decided in
time starts later, without a limit or within the deadline: catch_up is latest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import islice, pairwise
from typing import Any

from pgsched.core.policies import LONGEST, PRESETS
from pgsched.core.schedule.cron import parse
from pgsched.importers.file_values import omit_refused
from pgsched.importers.imported import Imported, ImportedJob, Omitted, Reason, Remark
from pgsched.importers.job_names import JobNames, clean_name, slug
from pgsched.importers.kubernetes.documents import Manifest, ManifestError, read_documents
from pgsched.importers.kubernetes.fields import FieldRefused, Fields
from pgsched.importers.kubernetes.pods import NoCommand, pod_columns
from pgsched.importers.kubernetes.schedules import ScheduleRefused, translate_schedule

PRESET = {name: value for name, value in PRESETS["kubernetes"].items() if value is not None and name != "misfire_after"}
MOST_ATTEMPTS = 1000
DEFAULT_BACKOFF_LIMIT = 6
IN_PLACE_BACKOFF = timedelta(minutes=5)  # of containers that restart in their pod
LISTS = ("List", "CronJobList")
MOST_ITEMS = 10_000
MOST_RULES = 20  # of podFailurePolicy, as in the API
SLOTS_COMPARED = 50
LONGEST_SHOWN = 300  # characters of a name that comments repeat


@dataclass(frozen=True, slots=True)
class ManifestOptions:
    """How manifests are to be read.

    `label`: what stands before `line 12`, for a file of several. `timezone`: of the controller. `queue`: of all jobs;
    `{image}` and `{namespace}` in it stand for those of the CronJob.
    """

    now: datetime
    timezone: str = "UTC"
    label: str = ""
    queue: str | None = None


@dataclass(slots=True)
class ManifestNames:
    """The names and queues that one import has given."""

    jobs: JobNames = field(default_factory=JobNames)
    queues: JobNames = field(default_factory=JobNames)
    images: dict[str, str] = field(default_factory=dict)

    def queue_of(self, image: str) -> str:
        """Return the name of an image without registry and version; another image of that name gets a number."""
        if image not in self.images:
            short = image.rpartition("/")[2].partition("@")[0].partition(":")[0]
            self.images[image] = self.queues.take(slug(short) or "image")
        return self.images[image]


def import_cronjobs(text: str, options: ManifestOptions, names: ManifestNames | None = None) -> Imported:
    """Return the jobs of a file of manifests. `names`: those of the same import that are taken."""
    imported = Imported()
    names = names or ManifestNames()
    try:
        for manifest in read_documents(text):
            for cronjob in _cronjobs(manifest):
                _add(cronjob, options, names, imported)
    except ManifestError as error:
        where = f"{options.label} line {error.line}".strip()
        imported.omitted.append(Omitted(where, "", Remark(Reason.SYNTAX, str(error))))
    return omit_refused(imported)


def _cronjobs(manifest: Manifest) -> Iterator[Manifest]:
    """Yield the CronJobs of a document: itself, or items of a list. Other kinds are none of ours."""
    value = manifest.value
    if not isinstance(value, dict):
        return
    kind = value.get("kind")
    if kind == "CronJob":
        yield manifest
    elif kind in LISTS and isinstance(value.get("items"), list):
        if len(value["items"]) > MOST_ITEMS:
            raise ManifestError(manifest.line, f"a list of more than {MOST_ITEMS:,} items: import it in parts")
        for item in value["items"]:
            if isinstance(item, dict) and (kind == "CronJobList" or item.get("kind") == "CronJob"):
                yield Manifest(manifest.line, item)


def _add(manifest: Manifest, options: ManifestOptions, names: ManifestNames, imported: Imported) -> None:
    where = f"{options.label} line {manifest.line}".strip()
    source = "CronJob"
    try:
        cronjob = Fields(manifest.value)
        metadata = cronjob.at("metadata")
        name = metadata.text("name") or metadata.text("generateName")
        namespace = metadata.text("namespace")
        source = f"CronJob {namespace + '/' if namespace else ''}{name or ''}".strip()[:LONGEST_SHOWN]
        if not name:
            raise FieldRefused("metadata.name is missing")
        columns, remarks = _columns(cronjob.at("spec"), options, names, namespace, imported)
    except FieldRefused as error:
        imported.omitted.append(Omitted(where, source, Remark(Reason.SYNTAX, str(error))))
    except ScheduleRefused as refusal:
        imported.omitted.append(Omitted(where, source, refusal.remark))
    except NoCommand as error:
        imported.omitted.append(Omitted(where, source, Remark(Reason.NO_COMMAND, str(error))))
    else:
        taken = names.jobs.take(name) if namespace is None else names.jobs.take_first(name, f"{namespace}/{name}")
        imported.add(ImportedJob(taken, columns, remarks, where, source))


def _columns(
    spec: Fields, options: ManifestOptions, names: ManifestNames, namespace: str | None, imported: Imported
) -> tuple[dict[str, Any], list[Remark]]:
    job, pod = spec.at("jobTemplate", "spec"), spec.at("jobTemplate", "spec", "template", "spec")
    found = translate_schedule(spec.text("schedule") or "", spec.text("timeZone") or options.timezone, options.now)
    remarks = found.remarks
    columns: dict[str, Any] = {"schedule": found.schedule, "timezone": found.timezone}
    run, image = pod_columns(pod, remarks)
    columns |= run | {"queue": _queue(image, namespace, options, names, imported)}
    columns |= PRESET | _policies(spec, columns, options.now, remarks)
    columns |= _attempts(job, pod, remarks)
    if spec.flag("suspend") or job.flag("suspend"):
        columns["paused"] = True
        text = "on resuming, Kubernetes starts what was missed: so does resume_from: pause"
        remarks.append(Remark(Reason.SUSPENDED, text, "paused"))
    if any(name in spec for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit")) or (
        "ttlSecondsAfterFinished" in job
    ):
        remark = Remark(Reason.HISTORY, "limits of finished Jobs are left out: see keep")
        if remark not in imported.remarks:
            imported.remarks.append(remark)
    return {name: value for name, value in columns.items() if value is not None}, remarks


def _queue(
    image: str, namespace: str | None, options: ManifestOptions, names: ManifestNames, imported: Imported
) -> str:
    short = names.queue_of(image)
    pattern = options.queue or "{image}"
    queue = clean_name(pattern.replace("{image}", short).replace("{namespace}", namespace or "default"))
    remark = Remark(Reason.WORKER_IMAGE, f"queue {queue}: workers in the image {image}")
    if remark not in imported.remarks:
        imported.remarks.append(remark)
    return queue


def _policies(spec: Fields, columns: dict[str, Any], now: datetime, remarks: list[Remark]) -> dict[str, Any]:
    """Return the columns for overlapping and late slots."""
    policy = spec.text("concurrencyPolicy") or "Allow"
    seconds = spec.number("startingDeadlineSeconds")
    deadline = None if seconds is None else min(timedelta(seconds=seconds), LONGEST)
    found: dict[str, Any] = {}
    if policy == "Allow":
        found["overlap"] = "allow"
    elif policy == "Replace":
        found["overlap"] = "replace"
    elif policy != "Forbid":
        raise FieldRefused(f"concurrencyPolicy: {policy!r:.40} is not Allow, Forbid or Replace")
    elif deadline is None:
        found["overlap"] = "buffer_one"
        remarks.append(Remark(Reason.FORBID, "one of the slots that meet a run starts at its end", "overlap"))
    else:
        found |= {"overlap": "skip", "retry_within": deadline}
        if _shortest_interval(columns, now) <= deadline:
            text = "several slots may wait for the end of a run; Kubernetes starts the latest of them"
            remarks.append(Remark(Reason.CONCURRENCY_POLICY, text, "overlap"))
        else:
            remarks.append(Remark(Reason.FORBID, "a slot waits until the deadline for the end of a run", "overlap"))
    if deadline is not None:
        found["catch_up_window"] = deadline
        if deadline < timedelta(minutes=1):
            found["misfire_after"] = deadline
        text = f"startingDeadlineSeconds: {seconds}"
        if deadline < timedelta(seconds=10):
            text += "; the controller looks every ten seconds, and may start nothing at all"
        remarks.append(Remark(Reason.STARTING_DEADLINE, text, "catch_up_window"))
    return found


def _shortest_interval(columns: dict[str, Any], now: datetime) -> timedelta:
    schedule = parse(columns["schedule"], columns["timezone"])
    slots: Sequence[datetime] = list(islice(schedule.between(now, now + timedelta(days=3660)), SLOTS_COMPARED))
    return min((later - earlier for earlier, later in pairwise(slots)), default=timedelta.max)


def _attempts(job: Fields, pod: Fields, remarks: list[Remark]) -> dict[str, Any]:
    """Return the columns for retries and their times."""
    limit = job.number("backoffLimit")
    attempts = (DEFAULT_BACKOFF_LIMIT if limit is None else limit) + 1
    found: dict[str, Any] = {"max_attempts": min(attempts, MOST_ATTEMPTS)}
    if attempts > MOST_ATTEMPTS:
        remarks.append(Remark(Reason.RETRIES, f"backoffLimit: {limit}: at most {MOST_ATTEMPTS} here", "max_attempts"))
    if attempts == 1:
        found |= dict.fromkeys(("backoff", "backoff_base", "backoff_max", "backoff_jitter"))
    elif pod.text("restartPolicy") == "OnFailure":
        found["backoff_max"] = IN_PLACE_BACKOFF
    longest = [seconds for seconds in (job.number("activeDeadlineSeconds"), pod.number("activeDeadlineSeconds"))
               if seconds]  # fmt: skip
    if longest:
        found["timeout"] = min(timedelta(seconds=min(longest)), LONGEST)
        if job.number("activeDeadlineSeconds") and attempts > 1:
            text = "activeDeadlineSeconds ends the Job with all its attempts"
            remarks.append(Remark(Reason.ACTIVE_DEADLINE, text, "timeout"))
    for name in ("completions", "parallelism"):
        if (job.number(name) or 1) > 1:
            remarks.append(Remark(Reason.CONTAINERS, f"{name}: a run has one process", "task"))
    unknown = [name for name in ("backoffLimitPerIndex", "successPolicy", "podReplacementPolicy") if name in job]
    found |= _failure_policy(job, unknown)
    if unknown:
        remarks.append(Remark(Reason.RETRIES, f"{', '.join(unknown)} is left out", "max_attempts"))
    return found


def _failure_policy(job: Fields, unknown: list[str]) -> dict[str, Any]:
    """Return dead_codes for exit codes that fail a Job at once."""
    codes: set[int] = set()
    rules = job.at("podFailurePolicy").list("rules")
    if len(rules) > MOST_RULES:
        raise FieldRefused(f"podFailurePolicy has more than {MOST_RULES} rules")
    for rule in rules:
        exits = rule.at("onExitCodes")
        values = exits.texts("values")
        if rule.text("action") == "FailJob" and exits.text("operator") == "In" and "containerName" not in exits:
            codes |= {int(one) for one in values if one.isdecimal() and len(one) <= 12 and int(one) <= 255}
        elif "podFailurePolicy" not in unknown:
            unknown.append("podFailurePolicy")
    return {"dead_codes": sorted(codes)} if codes else {}
