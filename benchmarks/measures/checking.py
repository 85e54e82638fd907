"""Checking clean shards, beside only reading them with the library's own loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from data import indexed_photos, indexed_shards, small_shard
from environments import Settings, decoding_environment
from rounds import Bar, Line, Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import run_loop


def check_clean(settings: Settings) -> Result:
    """What the checks cost: structure, keys and fields; indexes; contents; decoded photos."""
    count, photos = (10_000, 200) if settings.quick else (100_000, 1000)
    small = str(small_shard(settings, count).path)
    fields = "require=json|txt,cls"
    cases: tuple[tuple[str, str, int, Sequence[str], Bar | None], ...] = (
        ("structure, keys, fields", small, count, [fields], Bar(0.8, at_least=True)),
        ("the same, and contents", small, count, [fields, "contents"], None),
        ("structure, keys, indexes", indexed_shards(settings, 10, count // 10, 300), count, [], None),
        ("photos decoded, 1 process", indexed_photos(settings, 4, photos), photos, ["decode=1"], None),
        ("photos decoded, 2 processes", indexed_photos(settings, 4, photos), photos, ["decode=2"], None),
    )
    lines: list[Line] = []
    raw: dict[str, object] = {}
    for what, spec, samples, words, bar in cases:
        sides = [
            Side("check_shards", _run(settings, spec, words)),
            Side("read_samples", _run(settings, spec, ["read"])),
        ]
        trials = take_turns(sides, settings.repeats)
        title = f"check {samples:,} samples: {what}"
        amount, agree = (samples, "samples"), ("samples", "findings")
        lines.append(compare(title, trials, sides[0].name, sides[1].name, bar, agree=agree, per_second=amount))
        raw[title] = raw_trials(trials)
    return Result(lines, raw)


def _run(settings: Settings, spec: str, words: Sequence[str]) -> Callable[[int], Trial]:
    def run(_: int) -> Trial:
        result = run_loop(decoding_environment(settings.work), "check_shards", [spec, *words])
        return Trial(result["seconds"], dict(result["evidence"]))

    return run
