"""Joining and splitting shards of photos, against cp of the same bytes, flushed to the disk."""

from __future__ import annotations

import io
import random
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from environments import Settings, call, settle, system_program, tarkit_environment
from rounds import Bar, Result, Side, Trial, compare, raw_trials, take_turns

_SHARDS, _PHOTO = 10, 95_000


def photo_shards(settings: Settings) -> list[Path]:
    """Shards of 1,000 samples (100 if small data will do): bytes as of a photo, and a class."""
    count = 100 if settings.quick else 1000
    folder = settings.work / "data" / f"copying-{count}"
    paths = [folder / f"in-{number:02d}.tar" for number in range(_SHARDS)]
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(1)
    for number, path in enumerate(paths):
        if path.exists():
            continue
        with tarfile.open(path.with_suffix(".part"), "w", format=tarfile.USTAR_FORMAT) as archive:
            for at in range(count):
                for field, content in (("cls", b"7"), ("jpg", draw.randbytes(_PHOTO + at))):
                    info = tarfile.TarInfo(f"{number:02d}{at:06d}.{field}")
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
        path.with_suffix(".part").rename(path)
    return paths


def _sides(settings: Settings, shards: Sequence[Path], ours: Sequence[str], theirs: str) -> list[Side]:
    tarkit = tarkit_environment(settings.work).program("tarkit")
    names = [str(path) for path in shards]

    def by(words: Sequence[str | Path]) -> Callable[[int], Trial]:
        def run(_number: int) -> Trial:
            folder = settings.fresh("copying")
            settle()
            begin = time.perf_counter()
            call(words, folder=folder)
            seconds = time.perf_counter() - begin
            members = size = 0
            for path in sorted(folder.glob("*.tar")):
                with tarfile.open(path, ignore_zeros=True) as archive:
                    for info in archive:
                        members, size = members + 1, size + info.size
            settings.fresh("copying")
            return Trial(seconds, {"members": members, "bytes": size})

        return run

    shell = [system_program("bash", "bash"), "-ec", theirs, "bash", *names]
    return [Side(f"tarkit {ours[0]}", by([tarkit, *ours, *names])), Side(theirs, by(shell))]


def _measure(settings: Settings, what: str, ours: Sequence[str], theirs: str) -> Result:
    shards = photo_shards(settings)
    sides = _sides(settings, shards, ours, theirs)
    trials = take_turns(sides, settings.repeats)
    size = sum(path.stat().st_size for path in shards)
    line = compare(
        f"{what} {size >> 20:,} MiB of photos in {len(shards)} shards",
        trials,
        sides[0].name,
        sides[1].name,
        Bar(0.5, at_least=True),
        agree=("members", "bytes"),
        per_second=(size >> 20, "MiB"),
        note="both flushed to the disk; only tarkit checks each header and key",
    )
    return Result([line], raw_trials(trials))


def cat_photos(settings: Settings) -> Result:
    """Shards to one shard."""
    return _measure(settings, "join", ["cat", "-q", "-o", "out.tar"], 'cat "$@" > out.tar; sync out.tar')


def split_photos(settings: Settings) -> Result:
    """Shards to shards of another length."""
    ours = ["split", "-q", "-o", "out-%06d.tar", "--maxcount", "700"]
    return _measure(settings, "split", ours, 'cp "$@" .; sync *.tar')
