"""Reading samples out of a shard on the local disk: tarkit, webdataset without decoding, a loop
of reads.
"""

from __future__ import annotations

from collections.abc import Callable

from data import Shard, photo_shard, small_shard
from environments import Environment, Settings, tarkit_environment, webdataset_environment
from rounds import Bar, Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import run_loop


def _reader(environment: Environment, loop: str, shard: Shard) -> Callable[[int], Trial]:
    def run(number: int) -> Trial:
        # What was in the samples is compared once, in the warm-up; counts are compared in every
        # round.
        result = run_loop(environment, loop, [shard.path, *(["check"] if number == 0 else [])])
        return Trial(result["seconds"], result["evidence"])

    return run


def read_small(settings: Settings) -> Result:
    """Many tiny samples: what a reader costs per sample."""
    shard = small_shard(settings, 10_000 if settings.quick else 100_000)
    ours, theirs = tarkit_environment(settings.work), webdataset_environment(settings.work)
    sides = [
        Side("tarkit.read_samples", _reader(ours, "read_tarkit", shard)),
        Side("webdataset 1.0.2 raw", _reader(theirs, "read_webdataset", shard)),
    ]
    trials = take_turns(sides, settings.repeats)
    line = compare(
        f"read {shard.samples:,} samples of 1 + 300 bytes",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(18, at_least=True),
        agree=("samples", "field_bytes", "checksum"),
        per_second=(shard.samples, "samples"),
    )
    return Result([line], raw_trials(trials))


def read_photos(settings: Settings) -> Result:
    """Photos: what a reader costs per byte."""
    shard = photo_shard(settings, 200 if settings.quick else 1000)
    ours, theirs = tarkit_environment(settings.work), webdataset_environment(settings.work)
    sides = [
        Side("tarkit.read_samples", _reader(ours, "read_tarkit", shard)),
        Side("webdataset 1.0.2 raw", _reader(theirs, "read_webdataset", shard)),
        Side("os.pread", _reader(ours, "read_offsets", shard)),
    ]
    trials = take_turns(sides, settings.repeats)
    what, amount = f"read {shard.samples:,} photo samples", (shard.samples, "samples")
    against_peer = compare(
        what,
        trials,
        sides[0].name,
        sides[1].name,
        Bar(4, at_least=True),
        agree=("samples", "field_bytes", "checksum"),
        per_second=amount,
    )
    against_floor = compare(
        what,
        trials,
        sides[0].name,
        sides[2].name,
        Bar(0.8, at_least=True),
        agree=("samples", "field_bytes"),
        per_second=amount,
        note="the loop is told where each member is, reads no header, and makes no samples",
    )
    return Result([against_peer, against_floor], raw_trials(trials))
