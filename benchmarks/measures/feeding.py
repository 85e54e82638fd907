"""Feeding PyTorch: tarkit's data set and webdataset's loader, each with two workers and batches of 64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from data import indexed_shards
from environments import Settings, torch_environment
from rounds import Bar, Line, Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import run_loop

_SHARDS = 16
_SIDES = {
    "ShardDataset": "tarkit",
    "ShardDataset, shuffled": "tarkit-shuffled",
    "WebLoader": "webdataset",
    "DataLoader over batches that are there": "ceiling",
}


def feed_torch(settings: Settings) -> Result:
    """Undecoded samples of 64 B, 2 kB, 5 kB and 20 kB."""
    lines: list[Line] = []
    raw: dict[str, object] = {}
    for size, count, bar in ((64, 8192, 5), (2000, 8192, 5), (5000, 4096, 5), (20_000, 2048, 0)):
        of_shard = count // 16 if settings.quick else count
        samples = _SHARDS * of_shard
        urls = indexed_shards(settings, _SHARDS, of_shard, size)
        sides = [Side(name, _epoch(settings, word, urls, samples, size)) for name, word in _SIDES.items()]
        trials = take_turns(sides, settings.repeats)
        what = f"an epoch of {samples:,} samples of {size:,} B"
        agree, amount = ("samples", "bytes", "keys"), (samples, "samples")
        names = list(_SIDES)
        for ours in names[:2]:
            if bar:
                least = Bar(bar, at_least=True)
                lines.append(compare(what, trials, ours, names[2], least, agree=agree, per_second=amount))
            ceiling = Bar(0.8 if not bar else 0, at_least=True)
            lines.append(compare(what, trials, ours, names[3], ceiling, agree=("samples", "bytes"), per_second=amount))
        raw[what] = raw_trials(trials)
    return Result(lines, raw)


def _epoch(settings: Settings, side: str, urls: str, samples: int, size: int) -> Callable[[int], Trial]:
    def run(_: int) -> Trial:
        environment = torch_environment(settings.work)
        result = run_loop(environment, "feed_torch", [side, Path(urls), str(samples), str(size)])
        return Trial(result["seconds"], dict(result["evidence"]))

    return run
