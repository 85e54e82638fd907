"""Generator of one Job over many shards, with a pod for each slice of them."""

from __future__ import annotations

import dataclasses
import os.path
import re
from collections.abc import Mapping, Sequence

from tarkit.errors import UsageError, printable
from tarkit.k8s.fill import filled, pod_of, without_name
from tarkit.k8s.names import safe_label
from tarkit.k8s.plan.shardlist import give_inputs
from tarkit.k8s.plan.sliceplan import ShardPlan, plan_shards
from tarkit.k8s.podfields import escape_in, fill_script, listed, main_container, part, put_named, replace_params
from tarkit.k8s.settings import Generator, Request, Settings
from tarkit.k8s.wellknown import OUTDIR, RUN
from tarkit.k8s.yamltext import Document
from tarkit.names.redaction import redact
from tarkit.names.url import scheme_of
from tarkit.runs.work import PROGRAM, Variable, Work, options

PARALLELISM = 128
"""Default of the number of pods at once."""

_INDEXES = ("JOB_COMPLETION_INDEX", "TARKIT_INDEX")
_TOLD = ("TARKIT_SLICES", "TARKIT_RUN", "TARKIT_OUT")

_OURS = {"slice": "--slices", "list_sha256": "--shards", "outdir": "--outdir", "command": "--command"}
"""Options that kubetpl itself passes to tarproc, and the flags for them."""
_NEVER = ("output", "retry_failed", "count", "manifest")

_OWN_IMAGE = "ubuntu:24.04"
"""Image of tarkit's own template, which has no tarproc."""
_MAX_FAILED = "5%"
_RETRIES = 3


def documents(request: Request) -> list[Document]:
    """Return the Job, after the ConfigMap with the list of its shards if it needs one."""
    _check(request)
    if request.here and request.settings.outdir is not None and not scheme_of(request.settings.outdir):
        # Pods do not run in the current folder.
        outdir = os.path.abspath(request.settings.outdir)
        request = dataclasses.replace(request, settings=dataclasses.replace(request.settings, outdir=outdir))
    settings = request.settings
    plan = _plan_of(settings, request.here)
    request.notes.extend(plan.notes)
    found: list[Document] = []
    for template in request.template:
        if template["kind"] == "Job":
            found += _sliced(filled(template, settings), plan, request)
        else:
            found.append(filled(template, without_name(settings)))
    if all(each["kind"] != "Job" for each in found):
        raise UsageError("--template: there is no Job in it, so nothing has indexes")
    return found


def _plan_of(settings: Settings, here: bool) -> ShardPlan:
    if not settings.shards:
        raise UsageError("name the input shards: --shards 's3://bucket/raw-{000000..001281}.tar', or --shards @LIST")
    check_parallelism(settings)
    return plan_shards(
        settings.shards,
        slices=settings.slices,
        list_url=settings.list_url,
        outdir=None if settings.raw else settings.outdir,
        allow_local=here,
    )


def check_parallelism(settings: Settings) -> None:
    """Check that at least one pod runs at once."""
    if settings.parallelism is not None and settings.parallelism < 1:
        raise UsageError(f"--parallelism {settings.parallelism}: at least one pod must run")


def _check(request: Request) -> None:
    settings = request.settings
    if settings.command is None and (settings.raw or not request.words):
        raise UsageError(
            "name the command: --command CMD" + ("" if settings.raw else ", or after -- tarproc's options")
        )
    if settings.raw and request.words:
        raise UsageError(f"--raw runs the command itself, so {printable(request.words[0])} has no effect")
    if not settings.raw and not settings.outdir:
        raise UsageError("name where the output shards go: --outdir s3://bucket/folder")
    if settings.restartpolicy == "OnFailure":
        raise UsageError(
            "--restartpolicy OnFailure: retries for each index are made for Never; with OnFailure a pod fails for good "
            "only after its own restarts, whatever its exit code means"
        )
    if not settings.raw:
        check_written("--outdir", settings.outdir or "/", here=request.here)
        check_image(request, PROGRAM)
    elif settings.outdir is not None:
        _check_seen("--outdir", settings.outdir, here=request.here)


def check_written(flag: str, folder: str, *, here: bool) -> None:
    """Check that pods can write to a folder.

    Args:
        flag: option that names the folder.
        here: the pods are processes of this machine.

    Raises:
        UsageError: it is an address of http, or a folder of this machine.
    """
    if scheme_of(folder) in ("http", "https"):
        raise UsageError(
            f"{flag} {printable(redact(folder))}: outputs cannot be written by http; name a bucket, such as "
            "s3://bucket/folder"
        )
    _check_seen(flag, folder, here=here)


def _check_seen(flag: str, folder: str, *, here: bool) -> None:
    if not here and not scheme_of(folder) and not folder.startswith("/"):
        raise UsageError(
            f"{flag} {printable(folder)}: a folder of this machine, which a pod cannot see; name a URL, or the "
            "absolute path of a volume that the pods mount"
        )


def check_image(request: Request, program: str) -> None:
    """Check that the image is not that of tarkit's own template, which does not have the program.

    Raises:
        UsageError: it is that image.
    """
    jobs = [each for each in request.template if each["kind"] == "Job"]
    images = {main_container(part(pod_of(each) or {}, "spec")).get("image") for each in jobs}
    if request.settings.image is None and not request.here and _OWN_IMAGE in images:
        raise UsageError(f"name an image in which {program} is installed: --image")


def _sliced(job: Document, plan: ShardPlan, request: Request) -> list[Document]:
    settings = request.settings
    container, run = main_container(part(pod_of(job) or {}, "spec")), safe_label(str(part(job, "metadata").get("name")))
    found = give_inputs(job, plan.shards, plan.slices, plan.specs, plan.entries, {RUN: run, **settings.label})
    index_job(job, plan.slices, run, settings)
    if settings.raw:
        fill_script(container, settings)
    else:
        _fill_tarproc(container, plan, request)
    return [*found, job]


def index_job(job: Document, slices: int, run: str, settings: Settings) -> None:
    """Set the fields of a Job that has an index for each slice, and the variables of its pods.

    Args:
        run: value of the label of the run.
    """
    spec = part(job, "spec")
    spec["completionMode"] = "Indexed"
    if "backoffLimitPerIndex" not in spec:
        # A template that was not made for this.
        spec["backoffLimitPerIndex"] = _RETRIES if settings.retries is None else settings.retries
        spec.pop("backoffLimit", None)
    spec["completions"] = slices
    spec["parallelism"] = min(settings.parallelism or PARALLELISM, slices)
    spec["maxFailedIndexes"] = _max_failed(_MAX_FAILED if settings.max_failed is None else settings.max_failed, slices)
    _annotate(job, settings, run)
    _fill_env(main_container(part(pod_of(job) or {}, "spec")), slices, job, settings)


def _annotate(job: Document, settings: Settings, run: str) -> None:
    metadata = part(job, "metadata")
    for each in (metadata, part(pod_of(job) or {}, "metadata")):
        part(each, "labels")[RUN] = run
    if settings.outdir is not None:
        part(metadata, "annotations")[OUTDIR] = settings.outdir


def _fill_env(container: Document, slices: int, job: Document, settings: Settings) -> None:
    env = listed(container, "env")
    for each in env:
        # With a fixed number, every pod would do the same slice, and none the others.
        if each.get("name") in _INDEXES and "valueFrom" not in each:
            raise UsageError(f"{each['name']} is a pod's slice; take it out of --env or the template")
    given = next((name for name in _TOLD if name in settings.env), None)
    if given is not None:
        raise UsageError(f"--env {given}: kubetpl sets it itself; give it another name")
    put_named(env, {"name": "TARKIT_SLICES", "value": str(slices)})
    put_named(env, {"name": "TARKIT_RUN", "value": str(part(job, "metadata").get("name"))})
    if settings.outdir is not None:
        put_named(env, {"name": "TARKIT_OUT", "value": escape_in(container, settings.outdir)})
    if "cpu" not in container.get("resources", {}).get("requests", {}):
        # Of a missing request, a kubelet would make 0.
        env[:] = [each for each in env if each.get("name") != "TARKIT_CPUS"]


def _fill_tarproc(container: Document, plan: ShardPlan, request: Request) -> None:
    settings = request.settings
    given = {name: flag for name, flag in _OURS.items() if name != "command" or settings.command is not None}
    work = dataclasses.replace(
        tarproc_options(request.words, given),
        slice=str(plan.slices),
        outdir=settings.outdir,
        list_sha256=plan.list_sha256,
        inputs=tuple(plan.specs),
    )
    if settings.command is not None:
        work = dataclasses.replace(work, command=replace_params(settings.command, settings.param))
    if settings.shell is not None:
        work = dataclasses.replace(work, shell=settings.shell)
    if settings.shell_flags is not None:
        work = dataclasses.replace(work, shell_flags=settings.shell_flags)
    if work.filter is not None and work.command is not None:
        raise UsageError("--filter takes the place of -c; leave one of them out, or run a Job for each")
    arguments = [escape_in(container, each) for each in work.to_args()]
    if work.parallel is None and any(each.get("name") == "TARKIT_CPUS" for each in container["env"]):
        # Expanded by the kubelet: what the container was promised, not what the node has.
        arguments = dataclasses.replace(Work.from_args(arguments), parallel=Variable("$(TARKIT_CPUS)")).to_args()
    container["command"] = [PROGRAM]
    container["args"] = arguments


def tarproc_options(words: Sequence[str], given: Mapping[str, str]) -> Work:
    """Parse the options of tarproc after --.

    They may change neither the shards of a pod nor the place of their outputs.

    Args:
        given: fields that kubetpl itself fills -> the flag that is for each.
    """
    try:
        work = Work.from_args(words)
    except UsageError as error:
        raise UsageError(f"after --: {error}; tarproc --help lists the options that can follow") from None
    if work.inputs or "--" in words:
        raise UsageError(
            f"{printable((*work.inputs, '--')[0])} is not an option of tarproc; name shards with --shards, in quotes, "
            "so that no shell expands a pattern"
        )
    for name, option in options().items():
        if getattr(work, name) == option.default:
            continue
        if name in given:
            raise UsageError(
                f"{option.name} after --: kubetpl gives it to tarproc itself; change {given[name]} before --"
            )
        if name in _NEVER:
            raise UsageError(f"{option.name} after --: with it, not all shards would be made; leave it out")
    return work


def _max_failed(text: str, slices: int) -> int:
    match = re.fullmatch(r"([0-9]{1,9})(?:\.[0-9]+)?(%?)", text)
    if match is None or (match[2] and float(text[:-1]) > 100) or ("." in text and not match[2]):
        raise UsageError(f"--max-failed {printable(text)}: write a number of slices, or a share such as 5%")
    percent = float(text[:-1]) if match[2] else 0
    # At least one: a share of few slices must not mean none.
    number = max(1 if percent else 0, int(slices * percent / 100)) if match[2] else int(match[1])
    return min(number, slices)


INDEXED = Generator(
    "kubetpl indexed -n grey -I IMAGE -c 'convert sample.jpg -colorspace Gray sample.jpg' \\\n"
    "      --shards 's3://bucket/raw-{000000..001281}.tar' -O s3://bucket/grey | kubectl apply -f -",
    documents,
    words="[-- TARPROC OPTIONS]",
)
