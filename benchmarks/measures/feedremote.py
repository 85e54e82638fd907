"""Feeding PyTorch from a server that is far away: how long the loop waits, and what is sent."""

from __future__ import annotations

import json
import shutil
import statistics
import urllib.request
from pathlib import Path
from typing import Any

from data import indexed_shards
from environments import Settings, torch_environment
from rounds import Bar, Line, Result, say

from measures.loop import run_loop, served

_SHARDS, _SIZE, _BATCH, _STEP = 40, 20_000, 64, 0.1
_LATENCY, _RATE, _BUFFER = 0.02, 200e6, 128 << 10
_SPAN = 2 * 512 + (_SIZE + 511) // 512 * 512 + 512
"""Bytes of a sample in its shard: two headers, its content and a class of one byte, in blocks."""
_WAYS: dict[str, tuple[int, list[str]]] = {
    "2 workers": (2, []),
    "0 workers": (0, []),
    "4 workers": (4, []),
    "2 workers, ahead=0": (2, ["ahead=0"]),
}


def feed_remote(settings: Settings) -> Result:
    """An epoch of shuffled samples of 20 kB, batches of 64, steps of 100 ms, a cold cache."""
    of_shard = 50 if settings.quick else 500
    urls = indexed_shards(settings, _SHARDS, of_shard, _SIZE)
    samples = _SHARDS * of_shard // _BATCH * _BATCH
    lines, raw = list[Line](), dict[str, object]()
    with served("serve_slowly.py", str(Path(urls).parent), str(_LATENCY), str(_RATE), str(_BUFFER)) as address:
        shards = f"{address}/{Path(urls).name}"
        for way, (workers, options) in _WAYS.items():
            found = [_epoch(settings, address, shards, workers, options) for _ in range(settings.repeats)]
            raw[way] = found
            is_first = not lines
            shares = [each["share"] * 100 for each in found]
            ratios = [each["sent"]["bytes"] / (_SHARDS * of_shard * _SPAN) for each in found]
            first = statistics.median(each["evidence"]["first"] for each in found)
            sent = found[0]["sent"]
            ours = f"first batch {first:.2f} s; {sent['requests']} requests, {sent['connections']} connections"
            wrong = any(each["evidence"]["samples"] != samples for each in found)
            what = f"{_SHARDS * of_shard:,} samples of {_SIZE:,} B from a server with {_LATENCY * 1000:.0f} ms, {way}"
            for title, values, unit, bar in (
                ("the loop waits, from the second batch on", shares, "% of the time", Bar(3, at_least=False)),
                ("bytes sent, of the samples' spans", ratios, "x", Bar(1.05, at_least=False)),
            ):
                spread = f"{min(values):.3g}-{max(values):.3g}"
                asked = bar if is_first else None
                median = statistics.median(values)
                lines.append(Line(f"{what}: {title}", ours, "", median, unit, spread, asked, wrong=wrong))
    return Result(lines, raw)


def _epoch(settings: Settings, address: str, shards: str, workers: int, options: list[str]) -> dict[str, Any]:
    """What the loop and the server counted."""
    cache = settings.work / "feed-remote-cache"
    shutil.rmtree(cache, ignore_errors=True)
    _counts(address)
    arguments = [shards, str(workers), str(_STEP), cache, str(_BATCH), *options]
    result = run_loop(torch_environment(settings.work), "feed_remote", arguments)
    result["sent"] = _counts(address)
    say(f"    {workers} workers {' '.join(options)}: waits {result['share']:.1%}, {result['sent']}")
    shutil.rmtree(cache, ignore_errors=True)
    return result


def _counts(address: str) -> dict[str, int]:
    with urllib.request.urlopen(f"{address}/counts") as answer:
        return dict(json.load(answer))
