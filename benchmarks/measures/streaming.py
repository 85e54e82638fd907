"""Feeding PyTorch: tarkit's data set and Mosaic Streaming's, shuffled, each with two workers and
batches of 64.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

from data import manifest_of_shards, mds_folder
from environments import Environment, Settings, streaming_environment, torch_environment
from rounds import Bar, Line, Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import run_loop
from measures.memory import FLAT_RATIO, FLAT_SLACK, MEGABYTE

_SIZE = 64
_OURS, _THEIRS = "ShardDataset", "StreamingDataset"


def feed_streaming(settings: Settings) -> Result:
    """An epoch of a million samples, the first batch of one, and the first after resuming in its
    middle.
    """
    shards, of_shard = (100, 100) if settings.quick else (1000, 1000)
    samples = shards * of_shard
    tar = torch_environment(settings.work), "tarkit", manifest_of_shards(settings, shards, of_shard, _SIZE)
    mds = streaming_environment(settings.work), "streaming", mds_folder(settings, shards, of_shard, _SIZE)
    lines: list[Line] = []
    raw: dict[str, object] = {}
    for what, text, bar in (
        ("epoch", f"an epoch of {samples:,} samples of {_SIZE} B", Bar(4, at_least=True)),
        ("first", f"the first batch of {samples:,} samples, in a running process", Bar(0.25, at_least=False)),
        ("resume", "... after resuming in the middle of them, in a running process", Bar(0.25, at_least=False)),
    ):
        sides = [
            Side(name, _run(environment, [word, path, what, str(samples)]))
            for name, (environment, word, path) in ((_OURS, tar), (_THEIRS, mds))
        ]
        trials = take_turns(sides, settings.repeats)
        raw[text] = raw_trials(trials)
        if what != "epoch":
            lines.append(compare(text, trials, _OURS, _THEIRS, bar, agree=("samples",)))
            continue
        agree, amount = ("samples", "bytes", "checksum"), (samples, "samples")
        lines.append(compare(text, trials, _OURS, _THEIRS, bar, agree=agree, per_second=amount))
        busy = {name: [_processor(trial) for trial in some] for name, some in trials.items()}
        lines.append(compare(f"{text}: processor time", busy, _OURS, _THEIRS, bar, agree=agree, per_second=amount))
        lines += [_memory(text, trials[_OURS], trials[_THEIRS]), _state(trials[_OURS], trials[_THEIRS])]
    return Result(lines, raw)


def _run(environment: Environment, arguments: list[str | Path]) -> Callable[[int], Trial]:
    def run(_: int) -> Trial:
        result = run_loop(environment, "feed_streaming", arguments)
        return Trial(result["seconds"], dict(result["evidence"]))

    return run


def _processor(trial: Trial) -> Trial:
    return Trial(float(trial.evidence["processor_s"]), trial.evidence)


def _memory(text: str, ours: list[Trial], theirs: list[Trial]) -> Line:
    """Whether the loop and its workers together grow in the second half of the epoch."""
    third, last, peak = (
        statistics.median(float(trial.evidence[name]) for trial in ours[1:])
        for name in ("third_quarter_mb", "last_quarter_mb", "peak_mb")
    )
    other = statistics.median(float(trial.evidence["peak_mb"]) for trial in theirs[1:])
    flat = last <= third * FLAT_RATIO + FLAT_SLACK / MEGABYTE
    note = f"{'flat' if flat else 'NOT FLAT'}: {third:.0f} MB in the third quarter, {last:.0f} MB in the last"
    own = f"{_OURS}: peak {peak:.0f} MB"
    return Line(
        f"{text}: memory of loop and workers",
        own,
        f"{_THEIRS}: peak {other:.0f} MB",
        last / third,
        " x the third quarter",
        "",
        Bar(FLAT_RATIO, at_least=False),
        note,
    )


def _state(ours: list[Trial], theirs: list[Trial]) -> Line:
    mine, other = (int(some[0].evidence["state_bytes"]) for some in (ours, theirs))
    bar = Bar(1000, at_least=False)
    return Line("state as JSON", f"{_OURS}: {mine} bytes", f"{_THEIRS}: {other} bytes", mine, " bytes", "", bar)
