"""Making shards of small files and of tables."""

from __future__ import annotations

import hashlib
import random
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from data import kept
from environments import Settings, call, parquet_environment, settle, system_program, tarkit_environment
from rounds import Bar, Evidence, Result, Side, Trial, compare, raw_trials, take_turns

from measures.loop import LOOPS, run_loop


def _members(*shards: Path) -> Evidence:
    """Number, bytes and a checksum of names and sizes of the files in shards, in any order."""
    found = []
    for shard in shards:
        with tarfile.open(shard) as archive:
            found += [(info.name, info.size) for info in archive if info.isfile()]
    listing = hashlib.sha256(repr(sorted(found)).encode()).hexdigest()
    return {"members": len(found), "field_bytes": sum(size for _, size in found), "listing": listing}


def _command(settings: Settings, name: str, words: Sequence[str | Path]) -> Callable[[int], Trial]:
    def run(_number: int) -> Trial:
        folder = settings.fresh(name)
        settle()
        begin = time.perf_counter()
        call(words, folder=folder)
        seconds = time.perf_counter() - begin
        trial = Trial(seconds, _members(*sorted(folder.glob("*.tar"))))
        settings.fresh(name)
        return trial

    return run


def create_small(settings: Settings) -> Result:
    """Many small files, whose content is in the page cache, to one shard on the disk."""
    count = 2_000 if settings.quick else 20_000

    def make(folder: Path) -> None:
        chance = random.Random(20261126)
        for number in range(count):
            path = folder / "files" / f"{number % 20:02d}" / f"{number:06d}.jpg"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(chance.randbytes(chance.randrange(4_000, 10_000)))

    source = kept(settings, f"small-files-{count}", make)
    ours = tarkit_environment(settings.work).program("tarkit")
    by_tar = f"{system_program('tar', 'tar')} cf out.tar -C {source} files && sync out.tar"
    sides = [
        Side(
            "tarkit create",
            _command(settings, "create", [ours, "create", "-q", "-o", "out.tar", "-C", source, "files"]),
        ),
        Side("GNU tar, sync", _command(settings, "create-tar", ["bash", "-c", by_tar])),
    ]
    trials = take_turns(sides, settings.repeats)
    line = compare(
        f"create a shard of {count:,} files of 4-10 kB",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(0.8, at_least=True),
        agree=("members", "field_bytes", "listing"),
        per_second=(count, "files"),
        note="both on the disk; tar compares no keys and no extensions, and does not see a file that is replaced",
    )
    return Result([line], raw_trials(trials))


def create_parquet(settings: Settings) -> Result:
    """Rows of a Parquet file, bytes among them, to shards of 10,000 samples."""
    count = 10_000 if settings.quick else 100_000
    environment = parquet_environment(settings.work)

    def make(path: Path) -> None:
        call([environment.python, LOOPS / "make_parquet.py", path, str(count)])

    source = kept(settings, f"rows-{count}.parquet", make)
    words = [environment.program("tarkit"), "create", "-q", "--table", source, "--key", "id", "-o", "out-%06d.tar"]

    def theirs(_number: int) -> Trial:
        folder = settings.fresh("parquet-webdataset")
        settle()
        seconds = run_loop(environment, "parquet_webdataset", [source, folder])["seconds"]
        return Trial(seconds, _members(*sorted(folder.glob("*.tar"))))

    sides = [
        Side("tarkit create --table", _command(settings, "parquet-tarkit", [*words, "--maxcount", "10000"])),
        Side("webdataset 1.0.2 ShardWriter", theirs),
    ]
    trials = take_turns(sides, settings.repeats)
    line = compare(
        f"create shards of {count:,} rows of Parquet, 2 kB of bytes in each",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(5, at_least=True),
        agree=("members", "field_bytes", "listing"),
        per_second=(count, "samples"),
        note="tarkit as a whole process; of webdataset the loop alone, without its import",
    )
    return Result([line], raw_trials(trials))
