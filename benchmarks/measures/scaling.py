"""What a sample costs in an exchange of few and of many: does it stay the same?"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from data import keyed_shards
from environments import Settings, settle, tarkit_environment
from rounds import Bar, Line, MeasureError, Result, say

from measures.loop import run_loop

_OF_SHARD = 10_000
_TAR_BYTES = 1024
_COPIES = 3.5
"""Inputs, run files and outputs at once, and room to breathe."""
_BAR = Bar(1.3, at_least=False)


class Cost(NamedTuple):
    """Seconds of one run by the clock, and of the processors."""

    clock: float
    processor: float


def _run(settings: Settings, shards: list[Path], count: int) -> Cost:
    folder = settings.fresh("scale")
    program = tarkit_environment(settings.work).program("tarkit")
    words = [program, "shuffle", "-q", "-p", "1", "--mem", "512M", *shards, "-O", "out"]
    settle()
    begin = time.perf_counter()
    process = subprocess.Popen(list(map(str, words)), cwd=folder, env={**os.environ, "TMPDIR": str(folder)})
    _, status, usage = os.wait4(process.pid, 0)
    clock = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise MeasureError(f"tarkit shuffle of {count:,} samples ended with {process.returncode}")
    made = sorted((folder / "out").glob("*.tar"))
    found = run_loop(tarkit_environment(settings.work), "exchanged", made)["evidence"]["samples"]
    if found != count:
        raise MeasureError(f"tarkit shuffle wrote {found:,} of {count:,} samples")
    settings.fresh("scale")
    say(f"    {count:,}: {clock:.3f} s, processor {usage.ru_utime + usage.ru_stime:.3f} s")
    return Cost(clock, usage.ru_utime + usage.ru_stime)


def _shards(settings: Settings, count: int) -> list[Path]:
    of_shard = min(count, _OF_SHARD)
    return keyed_shards(settings, "tiny", count // of_shard, of_shard, 0, "cls=1")


def exchange_scale(settings: Settings) -> Result:
    """Samples of one byte, in shards of 10,000; a run of one sample is taken off as the start-up.

    One process, so that the number of slices does not change how much is done at once. The largest
    size has one round, and its data are removed.
    """
    sizes = (10_000, 100_000) if settings.quick else (10_000, 100_000, 1_000_000, 10_000_000)
    need, free = int(sizes[-1] * _TAR_BYTES * _COPIES), shutil.disk_usage(settings.work).free
    if free < need:
        raise MeasureError(f"{need >> 30} GiB of disk are needed, {free >> 30} GiB are free")
    runs: dict[int, list[Cost]] = {}
    for count in (1, *sizes):
        shards = _shards(settings, count)
        # The first run is a warm-up, except where it takes minutes.
        rounds = 1 if count > 1_000_000 else settings.repeats
        some = [_run(settings, shards, count) for _ in range(rounds + (rounds > 1))]
        runs[count] = some[-rounds:]
        if count > 1_000_000:
            shutil.rmtree(shards[0].parent)
    start = _medians(runs[1])
    lines = []
    for name, what in (("processor", "processor time"), ("clock", "time")):
        cost = {count: (getattr(_medians(runs[count]), name) - getattr(start, name)) / count * 1e6 for count in sizes}
        if min(cost.values()) <= 0:
            raise MeasureError(f"the {what} of {sizes[0]:,} samples is not above that of one: the machine is too busy")
        shown = ", ".join(f"{count:,}: {value:.1f} us" for count, value in cost.items())
        lines.append(
            Line(
                f"{what} of shuffle for each further sample of 1 byte, -p 1: largest over smallest",
                shown,
                "none",
                max(cost.values()) / min(cost.values()),
                " x",
                f"a run of one sample, taken off: {getattr(start, name):.2f} s",
                _BAR,
                "tar: 1,024 bytes a sample; --mem 512M",
            )
        )
    return Result(lines, {f"{count}": [each._asdict() for each in some] for count, some in runs.items()})


def _medians(some: list[Cost]) -> Cost:
    return Cost(*(statistics.median(values) for values in zip(*some, strict=True)))
