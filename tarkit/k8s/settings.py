"""Everything that can be set about a manifest: one table, from which come the flags, the keys of
``kubetpl.yaml`` and the names of the environment variables.

A setting that nobody gave leaves the template as it is: the defaults are what stands in the template.
"""

from __future__ import annotations

from dataclasses import Field, dataclass, field, fields
from typing import Any

TEXT, WHOLE, FLAG, LIST, PAIRS = "text", "whole", "flag", "list", "pairs"

GENERATORS = ("job", "pod", "jobs", "indexed", "service", "configmap")
"""What makes manifests; a setting may be of some of them only."""

WORKLOADS = ("job", "pod", "jobs", "indexed")
SHARDED = ("indexed",)
OWN_PARAMS = ("i", "n")
"""What ``jobs`` itself replaces: the thing that a Job is for, and its number."""

JOBS = ("job", "jobs", "indexed")


def _setting(
    kind: str, *flags: str, help: str, metavar: str = "", only: tuple[str, ...] = (), choices: str = ""
) -> Any:
    metadata = {
        "kind": kind,
        "flags": flags,
        "help": help,
        "metavar": metavar,
        "only": only,
        "choices": choices.split(),
    }
    if kind == LIST:
        return field(default_factory=list, metadata=metadata)
    if kind == PAIRS:
        return field(default_factory=dict, metadata=metadata)
    return field(default=False if kind == FLAG else None, metadata=metadata)


@dataclass
class Settings:
    """What was asked for. None, empty and False: nothing was said about it."""

    name: str | None = _setting(TEXT, "-n", "--name", metavar="NAME", help="Name of the object.")
    command: str | None = _setting(
        TEXT,
        "-c",
        "--command",
        metavar="CMD",
        only=WORKLOADS,
        help="What to run: a shell script; of indexed, tarproc's command for each sample.",
    )
    image: str | None = _setting(TEXT, "-I", "--image", metavar="IMAGE", only=WORKLOADS, help="Container image.")
    cpu: str | None = _setting(
        TEXT, "-C", "--cpu", metavar="N", only=WORKLOADS, help="CPUs to ask for, such as 2 or 500m; -1: none."
    )
    memory: str | None = _setting(
        TEXT, "-M", "--memory", metavar="SIZE", only=WORKLOADS, help="Memory, request and limit, such as 4Gi or 4G."
    )
    gpu: int | None = _setting(WHOLE, "-G", "--gpu", metavar="N", only=WORKLOADS, help="GPUs; 0: none.")
    gpu_resource: str | None = _setting(
        TEXT, "--gpu-resource", metavar="NAME", only=WORKLOADS, help="What GPUs are called.  [default: nvidia.com/gpu]"
    )
    accelerator: str | None = _setting(
        TEXT, "-A", "--accelerator", metavar="TYPE", only=WORKLOADS, help="GKE's accelerator type (a node selector)."
    )
    env: dict[str, str] = _setting(PAIRS, "-e", "--env", only=WORKLOADS, help="Environment variable.")
    param: dict[str, str] = _setting(
        PAIRS,
        "-p",
        "--param",
        only=WORKLOADS,
        help="Replace {K} in the command by V; all other braces stay, and ${K} too.",
    )
    port: list[str] = _setting(
        LIST, "-P", "--port", metavar="PORT", only=(*WORKLOADS, "service"), help="Port that is served."
    )
    label: dict[str, str] = _setting(PAIRS, "-L", "--label", help="Label, of the object and of its pods.")
    app: str | None = _setting(TEXT, "-a", "--app", metavar="APP", help="Label app.  [default: the name]")
    shell: str | None = _setting(
        TEXT, "--shell", metavar="PROGRAM", only=WORKLOADS, help="Runs the command.  [default: /bin/bash]"
    )
    shell_flags: str | None = _setting(
        TEXT,
        "--shell-flags",
        metavar="FLAGS",
        only=WORKLOADS,
        help="The shell's flags, before -c.  [default: -euo pipefail, or what the shell knows of it]",
    )
    config_map: str | None = _setting(
        TEXT, "--config-map", metavar="NAME", only=WORKLOADS, help="Mount this ConfigMap, read only."
    )
    config_map_path: str | None = _setting(
        TEXT, "--config-map-path", metavar="PATH", only=WORKLOADS, help="Where to.  [default: /files]"
    )
    secret: list[str] = _setting(
        LIST, "--secret", metavar="NAME[:PATH]", only=WORKLOADS, help="Mount this Secret.  [default: /secrets/NAME]"
    )
    gac: str | None = _setting(
        TEXT,
        "--gac",
        metavar="none|default|PATH",
        only=WORKLOADS,
        help="GOOGLE_APPLICATION_CREDENTIALS: a path in the container; default: in the Secret of --secret. "
        "Better: --service-account.",
    )
    service_account: str | None = _setting(
        TEXT,
        "--service-account",
        metavar="NAME",
        only=WORKLOADS,
        help="Service account, which may be a cloud identity.",
    )
    hostname: str | None = _setting(
        TEXT, "--hostname", metavar="NAME", only=("job", "pod", "jobs"), help="Host name of the pod."
    )
    subdomain: str | None = _setting(
        TEXT, "--subdomain", metavar="NAME", only=WORKLOADS, help="Subdomain of the pods: a headless service."
    )
    restartpolicy: str | None = _setting(
        TEXT, "--restartpolicy", only=WORKLOADS, choices="Never OnFailure Always", help="What if the container ends."
    )
    namespace: str | None = _setting(TEXT, "-N", "--namespace", metavar="NAME", help="Namespace.")
    security: str | None = _setting(
        TEXT,
        "--security",
        only=WORKLOADS,
        choices="restricted baseline none",
        help="Pod security standard to meet.  [default: restricted]",
    )
    run_as: int | None = _setting(
        WHOLE, "--run-as", metavar="UID", only=WORKLOADS, help="User and group to run as.  [default: 65532]"
    )
    scratch: str | None = _setting(
        TEXT,
        "--scratch",
        metavar="SIZE",
        only=WORKLOADS,
        help="Temporary space at /scratch, such as 20Gi; memory:2Gi in memory.  [default: 10Gi]",
    )
    spot: str | None = _setting(
        TEXT,
        "--spot",
        only=WORKLOADS,
        choices="gke eks aks karpenter",
        help="Prefer nodes that may be taken away; being taken away costs no retry.",
    )
    queue: str | None = _setting(TEXT, "--queue", metavar="NAME", only=JOBS, help="Kueue's queue.")
    min_parallelism: int | None = _setting(
        WHOLE, "--min-parallelism", metavar="P", only=SHARDED, help="Kueue may start with so few pods."
    )
    priority_class: str | None = _setting(
        TEXT, "--priority-class", metavar="NAME", only=WORKLOADS, help="Priority class of the pods."
    )
    node_selector: dict[str, str] = _setting(
        PAIRS, "--node-selector", only=WORKLOADS, help="Only nodes with this label."
    )
    toleration: list[str] = _setting(
        LIST, "--toleration", metavar="K[=V][:EFFECT]", only=WORKLOADS, help="Also nodes with this taint."
    )
    image_pull_secret: list[str] = _setting(
        LIST, "--image-pull-secret", metavar="NAME", only=WORKLOADS, help="Secret with which to fetch the image."
    )
    retries: int | None = _setting(
        WHOLE,
        "--retries",
        metavar="N",
        only=JOBS,
        help="Retries of the Job; of indexed, of each slice.  [default: 0; 3]",
    )
    deadline: str | None = _setting(
        TEXT, "--deadline", metavar="TIME", only=JOBS, help="Stop after this time, such as 90s, 12h, 2d."
    )
    ttl: str | None = _setting(TEXT, "--ttl", metavar="TIME", only=JOBS, help="Remove the Job so long after its end.")
    over: str | None = _setting(
        TEXT,
        "--over",
        metavar="SPEC",
        only=("jobs",),
        help="One Job for each of these, such as {0000..0147}; "
        "{i} in name, command and variables stands for it, {n} for its number; ${i} is the shell's own.",
    )
    shards: list[str] = _setting(
        LIST,
        "--shards",
        metavar="SPEC",
        only=SHARDED,
        help="Input shards: a pattern, @LIST or URL; as tarproc's INPUT.",
    )
    outdir: str | None = _setting(
        TEXT, "-O", "--outdir", metavar="URL", only=SHARDED, help="Where the output shards and their done records go."
    )
    parallelism: int | None = _setting(
        WHOLE, "-j", "--parallelism", metavar="P", only=SHARDED, help="Pods at the same time.  [default: 128]"
    )
    slices: int | None = _setting(
        WHOLE, "--slices", metavar="W", only=SHARDED, help="Slices, each a pod.  [default: one a shard, at most 10000]"
    )
    slice_target: str | None = _setting(
        TEXT,
        "--slice-target",
        metavar="TIME",
        only=SHARDED,
        help="What a slice should take, with --shard-seconds.  [default: 10m, 5m with --spot]",
    )
    shard_seconds: str | None = _setting(
        TEXT, "--shard-seconds", metavar="S", only=SHARDED, help="What a shard takes, as measured by plan --measure."
    )
    max_failed: str | None = _setting(
        TEXT, "--max-failed", metavar="N|P%", only=SHARDED, help="Stop if more slices fail.  [default: 5%]"
    )
    list_url: str | None = _setting(
        TEXT, "--list-url", metavar="URL", only=SHARDED, help="Write the list of shards there, for pods to read."
    )
    raw: bool = _setting(
        FLAG, "--raw", only=SHARDED, help="The command is the container's own; it finds its slice in TARKIT_INDEX."
    )

    def asked(self) -> dict[str, Any]:
        """What somebody said something about, by name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        # Not "in (…, False)": 0 is equal to False, and says something.
        return {name: value for name, value in values.items() if value not in (None, [], {}) and value is not False}


def table() -> tuple[Field[Any], ...]:
    """All settings with their flags: the dataclass's fields."""
    return fields(Settings)


def applies(setting: Field[Any], generator: str) -> bool:
    """Whether a generator has a setting."""
    only: tuple[str, ...] = setting.metadata["only"]
    return not only or generator in only


def flag_of(name: str) -> str:
    """The long flag of a setting, for messages."""
    return next(str(each.metadata["flags"][-1]) for each in table() if each.name == name)
