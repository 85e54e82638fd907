"""Generators of the Jobs of a verb of tarkit that has several stages, one Job for each stage.

A stage begins when the stage before is complete. Without a controller for that, all Jobs are
applied at once, and the pods of the later stages wait for the done records of the earlier ones.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os.path
from collections.abc import Sequence

from tarkit.errors import UsageError, printable
from tarkit.exchange.plan import WORK
from tarkit.k8s.durations import seconds
from tarkit.k8s.fill import filled, pod_of, without_name
from tarkit.k8s.generators.indexed import check_image, check_parallelism, check_written, index_job
from tarkit.k8s.jobsets import jobset_of
from tarkit.k8s.names import index_name_budget, safe_label
from tarkit.k8s.plan.shardlist import give_inputs
from tarkit.k8s.plan.sliceplan import ShardPlan, plan_shards, slice_count
from tarkit.k8s.podfields import escape_in, main_container, part
from tarkit.k8s.settings import Generator, Request, Settings, VerbCall
from tarkit.k8s.templates import read_template, template_path
from tarkit.k8s.wellknown import NEXT_STAGE, OUTDIR, QUEUE, RUN, SLICES, STAGE
from tarkit.k8s.yamltext import Document
from tarkit.names.url import join, scheme_of

STAGES = {"dedup": ("scatter", "match", "gather")}
"""Verb -> its stages in order, if they are not ``_STAGES``."""
_STAGES = ("scatter", "gather")

_PROGRAM = "tarkit"
_MOST_SLICES = 1_000
"""Largest number of slices, unless the user sets it: a pod of a later stage reads a part of each
slice's run file.
"""
_MOST_WORDS = 1_000
_WAIT = "1h"


def documents(request: Request) -> list[Document]:
    """Return the Jobs of all stages, after the ConfigMap with their list of shards if any."""
    verb = request.verb
    if verb is None:
        raise UsageError("name a verb of tarkit and its arguments")
    request = _with_paths(request, verb)
    settings, verb = request.settings, request.verb or verb
    _check(request, verb)
    plans = [plan_shards(specs, allow_local=request.here) for specs in verb.inputs]
    request.notes.extend(note for plan in plans for note in plan.notes)
    plan = _plan_of_all(plans)
    slices = slice_count(plan.shards, settings.slices, _MOST_SLICES)
    later = slice_count(slices if verb.outputs is None else min(slices, verb.outputs))
    if settings.gather_slices is not None:
        if settings.gather_slices < 1:
            raise UsageError(f"--gather-slices {settings.gather_slices}: at least one pod must run")
        later = settings.gather_slices
    found: list[Document] = []
    for template in request.template:
        if template["kind"] != "Job":
            found.append(filled(template, without_name(settings)))
            continue
        job = filled(template, settings)
        name = str(part(job, "metadata").get("name"))
        found += give_inputs(
            job, plan.shards, slices, plan.specs, plan.entries, {RUN: safe_label(name), **settings.label}
        )
        sides = [plan.specs] if len(plans) == 1 else [_words_of(each) for each in plans]
        stages = STAGES.get(verb.name, _STAGES)
        for number, stage in enumerate(stages):
            at = _Stage(stage, stages[number + 1] if stage != stages[-1] else None, later if number else slices)
            found.append(_job_of(copy.deepcopy(job), name, at, request, sides))
    if all(each["kind"] != "Job" for each in found):
        raise UsageError("--template: there is no Job in it, so nothing has indexes")
    return found


@dataclasses.dataclass(frozen=True)
class _Stage:
    """A stage, the next one, and the number of its slices."""

    name: str
    next: str | None
    slices: int


def _with_paths(request: Request, verb: VerbCall) -> Request:
    """Return the request with absolute folders if its pods run here, each in its own folder."""
    # These are settings of Jobs that run a command; a configuration file may have them.
    settings = dataclasses.replace(request.settings, restartpolicy=None, hostname=None)
    if request.here:
        settings = dataclasses.replace(settings, outdir=_absolute(settings.outdir), suspend_gather=False)
        verb = dataclasses.replace(verb, work=_absolute(verb.work))
    return dataclasses.replace(request, settings=settings, verb=verb)


def _absolute(folder: str | None) -> str | None:
    return folder if not folder or scheme_of(folder) else os.path.abspath(folder)


def _check(request: Request, verb: VerbCall) -> None:
    settings = request.settings
    if not settings.outdir:
        raise UsageError("name where the output shards go: --outdir s3://bucket/folder")
    check_written("--outdir", settings.outdir, here=request.here)
    if verb.work is not None:
        check_written("--work", verb.work, here=request.here)
    if not verb.inputs or not all(verb.inputs):
        raise UsageError("name the input shards: 's3://bucket/raw-{000000..001281}.tar', or @LIST")
    check_parallelism(settings)
    if settings.suspend_gather and _wants_jobset(settings):
        raise UsageError("--suspend-gather has no effect in a JobSet, which starts each stage itself; leave it out")
    check_image(request, _PROGRAM)


def _wants_jobset(settings: Settings) -> bool:
    # Kueue would start a Job that is to wait; of a JobSet it decides about the whole.
    return settings.jobset or settings.queue is not None


def _plan_of_all(plans: Sequence[ShardPlan]) -> ShardPlan:
    """Return the plan of the shards of all sides."""
    if len(plans) == 1:
        return plans[0]
    shards = sum(plan.shards for plan in plans)
    return ShardPlan([spec for plan in plans for spec in _words_of(plan)], shards, shards)


def _words_of(plan: ShardPlan) -> list[str]:
    """Return the specs of one of two sides: of each, all names are arguments."""
    if plan.entries is not None and len(plan.entries) > _MOST_WORDS:
        raise UsageError(
            f"a side of {len(plan.entries)} names is too long for a command line, of {_MOST_WORDS} at most; name its "
            "shards by a pattern, or put the list into a bucket: @s3://bucket/list.txt"
        )
    return plan.specs if plan.entries is None else plan.entries


def _job_of(job: Document, run: str, stage: _Stage, request: Request, sides: Sequence[Sequence[str]]) -> Document:
    """Fill the Job of a stage.

    Args:
        job: a copy of the filled template.
        run: name of the run.
        sides: specs of the shards, as its pods know them.
    """
    settings, verb, outdir = request.settings, request.verb, request.settings.outdir
    if verb is None or outdir is None:
        raise UsageError("name a verb of tarkit, and its output folder")
    metadata = part(job, "metadata")
    metadata["name"] = f"{run}-{stage.name}"
    # The Job of a JobSet has one more part in its name.
    longest = index_name_budget(stage.slices) - (2 if _wants_jobset(settings) else 0)
    if len(metadata["name"]) > longest:
        fits = longest - len(stage.name) - 1
        raise UsageError(f"--name {printable(run)}: the names of the pods would be too long; write {fits} characters")
    if stage.next is not None and settings.max_failed is None:
        # The next stage needs all slices: what still runs would run in vain.
        settings = dataclasses.replace(settings, max_failed="0")
    index_job(job, stage.slices, safe_label(run), settings)
    notes = part(metadata, "annotations")
    notes[SLICES], notes[STAGE] = str(stage.slices), stage.name
    if stage.next is not None:
        notes[NEXT_STAGE] = stage.next
        # A stage before the last one writes its done records beside its run files.
        notes[OUTDIR] = verb.work or join(outdir, WORK)
    if stage.name != _STAGES[0] and settings.suspend_gather:
        part(job, "spec")["suspend"] = True
    container = main_container(part(pod_of(job) or {}, "spec"))
    has_cpus = any(each.get("name") == "TARKIT_CPUS" for each in container["env"])
    words = [verb.name, "--stage", stage.name, "--slice", str(stage.slices), "--wait"]
    words.append(str(math.ceil(seconds(settings.wait or _WAIT, "--wait"))))
    # Expanded by the kubelet: what the container was promised, not what the node has.
    words += ["-p", "$(TARKIT_CPUS)" if has_cpus else "1"]
    folders = ["-O", outdir, *(() if verb.work is None else ("--work", verb.work))]
    given = [*folders, *verb.options, *_input_words(sides)]
    container["command"] = [_PROGRAM]
    container["args"] = [*words, *(escape_in(container, each) for each in given)]
    return job


def _input_words(sides: Sequence[Sequence[str]]) -> list[str]:
    if len(sides) == 1:
        return ["--", *sides[0]]
    return [*sides[0], "--", *sides[1]]


def _wrapped(request: Request, found: list[Document]) -> list[Document]:
    """Return the documents, with all Jobs in one JobSet if that is wanted."""
    settings = request.settings
    if not _wants_jobset(settings):
        return found
    (template,) = read_template(template_path("jobset"))
    jobs = [each for each in found if each["kind"] == "Job"]
    name = str(part(jobs[0], "metadata")["name"]).removesuffix(f"-{_STAGES[0]}")
    for job in jobs:
        # The label on a Job of it would be a second admission.
        part(job, "metadata", "labels").pop(QUEUE, None)
    labels = {} if settings.queue is None else {QUEUE: settings.queue}
    return [*(each for each in found if each["kind"] != "Job"), jobset_of(template, name, jobs, labels)]


def _generator(example: str) -> Generator:
    return Generator(example, documents, template="indexed", wrap=_wrapped)


SHUFFLE = _generator(
    "kubetpl shuffle -n mixed -I IMAGE 's3://bucket/raw-{000000..001281}.tar' \\\n"
    "      -O s3://bucket/mixed --shards 1282 --seed 1 | kubectl apply -f -"
)
SORT = _generator(
    "kubetpl sort -n sorted -I IMAGE 's3://bucket/raw-{000000..001281}.tar' \\\n"
    "      -O s3://bucket/sorted --by json.width --shards 1282 | kubectl apply -f -"
)
JOIN = _generator(
    "kubetpl join -n both -I IMAGE 's3://bucket/jpg-{000..147}.tar' -- 's3://bucket/txt-{000..147}.tar' \\\n"
    "      -O s3://bucket/both --shards 148 | kubectl apply -f -"
)
REDUCE = _generator(
    "kubetpl reduce -n videos -I IMAGE 's3://bucket/frames-{000..147}.tar' --by folder \\\n"
    "      -c 'convert 0*/sample.png sample.gif' -O s3://bucket/videos | kubectl apply -f -"
)
DEDUP = _generator(
    "kubetpl dedup -n unique -I IMAGE 's3://bucket/raw-{000000..001281}.tar' --by jpg \\\n"
    "      -O s3://bucket/unique | kubectl apply -f -"
)
