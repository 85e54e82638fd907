"""Feeding from compressed shards against the same shards uncompressed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from data import packed_shards
from environments import Settings, tarkit_environment
from rounds import Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import run_loop

_SHARDS = 8


def feed_packed(settings: Settings) -> Result:
    """Texts of 1.7 kB, shuffled, from shards in zst's seekable format."""
    of_shard = 640 if settings.quick else 6400
    samples = _SHARDS * of_shard
    plain = packed_shards(settings, _SHARDS, of_shard)
    cache = str(Path(plain).parent / "cache")
    sides = {"tar": [plain], "tar.zst": [f"{plain}.zst"], "tar.zst, with cache": [f"{plain}.zst", cache]}
    trials = take_turns(
        [Side(name, _run(settings, [urls, str(samples), *more])) for name, (urls, *more) in sides.items()],
        settings.repeats,
    )
    what, agree = f"a shuffled epoch of {samples:,} texts", ("samples", "content")
    lines = [
        compare(what, trials, name, "tar", None, agree=agree, per_second=(samples, "samples"))
        for name in list(sides)[1:]
    ]
    return Result(lines, {what: raw_trials(trials)})


def _run(settings: Settings, arguments: list[str]) -> Callable[[int], Trial]:
    def run(_: int) -> Trial:
        result = run_loop(tarkit_environment(settings.work), "feed_packed", arguments)
        return Trial(result["seconds"], dict(result["evidence"]))

    return run
