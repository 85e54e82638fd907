"""Feeding PyTorch: tarkit's data set and webdataset's loader, each with two workers and batches of
64.
"""

from __future__ import annotations

from collections.abc import Callable

from data import indexed_photos, indexed_shards
from environments import Settings, torch_environment
from rounds import Bar, Line, Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import run_loop

_SHARDS = 16
_TIMES = 4
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
    for size, count in ((64, 8192), (2000, 8192), (5000, 4096), (20_000, 2048)):
        of_shard = count // 16 if settings.quick else count
        samples = _SHARDS * of_shard
        urls = indexed_shards(settings, _SHARDS, of_shard, size)
        arguments = (urls, str(samples), str(size))
        sides = [Side(name, _run(settings, "feed_torch", [word, *arguments])) for name, word in _SIDES.items()]
        trials = take_turns(sides, settings.repeats)
        what = f"an epoch of {samples:,} samples of {size:,} B"
        agree, amount = ("samples", "bytes", "keys"), (samples, "samples")
        names = list(_SIDES)
        for ours, bar in zip(names[:2], (5, 4), strict=True):
            if size < 20_000:
                least = Bar(bar, at_least=True)
                lines.append(compare(what, trials, ours, names[2], least, agree=agree, per_second=amount))
            ceiling = None if size < 20_000 else Bar(0.8, at_least=True)
            lines.append(compare(what, trials, ours, names[3], ceiling, agree=("samples", "bytes"), per_second=amount))
        raw[what] = raw_trials(trials)
    return Result(lines, raw)


def feed_decoded(settings: Settings) -> Result:
    """Photos, decoded and cut to 224 x 224 pixels, as tensors."""
    shards, of_epoch = 8, 256 if settings.quick else 1024
    samples = _TIMES * of_epoch
    urls = indexed_photos(settings, shards, of_epoch)
    ours, theirs = "ShardDataset", "WebLoader"
    sides = [Side(name, _run(settings, "feed_photos", [_SIDES[name], urls, str(_TIMES)])) for name in (ours, theirs)]
    trials = take_turns(sides, settings.repeats)
    what = f"an epoch of {samples:,} photos, decoded and cut to 224 x 224"
    least, agree, amount = Bar(1.2, at_least=True), ("samples", "pixels", "keys"), (samples, "samples")
    line = compare(what, trials, ours, theirs, least, agree=agree, per_second=amount)
    return Result([line], {what: raw_trials(trials)})


def _run(settings: Settings, loop: str, arguments: list[str]) -> Callable[[int], Trial]:
    def run(_: int) -> Trial:
        result = run_loop(torch_environment(settings.work), loop, arguments)
        return Trial(result["seconds"], dict(result["evidence"]))

    return run
