"""A Job for the shards that a Job left undone, refused while pods process the same shards.

It is made from the other Job in the cluster, or from its manifest: fields that the server added are
removed, the inputs are the shards that are not done, and it gets a new name.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from tarkit.errors import ClusterDeniedError, UsageError, counted, printable
from tarkit.k8s import apiobject as api
from tarkit.k8s import wellknown
from tarkit.k8s.apiobject import Object
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import job_plan, state_of
from tarkit.k8s.cluster.runjobs import origin
from tarkit.k8s.cluster.runrecords import is_per_shard
from tarkit.k8s.names import label_value, safe_label
from tarkit.k8s.plan.shardlist import LIST_SPEC, content_sha256, give_inputs, place_of, put_list
from tarkit.k8s.podfields import escape_in, fill_container, listed, main_container, part, put_named, work_in
from tarkit.k8s.settings import Settings
from tarkit.names.url import scheme_of
from tarkit.specs.slicedlist import even_counts, sha256_of

_NUMBER = re.compile(r"-r([0-9]{1,4})\Z")
# What servers, controllers and kubectl put on Jobs and pods; the first two without a domain, too,
# as of old.
_SERVERS = (
    *("controller-uid", "job-name", wellknown.CONTROLLER, wellknown.JOB_NAME, wellknown.INDEX),
    *(wellknown.LAST_APPLIED, wellknown.JOB_TRACKING),
)
_KUEUE = "kueue.x-k8s.io/"
_KUEUE_KEPT = (wellknown.QUEUE, f"{_KUEUE}job-min-parallelism", f"{_KUEUE}priority-class", f"{_KUEUE}elastic-job")
_GLOB = re.compile(r"[*?\[]")


@dataclass
class Changes(Settings):
    """The settings of a retry that differ from those of the Job before; None keeps a setting.

    ``list_url`` and ``list_sha256`` are the place of the list of shards in a bucket, instead of a
    ConfigMap, and the checksum by which pods recognize it.
    """

    list_sha256: str | None = None


def next_name(name: str, taken: Collection[str]) -> str:
    """Return ``NAME-r2``, or the next such name that no Job has."""
    match = _NUMBER.search(name)
    base, number = (name[: match.start()], int(match[1]) + 1) if match else (name, 2)
    while f"{base}-r{number}" in taken:
        number += 1
    return f"{base}-r{number}"


def slices_of(job: Object, shards: int, changes: Changes) -> int:
    """Return the number of slices of a retry: as many as before, if there are enough shards."""
    return min(shards, changes.slices or int(api.spec_of(job).get("completions") or 1))


def retry_documents(job: Object, specs: Sequence[str] | None, changes: Changes, taken: Collection[str]) -> list[Object]:
    """Return the manifest of a retry: the ConfigMap with its list of shards, if any, then the Job.

    Args:
        job: the Job to retry, from the API or a manifest.
        specs: URLs of shards that are not done; None repeats the whole Job.
        taken: names of existing Jobs.

    Raises:
        UsageError: the retry cannot be made.
    """
    if specs is not None and not is_per_shard(job):
        raise UsageError(
            f"Job {api.name_of(job)} does not run tarproc over slices, so which shards are left is not known"
        )
    fresh = clean(job)
    metadata, spec = part(fresh, "metadata"), part(fresh, "spec")
    old, pod = metadata["name"], part(spec, "template", "spec")
    slices = int(spec.get("completions") or 1) if specs is None else slices_of(job, len(specs), changes)
    metadata["name"] = changes.name or next_name(old, taken)
    part(metadata, "labels").setdefault(wellknown.RUN, safe_label(old))
    notes = part(metadata, "annotations")
    notes[wellknown.RETRY_OF] = old
    _resize(pod, changes)
    if changes.parallelism is not None or "parallelism" in spec:
        wanted = changes.parallelism or int(spec.get("parallelism") or 0) or 1
        spec["parallelism"] = wanted if specs is None else min(wanted, slices)
    if specs is None:
        return [fresh]
    spec["completions"] = slices
    if spec.get("maxFailedIndexes") is not None:
        spec["maxFailedIndexes"] = min(int(spec["maxFailedIndexes"]), slices)
    return [*_give(fresh, pod, specs, slices, changes), fresh]


def clean(job: Object) -> Object:
    """Return the manifest of a Job of the API, without the fields of servers and controllers."""
    metadata, spec = api.part_of(job, "metadata"), copy.deepcopy(api.spec_of(job))
    kept = {key: metadata[key] for key in ("name", "namespace") if metadata.get(key)}
    for key in ("selector", "manualSelector", "suspend"):
        spec.pop(key, None)
    template = spec["template"] = {**api.part_of(spec, "template")}
    if own := _own(template.pop("metadata", None)):
        template["metadata"] = own
    # What the server writes beside a limit for each index: no limit.
    if spec.get("backoffLimit") == 2147483647:
        del spec["backoffLimit"]
    version = job.get("apiVersion") or "batch/v1"
    return {"apiVersion": version, "kind": "Job", "metadata": kept | _own(metadata), "spec": spec}


def _own(metadata: Object | None) -> Object:
    """Return labels and annotations, without those of servers and controllers."""
    found: Object = {}
    for words in ("labels", "annotations"):
        for key, value in api.part_of(metadata or {}, words).items():
            if key not in _SERVERS and (not key.startswith(_KUEUE) or key in _KUEUE_KEPT):
                found.setdefault(words, {})[key] = value
    return found


def with_list(changes: Changes, job: Object, urls: Sequence[str]) -> Changes:
    """Write the list of shards where ``list_url`` says, and return the completed changes.

    Without a ``list_url`` they are returned as they are.
    """
    if changes.list_url is None:
        return changes
    counts = even_counts(len(urls), slices_of(job, len(urls), changes))
    url = place_of(changes.list_url, content_sha256(urls, counts))
    written = put_list(url, urls, counts, job_plan(job).outdir)
    return replace(changes, list_url=url, list_sha256=written.offsets_sha256)


def _resize(pod: Object, changes: Changes) -> None:
    container = main_container(pod)
    limited = changes.cpu is not None and "cpu" in part(container, "resources", "limits")
    fill_container(pod, changes)
    # Which takes a limit of CPUs out; a container that had one keeps one.
    if limited and (cpu := part(container, "resources", "requests").get("cpu")):
        part(container, "resources", "limits")["cpu"] = cpu


def _give(job: Object, pod: Object, specs: Sequence[str], slices: int, changes: Changes) -> list[Object]:
    """Replace the inputs of a Job; return the ConfigMap that has them, if there is one."""
    metadata, container = part(job, "metadata"), main_container(pod)
    notes = part(metadata, "annotations")
    old_list = notes.pop(wellknown.LIST, None)
    pod["volumes"] = [
        each for each in listed(pod, "volumes") if not old_list or (each.get("configMap") or {}).get("name") != old_list
    ]
    names = {each.get("name") for each in pod["volumes"]}
    container["volumeMounts"] = [each for each in listed(container, "volumeMounts") if each.get("name") in names]
    given, list_sha256, lines = f"@{changes.list_url}", changes.list_sha256, None
    if changes.list_url is None:
        given, list_sha256, lines = LIST_SPEC, sha256_of(specs), map(_literal, specs)
    labels = {wellknown.RUN: metadata["labels"][wellknown.RUN]}
    made = give_inputs(job, len(specs), slices, [given], lines, labels)
    work = work_in(container)
    if work is None or not (work.slice or "").isdigit():
        raise UsageError(f"Job {api.name_of(job)}: there is no --slice W among tarproc's arguments; retry it by hand")
    work = replace(work, slice=str(slices), list_sha256=list_sha256, inputs=(escape_in(container, given),))
    container["command"], container["args"] = container["command"][:1], work.to_args()
    env = listed(container, "env")
    if any(each.get("name") == "TARKIT_SLICES" for each in env):
        put_named(env, {"name": "TARKIT_SLICES", "value": str(slices)})
    return made


def _literal(url: str) -> str:
    """Return a shard spec that stands for exactly this shard."""
    pattern = url.partition("?")[0] if scheme_of(url) in ("http", "https") else url
    if _GLOB.search(pattern):
        raise UsageError(f"{printable(url)!r} would be taken for a pattern in a list of shards; give it another name")
    return re.sub(r"([{}])", r"\\\1", url) if "{" in url or "}" in url else url


def refuse_running(name: str, known: Mapping[str, Object], report: Callable[[str], None]) -> None:
    """Refuse a retry while the Job, or another Job of its shards, is running.

    Args:
        known: all Jobs, by name.
    """
    job = known.get(name)
    if job is not None and _is_at_work(job):
        raise UsageError(
            f"Job {name} still runs; wait for it (kubetpl wait {name}) or stop it (kubetpl cancel {name}), then retry"
        )
    if job is not None and state_of(job) == "suspended":
        report(f"Job {name} is suspended: do not let it go on beside the retry; kubectl delete job {name}")
    run = name if job is None else api.labels_of(job).get(wellknown.RUN, name)
    for other, each in known.items():
        first = origin(other, known)
        # All Jobs of kubetpl jobs are of one run, and have shards of their own. But of a retry of
        # what is gone, it is not known whose shards it has.
        lost = first not in known and api.labels_of(each).get(wellknown.RUN) == run
        if other != name and (first == origin(name, known) or lost) and _is_at_work(each):
            raise UsageError(f"{other}, of the same shards, still runs; kubetpl wait {other}, then retry that")


def refuse_orphans(cluster: Cluster, name: str, report: Callable[[str], None]) -> None:
    """Refuse a retry while pods of a deleted Job process the same shards.

    The deleted Job has this name, or is of the run of this name.

    Args:
        report: called with a line if they may not be listed.
    """
    if label_value(name):
        return
    fields, of_job = "status.phase!=Succeeded,status.phase!=Failed", wellknown.JOB_NAME
    whose = (f"{of_job}={name}", f"{wellknown.RUN}={name},{of_job}")
    try:
        pods = [pod for labels in whose for pod in cluster.list("pods", labels=labels, fields=fields)]
        # Asked for after the pods: the Job of a pod that is new by now is among them.
        there = set(map(api.uid_of, cluster.list("jobs"))) if pods else set()
    except ClusterDeniedError as error:
        report(f"{error}; whether pods of a Job {name} that was deleted still run is not known")
        return
    left = {api.uid_of(pod): pod for pod in pods if api.labels_of(pod).get(wellknown.CONTROLLER) not in there}
    if left:
        of = api.labels_of(next(iter(left.values()))).get(of_job)
        raise UsageError(
            f"{counted(len(left), 'pod')} of a Job {of} that was deleted still run: retry once they have ended, "
            f"or delete them (kubectl delete pods -l {of_job}={of})"
        )


def _is_at_work(job: Object) -> bool:
    has_pods = bool(api.active_pods(job) or api.status_of(job).get("terminating"))
    return has_pods or state_of(job) in ("waiting", "ending")
