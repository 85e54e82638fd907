"""How long the work on a few shards takes on this machine, with the very command that pods will run."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from tarkit.errors import TarkitError, UsageError, printable
from tarkit.k8s.expansion import substitute
from tarkit.redaction import redact
from tarkit.runs.work import Work
from tarkit.store.entries import identify

_LAST_LINES = 3


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


def measure(
    container: Mapping[str, Any],
    shards: Sequence[str],
    env: Mapping[str, str],
    tarproc: Sequence[str],
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Measured:
    """Run tarproc over one shard after the other, as the container would, into a temporary folder that is removed.

    Args:
        container: of the manifest, with ``args`` for tarproc. shards: at least one.
        env: environment of the processes; the container's ``$(NAME)`` are taken from it. tarproc: the words that
            start the program.
    """
    if list(container.get("command", ())) != ["tarproc"]:
        raise UsageError("--measure runs tarproc over shards; without it, as with --raw, give --shard-seconds")
    args = [substitute(each, env) for each in container.get("args", ())]
    took, rates = [], []
    for shard in shards:
        size = identify(shard).size
        with tempfile.TemporaryDirectory(prefix="tarkit-measure-") as folder:
            words = [*tarproc, *arguments_for(args, shard, folder)]
            begun = clock()
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=dict(env),
                check=False,
            )
            took.append(clock() - begun)
        if done.returncode:
            raise TarkitError(_why(shard, done.returncode, done.stdout))
        if size:
            rates.append(took[-1] / size)
    return Measured(len(took), _spread(took), _spread(rates) if len(rates) == len(took) else None)


def _spread(values: Sequence[float]) -> Spread:
    return Spread(statistics.median(values), min(values), max(values))


def arguments_for(args: Sequence[str], shard: str, folder: str) -> list[str]:
    """The arguments of a pod's tarproc for one shard alone: all of them but slice, output folder, report and inputs."""
    work = Work.from_args(args)
    return replace(work, slice=None, list_sha256=None, report=None, outdir=folder, inputs=(shard,)).to_args()


def _why(shard: str, code: int, output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
    last = " / ".join(printable(line) for line in lines[-_LAST_LINES:]) or "it printed nothing"
    return f"--measure: {printable(redact(shard))}: tarproc ended with exit code {code}: {last}"
