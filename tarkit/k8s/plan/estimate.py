"""How long a run over shards will take, and what it will cost: a few shards are run on this machine, with the very
command that pods will run, and the rest is arithmetic.

Nothing is looked up and nothing is guessed: what is not known stays None, and is reported as not known."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tarkit.errors import TarkitError, UsageError, printable
from tarkit.k8s.durations import in_words
from tarkit.k8s.plan.sliceplan import ShardPlan
from tarkit.k8s.podfields import substitute, work_in
from tarkit.redaction import redact
from tarkit.runs.work import Work
from tarkit.store.entries import identify

POD_START = 10.0
"""Seconds from the creation of a pod to the start of its command, the image being on the node."""

PODS_PER_SECOND = 10.0
"""Pods that a cluster's controllers begin and end in a second with their default settings."""

_SOURCES = {
    "pattern": "shards by pattern",
    "config map": "list of shards in a ConfigMap beside the Job",
    "bucket list": "list of shards in a bucket",
}
_LAST_LINES = 3
_UNITS = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


class Spread(NamedTuple):
    """Of some measured values: the median, the least and the greatest."""

    median: float
    least: float
    greatest: float


class Measured(NamedTuple):
    """Of shards that were run. per_shard: seconds. per_byte: seconds; None if a size is not known."""

    shards: int
    per_shard: Spread
    per_byte: Spread | None


class Price(NamedTuple):
    """What an hour of one CPU, and of one GiB of memory, costs in the user's money; spot_factor: by how much that is
    multiplied on spot nodes."""

    cpu_hour: float
    gib_hour: float = 0.0
    spot_factor: float = 1.0

    @classmethod
    def of(cls, config: Mapping[str, float]) -> Price | None:
        """From ``price:`` of the configuration, which knows the names; None if nothing is there."""
        if not config:
            return None
        if "cpu_hour" not in config:
            raise UsageError("price: has no cpu_hour; write what an hour of one CPU costs")
        return cls(**config)


class Estimate(NamedTuple):
    """Of a run. slice_seconds: work in one pod. seconds: from start to end. cpu_hours, gib_hours: what the pods hold
    while they are there. cost: None without prices."""

    slice_seconds: float
    seconds: float
    cpu_hours: float
    gib_hours: float
    cost: float | None


def measure(
    container: Mapping[str, Any], shards: Sequence[str], env: Mapping[str, str], tarproc: Sequence[str], *,
    clock: Callable[[], float] = time.monotonic,
) -> Measured:  # fmt: skip
    """Run tarproc over one shard after the other, as the container would, into a temporary folder that is removed.
    container: of the manifest, with ``args`` for tarproc. shards: at least one. env: of the processes; the container's
    ``$(NAME)`` are taken from it. tarproc: the words that start the program."""
    work = work_in({**container, "args": [substitute(each, env) for each in container.get("args", ())]})
    if work is None:
        raise UsageError("--measure runs tarproc over shards; without it, as with --raw, give --shard-seconds")
    took, rates = [], []
    for shard in shards:
        size = identify(shard).size
        with tempfile.TemporaryDirectory(prefix="tarkit-measure-") as folder:
            words = [*tarproc, *arguments_for(work, shard, folder)]
            begun = clock()
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=env, check=False
            )
            took.append(clock() - begun)
        if done.returncode:
            raise TarkitError(_why(shard, done.returncode, done.stdout))
        if size:
            rates.append(took[-1] / size)
    return Measured(len(took), _spread(took), _spread(rates) if len(rates) == len(took) else None)


def _spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def arguments_for(work: Work, shard: str, folder: str) -> list[str]:
    """The arguments of a pod's tarproc for one shard alone: all of them but slice, output folder, report and inputs."""
    return replace(work, slice=None, list_sha256=None, report=None, outdir=folder, inputs=(shard,)).to_args()


def _why(shard: str, code: int, output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    last = " / ".join(printable(line) for line in lines[-_LAST_LINES:]) or "it printed nothing"
    return f"--measure: {printable(redact(shard))}: tarproc ended with exit code {code}: {last}"


def waves(w: int, p: int) -> int:
    """Rounds of pods: of ``w`` slices, ``p`` at a time."""
    return -(-w // p)


def estimate(
    n: int,
    total_bytes: int | None,
    w: int,
    p: int,
    *,
    seconds_per_shard: float | None = None,
    seconds_per_byte: float | None = None,
    cpus: float = 1.0,
    memory_gib: float = 0.0,
    price: Price | None = None,
    spot: bool = False,
) -> Estimate | None:
    """Time and cost of ``n`` shards in ``w`` slices, ``p`` of them at a time; None if nothing was measured.

    Assumes that slices have about the same work; that p pods are there from the beginning to the end (no
    queue, no node to wait for); that a pod starts in ``POD_START`` seconds, which it pays for; that the controllers
    turn over ``PODS_PER_SECOND``; and that nothing has to be done twice. Seconds by bytes win over seconds
    by shard if the bytes are known."""
    if seconds_per_byte is not None and total_bytes is not None:
        in_slice = seconds_per_byte * total_bytes / w
    elif seconds_per_shard is not None:
        in_slice = seconds_per_shard * n / w
    else:
        return None
    seconds = max(waves(w, p) * (in_slice + POD_START), w / PODS_PER_SECOND)
    hours = w * (in_slice + POD_START) / 3600
    cost = None
    if price is not None:
        cost = hours * (cpus * price.cpu_hour + memory_gib * price.gib_hour) * (price.spot_factor if spot else 1.0)
    return Estimate(in_slice, seconds, hours * cpus, hours * memory_gib, cost)


def plan_lines(
    plan: ShardPlan,
    parallelism: int,
    made: Estimate | None,
    *,
    measured: Measured | None = None,
    shard_seconds: float | None = None,
    spot: bool = False,
) -> list[str]:
    """What ``kubetpl plan`` prints.
    measured, shard_seconds: what ``made`` was computed from; neither: the time is not known."""
    shards, slices = _counted(plan.shards, "shard"), _counted(plan.slices, "slice")
    at_once = min(parallelism, plan.slices)
    rounds = _counted(waves(plan.slices, at_once), "wave")
    specs = ", ".join(printable(redact(spec)) for spec in plan.specs[:3])
    more = f" and {len(plan.specs) - 3} more" if len(plan.specs) > 3 else ""
    return [
        f"{shards}, {_size(plan)} → {slices}, {at_once:,} at a time, {rounds}",
        *_time(made, measured, shard_seconds, spot),
        f"{_SOURCES[plan.source]}: {specs}{more}",
        *(f"note: {note}" for note in plan.notes),
    ]


def _time(made: Estimate | None, measured: Measured | None, shard_seconds: float | None, spot: bool) -> Iterator[str]:
    if measured is not None:
        of_bytes = "" if measured.per_byte is None else f"{_range(measured.per_byte, 1e9)} s/GB, "
        yield (
            f"measured {of_bytes}{_range(measured.per_shard)} s a shard on "
            f"{_counted(measured.shards, 'shard')} (--measure {measured.shards}, on this machine)"
        )
    elif shard_seconds is not None:
        yield f"{shard_seconds:,.10g} s a shard (--shard-seconds)"
    if made is None:
        yield "time and cost are not known: --measure 3 runs 3 shards here, or give --shard-seconds"
        return
    memory = f", ~{_rough(made.gib_hours)} GiB-h" if made.gib_hours else ""
    cost = "no price is configured (price: {cpu_hour: …} in kubetpl.yaml)"
    if made.cost is not None:
        cost = f"${made.cost:,.2f} at your prices{', on spot nodes' if spot else ''}"
    yield f"→ ~{in_words(made.seconds)}; ~{_rough(made.cpu_hours)} CPU-h{memory}; {cost}"
    yield (
        f"  of it in a pod ~{in_words(made.slice_seconds)}, and {POD_START:g} s to start; if {PODS_PER_SECOND:g} pods "
        "a second can be started, none waits for a node, and nothing is done twice"
    )


def _size(plan: ShardPlan) -> str:
    if plan.total_bytes is None:
        return "bytes not known (--sizes all or sample asks)"
    return f"{byte_size(plan.total_bytes)}{f' (sampled {plan.sampled})' if plan.sampled else ''}"


def byte_size(number: int) -> str:
    """``1.18 TB``: three digits, powers of 1000."""
    for unit, name in _UNITS:
        # What would be rounded to 1000 of a unit is 1 of the next one.
        if number >= unit * 0.9995:
            value = number / unit
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f} {name}"
    return f"{number} bytes"


def _range(spread: Spread, unit: float = 1) -> str:
    """Three digits of each that count: ``0.0123``, ``41.2``, ``3,610``."""
    median, least, greatest = (
        f"{number:.3g}" if number < 999.5 else f"{float(f'{number:.3g}'):,.0f}"
        for number in (each * unit for each in spread)
    )
    return median if spread.least == spread.greatest else f"{median} ({least} to {greatest})"


def _rough(number: float) -> str:
    return f"{number:,.0f}" if number >= 9.95 else f"{number:.2g}"


def _counted(number: int, word: str) -> str:
    return f"{number:,} {word if number == 1 else word + 's'}"
