"""Steps that need all samples at once: shuffle, sort and join, against plain copies and peers."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from data import kept, keyed_shards
from environments import (
    Settings,
    call,
    old_tarproc_environment,
    settle,
    spark_environment,
    system_program,
    tarkit_environment,
    webdataset_environment,
)
from process_tree import peak_of_tree
from rounds import Bar, Evidence, Line, MeasureError, Result, Side, Trial, compare, raw_trials, say, take_turns

from measures.copying import photo_shards
from measures.loop import LOOPS, run_loop

_FIELDS = ("cls=1", "bin=1000")
_MEM = "512M"
_CONTENT = ("samples", "members", "bytes", "content")


def _small(settings: Settings, shards: int, samples: int) -> list[Path]:
    """Samples of 1 kB in some shards, a tenth of them if small data will do."""
    return keyed_shards(settings, "keyed-1000", shards, samples // 10 if settings.quick else samples, 0, *_FIELDS)


def _found(settings: Settings, shards: Sequence[Path]) -> Evidence:
    return dict(run_loop(tarkit_environment(settings.work), "exchanged", sorted(shards))["evidence"])


def _clocked(settings: Settings, name: str, *commands: Sequence[str | Path]) -> Callable[[int], Trial]:
    """Run commands one after the other, as whole processes, in a fresh folder.

    Then look at what is in the shards there.
    """

    def run(_number: int) -> Trial:
        folder = settings.fresh(name)
        settle()
        begin = time.perf_counter()
        for words in commands:
            call(words, folder=folder, variables={"TMPDIR": str(folder)})
        seconds = time.perf_counter() - begin
        trial = Trial(seconds, _found(settings, [*folder.rglob("*.tar")]))
        settings.fresh(name)
        return trial

    return run


def _tarkit(settings: Settings, *words: str | Path) -> list[str | Path]:
    return [tarkit_environment(settings.work).program("tarkit"), words[0], "-q", *words[1:]]


def _shuffle(settings: Settings, shards: Sequence[Path], *options: str) -> Side:
    words = _tarkit(settings, "shuffle", *options, *shards, "-O", "out", "--seed", "1")
    return Side("tarkit shuffle", _clocked(settings, "shuffle", words))


def _cat(settings: Settings, shards: Sequence[Path]) -> Side:
    return Side("tarkit cat", _clocked(settings, "cat", _tarkit(settings, "cat", "-o", "out.tar", *shards)))


def _wrong_order(settings: Settings, shards: Sequence[Path], trials: Sequence[Trial]) -> str:
    """Why the samples of a shuffle are not in the order of their positions; empty if they are."""
    ours = tarkit_environment(settings.work)
    expected = run_loop(ours, "shuffled_order", ["1", *shards])["evidence"]["order"]
    wrong = sum(trial.evidence["order"] != expected for trial in trials)
    return f"{wrong} OF {len(trials)} ORDERS ARE NOT THAT OF THE POSITIONS" if wrong else ""


def _of_shuffle(line: Line, wrong: str) -> Line:
    note = "; ".join(part for part in (line.note, wrong or "order: that of the positions") if part)
    return dataclasses.replace(line, note=note, wrong=bool(wrong))


def _memory(settings: Settings, shards: Sequence[Path], what: str) -> Line:
    """The peak of a run of its own, as looking at it takes time."""
    folder = settings.fresh("shuffle")
    words = _tarkit(settings, "shuffle", "--mem", _MEM, *shards, "-O", "out")
    with subprocess.Popen(list(map(str, words)), cwd=folder, env={**os.environ, "TMPDIR": str(folder)}) as process:
        peak = peak_of_tree(process.pid, lambda: process.poll() is None) / (1 << 20)
    if process.returncode:
        raise MeasureError(f"tarkit shuffle ended with {process.returncode}")
    made = _found(settings, [*folder.rglob("*.tar")])["samples"]
    settings.fresh("shuffle")
    say(f"    peak {peak:.0f} MiB, {made} samples")
    note = "sum over its processes, shared pages counted in each"
    bar = Bar(1.2 * 512, at_least=False)
    return Line(f"peak memory, {what}", f"peak {peak:.0f} MiB", "none", peak, " MiB", "", bar, note)


def shuffle_small(settings: Settings) -> Result:
    """A million samples against a plain copy; a tenth of them against webdataset, in a list."""
    shards = _small(settings, 100, 10_000)
    count = len(shards) * (1000 if settings.quick else 10_000)
    sides = [_shuffle(settings, shards, "--mem", _MEM), _cat(settings, shards)]
    trials = take_turns(sides, settings.repeats)
    what = f"shuffle {count:,} samples of 1 kB, --mem {_MEM}"
    bar, amount = Bar(1.2, at_least=False), (count, "samples")
    line = compare(what, trials, sides[0].name, sides[1].name, bar, agree=_CONTENT, per_second=amount)
    lines = [_of_shuffle(line, _wrong_order(settings, shards, trials[sides[0].name])), _memory(settings, shards, what)]

    some = shards[:10]
    words = [webdataset_environment(settings.work).python, LOOPS / "shuffle_webdataset.py", ".", "10000", *some]
    peers = [_shuffle(settings, some, "--mem", _MEM), Side("webdataset 1.0.2", _clocked(settings, "wds", words))]
    against = take_turns(peers, settings.repeats)
    line = compare(
        f"shuffle {count // 10:,} samples of 1 kB",
        against,
        peers[0].name,
        peers[1].name,
        Bar(12, at_least=True),
        agree=_CONTENT,
        per_second=(count // 10, "samples"),
        note="webdataset holds all samples in a list; both as whole processes, flushed to the disk",
    )
    lines.append(_of_shuffle(line, _wrong_order(settings, some, against[peers[0].name])))
    return Result(lines, {"copy": raw_trials(trials), "webdataset": raw_trials(against)})


def shuffle_spark(settings: Settings) -> Result:
    """Spark's own shuffle of (random position, bytes of the sample), on both cores."""
    system_program("java", "openjdk-17-jre-headless")
    shards = _small(settings, 20, 10_000)
    count = len(shards) * (1000 if settings.quick else 10_000)
    without_start: list[Trial] = []
    loop = [spark_environment(settings.work).python, LOOPS / "shuffle_spark.py", ".", str(len(shards)), *shards]

    def spark(_number: int) -> Trial:
        folder = settings.fresh("spark")
        settle()
        begin = time.perf_counter()
        text = call(loop, folder=folder)
        seconds = time.perf_counter() - begin
        evidence = _found(settings, [*folder.glob("out-*.tar")])
        without_start.append(Trial(float(json.loads(text)["seconds"]), evidence))
        settings.fresh("spark")
        return Trial(seconds, evidence)

    ours, theirs, job = "tarkit shuffle", "PySpark 4.3.0 local[2]", "PySpark 4.3.0 local[2], without its start"
    trials = take_turns([_shuffle(settings, shards), Side(theirs, spark)], settings.repeats)
    trials[job] = without_start
    wrong = _wrong_order(settings, shards, trials[ours])
    bars = ((theirs, Bar(6, at_least=True), "whole processes"), (job, None, "of Spark the job alone, of tarkit all"))
    amount = (count, "samples")
    lines = [
        _of_shuffle(
            compare(
                f"shuffle {count:,} samples of 1 kB",
                trials,
                ours,
                name,
                bar,
                agree=_CONTENT,
                per_second=amount,
                note=f"{note}; Spark reads headers without checks, and writes no index",
            ),
            wrong,
        )
        for name, bar, note in bars
    ]
    return Result(lines, raw_trials(trials))


def shuffle_photos(settings: Settings) -> Result:
    """Photos, which only have to be moved, against a copy of their files."""
    shards = photo_shards(settings)
    size = sum(path.stat().st_size for path in shards)
    copy = [system_program("bash", "bash"), "-ec", 'cp "$@" .; sync *.tar', "bash", *shards]
    sides = [_shuffle(settings, shards), Side("cp, sync", _clocked(settings, "copy", copy))]
    trials = take_turns(sides, settings.repeats)
    line = compare(
        f"shuffle {size >> 20:,} MiB of photos in {len(shards)} shards",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(5, at_least=False),
        agree=_CONTENT,
        per_second=(size >> 20, "MiB"),
        note="both flushed to the disk; tarkit writes each byte twice and keeps a checksum of each shard",
    )
    return Result([_of_shuffle(line, _wrong_order(settings, shards, trials[sides[0].name]))], raw_trials(trials))


def sort_small(settings: Settings) -> Result:
    """By key, against tarproc 0.0.6, which keeps samples in SQLite."""
    shards = _small(settings, 10, 10_000)
    count = len(shards) * (1000 if settings.quick else 10_000)
    joined = kept(
        settings, f"keyed-{count}.tar", lambda path: print(end=call(_tarkit(settings, "cat", "-o", path, *shards)))
    )
    tarsort = old_tarproc_environment(settings.work).program("tarsort")
    ours = _tarkit(settings, "sort", *shards, "-O", "out", "--by", "key")
    sides = [
        Side("tarkit sort", _clocked(settings, "sort", ours)),
        Side("tarsort of tarproc 0.0.6", _clocked(settings, "tarsort", [tarsort, joined, "-o", "out.tar"], ["sync"])),
    ]
    trials = take_turns(sides, settings.repeats)
    line = compare(
        f"sort {count:,} samples of 1 kB by key",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(5, at_least=True),
        agree=(*_CONTENT, "order", "sorted"),
        per_second=(count, "samples"),
        note="tarsort takes one shard, which is there before the clock starts",
    )
    is_sorted = all(trial.evidence["sorted"] == 1 for trial in trials[sides[0].name])
    return Result([dataclasses.replace(line, wrong=not is_sorted)], raw_trials(trials))


def join(settings: Settings) -> Result:
    """Two sides of a million samples, of which 3 % are missing on each side."""
    shards, of_shard = 100, 1000 if settings.quick else 10_000
    count = shards * of_shard
    alone = count * 3 // 100
    left = keyed_shards(settings, "keyed-1000", shards, of_shard, 0, *_FIELDS)
    right = keyed_shards(settings, "keyed-100", shards, of_shard, alone, "txt=100")
    words = [tarkit_environment(settings.work).program("tarkit"), "join", "--json", "--how", "outer", "-O", "out"]
    copies = [_tarkit(settings, "cat", "-o", name, *side) for name, side in (("left.tar", left), ("right.tar", right))]

    def ours(_number: int) -> Trial:
        folder = settings.fresh("join")
        settle()
        begin = time.perf_counter()
        text = call([*words, *left, "--", *right], folder=folder, variables={"TMPDIR": str(folder)})
        seconds = time.perf_counter() - begin
        said = json.loads(text.splitlines()[-1])
        found = _found(settings, [*folder.rglob("*.tar")])
        settings.fresh("join")
        counts = {name: said[name] for name in ("pairs", "left_only", "right_only")}
        return Trial(seconds, {**found, **counts})

    sides = [Side("tarkit join", ours), Side("tarkit cat of each side", _clocked(settings, "copies", *copies))]
    trials = take_turns(sides, settings.repeats)
    line = compare(
        f"join {count:,} samples of 1 kB with {count:,} of 100 B by key, 3 % missing on each side",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(4, at_least=False),
        agree=("members", "bytes", "content"),
        per_second=(2 * count, "samples"),
        note=f"--how outer; {count - alone:,} pairs, {alone:,} left only, {alone:,} right only",
    )
    expected = {"samples": count + alone, "pairs": count - alone, "left_only": alone, "right_only": alone, "sorted": 1}
    wrong = any({name: trial.evidence[name] for name in expected} != expected for trial in trials[sides[0].name])
    if wrong:
        line = dataclasses.replace(line, note=f"COUNTS OR ORDER ARE WRONG: {expected} expected", wrong=True)
    return Result([line], raw_trials(trials))
