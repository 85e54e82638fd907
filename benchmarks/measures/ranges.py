"""Reading a range of a shard's samples: through its index, and by reading what is before it."""

from __future__ import annotations

from collections.abc import Callable

from data import long_photo_shard
from environments import Environment, Settings, call, tarkit_environment, webdataset_environment
from rounds import Bar, Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import run_loop

_WANTED = 1000


def last_thousand(settings: Settings) -> Result:
    """What a worker waits for whose task is at the end of a shard."""
    shard = long_photo_shard(settings, 2000 if settings.quick else 20_000)
    ours, theirs = tarkit_environment(settings.work), webdataset_environment(settings.work)
    call([ours.program("tarkit"), "index", "--quiet", shard.path])

    def reader(environment: Environment, how: str) -> Callable[[int], Trial]:
        def run(number: int) -> Trial:
            arguments = [how, shard.path, str(shard.samples - _WANTED), str(shard.samples)]
            result = run_loop(environment, "read_last", arguments)
            return Trial(result["seconds"], result["evidence"])

        return run

    sides = [
        Side("with an index", reader(ours, "index")),
        Side("tarkit.read_samples", reader(ours, "stream")),
        Side("webdataset 1.0.2 raw", reader(theirs, "webdataset")),
    ]
    trials = take_turns(sides, settings.repeats)
    what = f"read the last {_WANTED:,} of {shard.samples:,} photo samples"
    amount = (_WANTED, "samples")
    agree = ("samples", "field_bytes", "checksum")
    lines = [
        compare(what, trials, sides[0].name, other.name, Bar(limit, at_least=True), agree=agree, per_second=amount)
        for other, limit in zip(sides[1:], (3, 10), strict=True)
    ]
    return Result(lines, raw_trials(trials))
