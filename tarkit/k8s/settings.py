"""One table of all settings of a manifest, for the flags and the keys of ``kubetpl.yaml``.

A setting that was not given leaves the template as it is: the defaults are the template's values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from tarkit.k8s.yamltext import Document

TEXT, WHOLE, FLAG, LIST, PAIRS = "text", "whole", "flag", "list", "pairs"
_KINDS = {"str | None": TEXT, "int | None": WHOLE, "bool": FLAG, "list[str]": LIST, "dict[str, str]": PAIRS}

GENERATORS = {
    "job": "jobs:JOB",
    "pod": "jobs:POD",
    "jobs": "jobs:JOBS",
    "indexed": "indexed:INDEXED",
    "shuffle": "exchange:SHUFFLE",
    "sort": "exchange:SORT",
    "join": "exchange:JOIN",
    "reduce": "exchange:REDUCE",
    "dedup": "exchange:DEDUP",
    "service": "objects:SERVICE",
    "configmap": "objects:CONFIGMAP",
}
"""Generators by name: the module of tarkit.k8s.generators, and the ``Generator`` in it."""

EXCHANGES = ("shuffle", "sort", "join", "reduce", "dedup")
"""Generators that run a verb of tarkit with several stages; they also have the options of the verb.
"""

_COMMANDS = ("job", "pod", "jobs", "indexed")
_PODS = (*_COMMANDS, *EXCHANGES)
_JOBS = ("job", "jobs", "indexed", *EXCHANGES)
_SHARDED = ("indexed",)
_SLICED = ("indexed", *EXCHANGES)
MANY = "mytask-{n}"
"""Default name of the Jobs of ``jobs``."""

OWN_PARAMS = ("i", "n")
"""Parameters that ``jobs`` itself replaces: the item of a Job, and its number."""


def _one(
    short: str, metavar: str, help: str, only: tuple[str, ...] = _PODS, choices: str = "", factory: Any = None
) -> Any:
    metadata = {"short": short, "metavar": metavar, "help": help, "only": only, "choices": tuple(choices.split())}
    default: dict[str, Any] = {"default": None} if factory is None else {"default_factory": factory}
    return field(**default, metadata=metadata)


def _list(short: str, metavar: str, help: str, only: tuple[str, ...] = _PODS) -> Any:
    return _one(short, metavar, help, only, factory=list)


def _pairs(short: str, help: str, only: tuple[str, ...] = _PODS) -> Any:
    return _one(short, "K=V", help, only, factory=dict)


@dataclass
class Settings:
    """Values of all settings.

    None, empty and False: the setting was not given.
    """

    name: str | None = _one("-n", "NAME", "Name of the object.", ())
    command: str | None = _one(
        "-c", "CMD", "Shell script to run; for indexed, tarproc's command for each sample.", _COMMANDS
    )
    image: str | None = _one("-I", "IMAGE", "Container image.")
    cpu: str | None = _one("-C", "N", "CPUs to request, such as 2 or 500m; -1: none.  [default: the template's]")
    memory: str | None = _one(
        "-M", "SIZE", "Memory, both request and limit, such as 4Gi or 4G.  [default: the template's]"
    )
    gpu: int | None = _one("-G", "N", "Number of GPUs; 0: none.")
    gpu_resource: str | None = _one("", "NAME", "Resource name of the GPUs.  [default: nvidia.com/gpu]")
    accelerator: str | None = _one("-A", "TYPE", "GKE's accelerator type (a node selector).")
    env: dict[str, str] = _pairs("-e", "Environment variable.")
    param: dict[str, str] = _pairs(
        "-p", "Replace {K} in the command by V; all other braces stay, and ${K} too.", _COMMANDS
    )
    port: list[str] = _list("-P", "PORT", "Port to expose.", (*_PODS, "service"))
    label: dict[str, str] = _pairs("-L", "Label of the object and of its pods.", ())
    app: str | None = _one("-a", "APP", "Value of the label app.  [default: the name]", ())
    shell: str | None = _one("", "PROGRAM", "Shell that runs the command.  [default: /bin/bash]", _COMMANDS)
    shell_flags: str | None = _one(
        "",
        "FLAGS",
        "Flags of the shell, before -c; with '', only the last command's exit code counts.  "
        "[default: those of -euo pipefail that the shell has; for indexed, tarproc's]",
        _COMMANDS,
    )
    config_map: str | None = _one("", "NAME", "Mount this ConfigMap, read only.")
    config_map_path: str | None = _one("", "PATH", "Path to mount it at.  [default: /files]")
    secret: list[str] = _list("", "NAME[:PATH]", "Mount this Secret.  [default: /secrets/NAME]")
    gac: str | None = _one(
        "",
        "none|default|PATH",
        "Value of GOOGLE_APPLICATION_CREDENTIALS: a path in the container, or default for the key in --secret. "
        "--service-account is safer.",
    )
    service_account: str | None = _one("", "NAME", "Service account, which may be a cloud identity.")
    hostname: str | None = _one("", "NAME", "Host name of the pod.", ("job", "pod", "jobs"))
    subdomain: str | None = _one("", "NAME", "Subdomain of the pods: a headless service.")
    restartpolicy: str | None = _one(
        "",
        "",
        "Restart policy of the pods; Always is for kubetpl pod only.  [default: Never]",
        _COMMANDS,
        choices="Never OnFailure Always",
    )
    namespace: str | None = _one("-N", "NAME", "Namespace of the object.", ())
    security: str | None = _one(
        "", "", "Pod security standard to meet.  [default: restricted]", choices="restricted baseline none"
    )
    run_as: int | None = _one("", "UID", "User and group to run as.  [default: 65532]")
    scratch: str | None = _one(
        "", "SIZE", "Size of the temporary volume at /scratch, such as 20Gi.  [default: 1Gi; indexed: 10Gi]"
    )
    queue: str | None = _one("", "NAME", "Name of the Kueue queue.")
    priority_class: str | None = _one("", "NAME", "Priority class of the pods.")
    node_selector: dict[str, str] = _pairs("", "Use only nodes with this label.")
    toleration: list[str] = _list("", "K[=V][:EFFECT]", "Also use nodes with this taint.")
    image_pull_secret: list[str] = _list("", "NAME", "Secret for pulling the image.")
    retries: int | None = _one(
        "", "N", "Number of retries of the Job; for indexed, of each slice.  [default: 0; 3]", _JOBS
    )
    deadline: str | None = _one(
        "",
        "TIME",
        "Stop the Job after this time, such as 90s, 12h, 2d; without a unit, seconds.  [default: none]",
        _JOBS,
    )
    ttl: str | None = _one("", "TIME", "Remove the Job this long after its end.  [default: never; indexed: 7d]", _JOBS)
    over: str | None = _one(
        "",
        "SPEC",
        "Items, one Job for each, such as {0000..0147}; "
        "{i} in name, command and variables stands for it, {n} for its number; ${i} is the shell's own.",
        ("jobs",),
    )
    shards: list[str] = _list("", "SPEC", "Input shards: a pattern, @LIST or URL; as tarproc's INPUT.", _SHARDED)
    outdir: str | None = _one("-O", "URL", "Folder for the output shards and their done records.", _SLICED)
    parallelism: int | None = _one("-j", "P", "Number of pods that run at once.  [default: 128]", _SLICED)
    slices: int | None = _one(
        "",
        "W",
        "Number of slices, each a pod.  [default: one a shard; at most 10000, of a verb with stages 1000]",
        _SLICED,
    )
    gather_slices: int | None = _one(
        "", "G", "Number of slices of the later stages.  [default: W, but at most the number of output shards]",
        EXCHANGES,
    )  # fmt: skip
    wait: str | None = _one("", "TIME", "Time that a pod waits for the stage before.  [default: 1h]", EXCHANGES)
    suspend_gather: bool = _one(
        "", "", "Print the Jobs of the later stages suspended; kubetpl cancel --undo starts them.", EXCHANGES,
        factory=bool,
    )  # fmt: skip
    jobset: bool = _one(
        "", "", "Print one JobSet, which starts a stage when the stage before is complete.  [default: with --queue]",
        EXCHANGES, factory=bool,
    )  # fmt: skip
    max_failed: str | None = _one(
        "", "N|P%", "Stop when more slices than this have failed.  [default: 5%; 0 in a stage before another]", _SLICED
    )
    list_url: str | None = _one(
        "",
        "URL",
        "Write the list of shards to this URL, for the pods; a pattern needs none.  [default: a ConfigMap]",
        _SHARDED,
    )
    raw: bool = _one(
        "",
        "",
        "Run the command once in each pod instead of tarproc; $TARKIT_INDEX is its slice, from 0.",
        _SHARDED,
        factory=bool,
    )


@dataclass(frozen=True)
class Setting:
    """A row of the table: a field of ``Settings``, its kind, and its flag."""

    name: str
    kind: str
    short: str
    metavar: str
    help: str
    only: tuple[str, ...]
    choices: tuple[str, ...]

    @property
    def flag(self) -> str:
        """The long flag, ``--config-map``."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def flags(self) -> tuple[str, ...]:
        """All flags, the long one last."""
        return (self.short, self.flag) if self.short else (self.flag,)

    def applies(self, generator: str) -> bool:
        """Return True if a generator has the setting."""
        return not self.only or generator in self.only


TABLE = {each.name: Setting(each.name, _KINDS[str(each.type)], **each.metadata) for each in fields(Settings)}
"""All settings, by name."""


@dataclass(frozen=True)
class VerbCall:
    """A verb of tarkit with its arguments, without those that differ between its pods.

    Attributes:
        name: name of the verb.
        options: words of its options, without -O and --work.
        inputs: specs of its shards: one list, or two for a verb with two sides.
        work: folder for run files, if it was given.
        outputs: number of output shards, if it was given.
    """

    name: str
    options: tuple[str, ...]
    inputs: tuple[tuple[str, ...], ...]
    work: str | None = None
    outputs: int | None = None


@dataclass
class Request:
    """Arguments of a generator: settings, the template's documents, and further words.

    Attributes:
        words: for indexed, more options of tarproc; for configmap, the files.
        verb: for ``EXCHANGES``, the verb and its arguments.
        here: the manifest is to run on this machine, so local paths are allowed, and the image is
            ignored.
        notes: called with the generator's notes, a sentence each.
    """

    settings: Settings
    template: list[Document]
    words: list[str] = field(default_factory=list)
    here: bool = False
    verb: VerbCall | None = None
    notes: list[str] = field(default_factory=list)


class Generator(NamedTuple):
    """A function that makes manifests, and what its help shows.

    Attributes:
        example: a command line.
        words: the form of its arguments besides flags.
        template: name of its template, if it differs from the generator's name.
        wrap: function that returns the documents as they are printed, after all checks.
    """

    example: str
    documents: Callable[[Request], list[Document]]
    words: str = ""
    template: str | None = None
    wrap: Callable[[Request, list[Document]], list[Document]] | None = None
