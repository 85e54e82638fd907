"""Writing samples into a shard on the local disk."""

from __future__ import annotations

from collections.abc import Callable

from environments import Environment, Settings, tarkit_environment, webdataset_environment
from rounds import Bar, Result, Side, Trial, compare, raw_trials, take_turns

from measures.archive import listed
from measures.loop import run_loop


def _writer(settings: Settings, environment: Environment, loop: str, count: int) -> Callable[[int], Trial]:
    def run(_number: int) -> Trial:
        path = settings.fresh(loop) / "out.tar"
        result = run_loop(environment, loop, [path, str(count)])
        before_close = {"microseconds_before_close": round(result["loop_seconds"] * 1e6)}
        trial = Trial(result["seconds"], {**listed(path), **before_close})
        settings.fresh(loop)
        return trial

    return run


def write_small(settings: Settings) -> Result:
    """Many tiny samples: what a writer costs per sample, from opening the shard to its close."""
    count = 5_000 if settings.quick else 50_000
    ours, theirs = tarkit_environment(settings.work), webdataset_environment(settings.work)
    sides = [
        Side("tarkit TarWriter", _writer(settings, ours, "write_tarkit", count)),
        Side("webdataset 1.0.2 TarWriter", _writer(settings, theirs, "write_webdataset", count)),
    ]
    trials = take_turns(sides, settings.repeats)
    line = compare(
        f"write {count:,} samples of 1 + 300 bytes, encoder=False",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(16, at_least=True),
        agree=("samples", "members", "field_bytes", "listing"),
        per_second=(count, "samples"),
    )
    return Result([line], raw_trials(trials))
