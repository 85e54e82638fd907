"""What a shard costs when there are 100,000 of them in one folder, published one by one."""

from __future__ import annotations

import os
import time
from pathlib import Path

from data import small_shard
from environments import Settings, call, settle, tarkit_environment
from rounds import Bar, Line, MeasureError, Result

_BAR = Bar(2, at_least=False)


def _clocked(settings: Settings, program: str, arguments: list[str], folder: Path, count: int) -> float:
    """Milliseconds a shard of one run, which must leave ``count`` shards in ``folder/out``."""
    settle()
    begin = time.perf_counter()
    call([tarkit_environment(settings.work).program(program), *arguments], folder=folder)
    seconds = time.perf_counter() - begin
    there = sum(entry.name.endswith(".tar") for entry in os.scandir(folder / "out"))
    if there != count:
        raise MeasureError(f"{program} {arguments[0]} made {there} of {count} shards")
    return seconds / count * 1000


def _loop(folder: Path, count: int) -> float:
    """The same in the plainest way: write 10 KiB, fsync, rename, fsync the folder."""
    (folder / "loop").mkdir()
    settle()
    begin = time.perf_counter()
    place = os.open(folder / "loop", os.O_RDONLY)
    for number in range(count):
        with open(folder / "loop" / "new", "wb") as file:
            file.write(bytes(10240))
            file.flush()
            os.fsync(file.fileno())
        os.rename(folder / "loop" / "new", folder / "loop" / f"{number:06d}")
        os.fsync(place)
    os.close(place)
    return (time.perf_counter() - begin) / count * 1000


def _of(settings: Settings, count: int) -> dict[str, float]:
    """Milliseconds a shard, by what makes them."""
    folder = settings.fresh("many-shards")
    shard = small_shard(settings, count)
    found = {"loop": _loop(folder, min(count, 2000))}
    (folder / "out").mkdir()
    split = ["split", "-q", str(shard.path), "-o", "out/s-%06d.tar", "--maxcount", "1"]
    found["split"] = _clocked(settings, "tarkit", split, folder, count)
    os.rename(folder / "out", folder / "in")
    process = ["-q", "-p", "2", "-c", ":", "-O", "out", f"in/s-{{000000..{count - 1:06d}}}.tar"]
    found["tarproc -O"] = _clocked(settings, "tarproc", process, folder, count)
    found["tarproc -O, again"] = _clocked(settings, "tarproc", process, folder, count)
    settings.fresh("many-shards")
    return found


def many_shards(settings: Settings) -> Result:
    """One round: it takes minutes, and is about whether the time for a shard grows with their
    number.
    """
    few, many = (100, 1000) if settings.quick else (5000, 100_000)
    small, large = _of(settings, few), _of(settings, many)
    lines = [
        Line(
            f"{many:,} shards of one sample: {name}",
            f"{large[name]:.2f} ms a shard; of {few:,}: {small[name]:.2f} ms",
            f"no peer: write, fsync, rename, fsync of the folder in a loop: {large['loop']:.2f} ms",
            large[name],
            " ms a shard",
            "",
            _BAR,
            note,
        )
        for name, note in (
            ("split", "each shard is published: flushed to the disk before it has its name"),
            ("tarproc -O", "-p 2; a command for each sample, a shard and a done record published for each"),
            ("tarproc -O, again", "nothing is left to do: input, output and record of each are looked at"),
        )
    ]
    return Result(lines, {f"{few} shards": small, f"{many} shards": large})
