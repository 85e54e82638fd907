"""Map the index of a Job to the names of its shards, and read their done records."""

from __future__ import annotations

import base64
import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tarkit.errors import MissingInputError, TarkitError, UsageError, printable
from tarkit.k8s.apiobject import Object, name_of, next_stage_of, part_of, retry_of, run_of, stage_of
from tarkit.k8s.cluster.connection import Cluster
from tarkit.k8s.cluster.jobview import JobPlan, job_plan
from tarkit.k8s.jobsets import with_jobs_of_sets
from tarkit.k8s.plan.shardlist import FILE_NAME, LIST_SPEC, name_end
from tarkit.k8s.podfields import main_container, substitute, work_in
from tarkit.names.outputnames import output_name, plan_outputs
from tarkit.names.url import local_path
from tarkit.runs.status import Progress, progress_of
from tarkit.runs.work import Work
from tarkit.specs.shardspec import expand
from tarkit.specs.slicedlist import changed, open_list, sha256_of

_LONGEST_LIST = 256 * 1024 * 1024


@dataclass
class RunRecords:
    """Summary of the done records of a run's own shards.

    Attributes:
        found: progress of these shards alone.
        shards: all shards of the run in order, by the names of their outputs; None if its inputs
            are not known.
        any_command: records of any command are counted, since the run's own command is not known.
        allow_empty: accept that no sample comes out of all shards.
    """

    outdir: str
    found: Progress
    shards: Mapping[str, str] | None
    any_command: bool = False
    allow_empty: bool = False

    @property
    def is_empty(self) -> bool:
        """True if samples came in and none came out: an error unless it is allowed."""
        return self.found.empty and not self.allow_empty

    @property
    def total(self) -> int | None:
        """Number of shards of the run."""
        return None if self.shards is None else len(self.shards)


def listed_specs(config_map: Object) -> list[str]:
    """Return the shard specs in a ConfigMap of kubetpl, whose name has the checksum of the list."""
    config = f"ConfigMap {printable(name_of(config_map))}"
    try:
        packed = base64.b64decode((config_map.get("binaryData") or {})[FILE_NAME], validate=True)
        text = zlib.decompressobj(47).decompress(packed, _LONGEST_LIST)
    except (KeyError, ValueError, TypeError, zlib.error):
        raise UsageError(f"{config} holds no list of shards ({FILE_NAME})") from None
    if not name_of(config_map).endswith(name_end(text)):
        raise UsageError(f"{config} holds another list of shards than it is named after")
    return [line for line in text.decode("utf-8", "surrogateescape").split("\n") if line]


@dataclass(frozen=True)
class RecordSource:
    """The folder of a Job's done records, and its shards, from the Job or from the user.

    Attributes:
        outdir, specs: the output folder and the inputs that the user names.
        check_inputs: check every input for changes; each must be reachable from here.
        documents: manifests that are searched for the ConfigMap with the list of shards, before the
            cluster is asked.
    """

    outdir: str | None = None
    specs: Sequence[str] = ()
    check_inputs: bool = False
    documents: Sequence[Object] = ()

    def refuse_many(self) -> None:
        """Refuse ``-O`` and ``--shards`` for several Jobs."""
        if self.outdir or self.specs:
            raise UsageError("-O and --shards are about one Job; this names several")

    def job(self, name: str) -> Object | None:
        """Return the Job of this name in the documents; None without documents.

        Raises:
            UsageError: the documents have no such Job.
        """
        jobs = {name_of(each): each for each in with_jobs_of_sets(self.documents) if each["kind"] == "Job"}
        last = [job for job in jobs.values() if run_of(job) == name and stage_of(job) and not next_stage_of(job)]
        if name not in jobs and len(last) == 1:
            # The outputs of the run are those of its last stage.
            return last[0]
        if name not in jobs and self.documents:
            there = ", ".join([*jobs][:5]) or "none"
            raise UsageError(f"-f: the manifest has no Job {name}; its Jobs: {there}")
        return jobs.get(name)

    def specs_of(self, cluster: Cluster | None, job: Object) -> Sequence[str]:
        """Return the shard specs of a Job, from its annotations and the ConfigMap of its list."""
        plan = job_plan(job)
        specs = plan.inputs or ()
        if LIST_SPEC not in specs or plan.list_name is None:
            return specs
        maps = (each for each in self.documents if each.get("kind") == "ConfigMap")
        source = next((each for each in maps if name_of(each) == plan.list_name), None)
        if source is None and cluster is not None:
            source = cluster.get("configmaps", plan.list_name)
        if source is None:
            return specs
        listed = listed_specs(source)
        return [each for spec in specs for each in (listed if spec == LIST_SPEC else [spec])]

    def read(self, cluster: Cluster | None, job: Object) -> RunRecords | None:
        """Read the done records of a Job's shards.

        Returns:
            None if the output folder is not known, or if the Job's command writes no done records.

        Raises:
            MissingInputError: the folder does not exist.
            TarkitError: the shards of the Job cannot be determined.
        """
        plan = job_plan(job)
        folder = self.outdir or plan.outdir
        if not folder:
            return None
        if stage_of(job) is not None:
            return _stage_records(job, folder)
        specs = self.specs or self.specs_of(cluster, job)
        shards = run_shards(plan, specs, folder, own=not self.specs) if specs else None
        path = local_path(folder)
        # A folder beside which nothing is either is that of another machine, or of a pod; else it
        # is not made yet.
        needed = path if path is None or shards is None else os.path.dirname(os.path.abspath(path))
        if path is not None and not os.path.isdir(path) and not os.path.isdir(str(needed)):
            hint = "-O names the output folder as seen from here"
            raise MissingInputError("no such folder on this machine", url=folder, hint=hint)
        work, own = _expected_fingerprint(job), sliced_work(job)
        found = progress_of(
            folder,
            None if shards is None else shards.values(),
            work,
            # Records of other inputs are not its own, if the shards are named as the Job names
            # them.
            as_named=not self.specs,
            check_inputs=self.check_inputs,
            # Without a Job and its inputs, the runs of the folder say what there should be.
            of_runs=shards is None and "spec" not in job,
        )
        if own is not None or "spec" not in job or found.done or found.stale or found.failed:
            # A retry has some of the shards, which may be empty as a slice may.
            allow_empty = (own is not None and own.allow_empty) or retry_of(job) is not None
            return RunRecords(folder, found, shards, work is None and own is not None, allow_empty)
        return None


def _stage_records(job: Object, folder: str) -> RunRecords | None:
    """Read the done records of a stage of a verb, whose run record has the names of its outputs.

    Returns:
        None if there are none: it has not begun, or the last stage has removed its run files.
    """
    path = local_path(folder)
    if path is not None and not os.path.isdir(path) and os.path.isdir(os.path.dirname(os.path.abspath(path))):
        return None
    try:
        found = progress_of(folder, of_runs=True)
    except MissingInputError:
        if path is None:
            return None
        hint = "-O names the output folder as seen from here"
        raise MissingInputError("no such folder on this machine", url=folder, hint=hint) from None
    if not found.runs:
        return None
    if next_stage_of(job):
        # They are in the run files, and the last stage writes them.
        found.set_aside.clear()
    words = main_container(part_of(job, "spec", "template", "spec")).get("args") or ()
    return RunRecords(folder, found, None, allow_empty="--allow-empty" in words)


def _expected_fingerprint(job: Object) -> str | None:
    """Return the fingerprint that the done records of a Job have.

    None if it cannot be derived from the manifest. A record with a different fingerprint belongs to
    another command over the same shards, and so not to this Job.
    """
    try:
        container = main_container(dict(part_of(job, "spec", "template", "spec")))
        env = {str(each.get("name")): each.get("value") for each in container.get("env") or []}
        args = [substitute(str(each), {}) for each in container.get("args") or ()]
        work = work_in({"command": container.get("command"), "args": args})
        if work is None or work.script is not None or work.files():
            # The content of files counts, and is in the container.
            return None
        if work.mtime is None:
            # Pods do not know this machine's environment.
            work = replace(work, mtime=int(str(env.get("SOURCE_DATE_EPOCH", "0"))))
        return work.fingerprint()
    except (TarkitError, ValueError):
        return None


def sliced_work(job: Object) -> Work | None:
    """Return the Work of a Job that runs tarproc over slices; None for other Jobs."""
    try:
        work = work_in(main_container(part_of(job, "spec", "template", "spec")))
        return work if job_plan(job).inputs is not None and work is not None and work.inputs else None
    except UsageError:
        return None


def is_per_shard(job: Object) -> bool:
    """Return True if a Job runs tarproc over slices, so that done records show what is left."""
    return sliced_work(job) is not None


def run_shards(plan: JobPlan, specs: Sequence[str], outdir: str, *, own: bool = False) -> dict[str, str]:
    """Return the shards that specs stand for, in order, by the names of their outputs.

    Globs and lists are expanded.

    Args:
        own: the specs are the Job's own.

    Raises:
        DataError: own specs no longer stand for the shards that the Job was made for, so it is not
            known which shards are missing.
        UsageError: the specs are in a ConfigMap that is not available.
    """
    if LIST_SPEC in specs:
        raise UsageError(
            f"the run's inputs are in the ConfigMap {plan.list_name}, which is not at hand; name them with --shards"
        )
    urls = [url for url, _ in plan_outputs(expand(specs, allow_pipe=False), outdir)]
    if own:
        planned = open_list(specs[0][1:]) if len(specs) == 1 and specs[0].startswith("@") else None
        known = (None, sha256_of(urls), None if planned is None else planned.offsets_sha256)
        if plan.shards not in (None, len(urls)) or plan.list_sha256 not in known:
            raise changed(" ".join(each.removeprefix("@") for each in specs))
    return {output_name(url): url for url in urls}
