"""Memory of every program that reads shards, over a few kilobytes that stand for gigabytes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from environments import Environment, Settings, call, tarkit_environment
from process_tree import PROC, tree
from rounds import Bar, Line, MeasureError, Result, say

from measures.loop import LOOPS
from measures.memory import LIMIT, MEGABYTE

INTERVAL = 0.02
OVER_8_GIB = 9 << 10
# Command, with the exit code that it must have and the shard that must hold the large member
# afterwards.
COMMANDS: list[tuple[str, int, str | None]] = [
    ("tarkit show BOMB", 0, None),
    ("tarkit show --count BOMB", 0, None),
    ("tarkit cat BOMB -o out.tar.zst", 0, "out.tar.zst"),
    ("tarkit cat --on-damage skip BOMB -o out.tar.zst", 0, "out.tar.zst"),
    ("tarkit split BOMB --maxcount 1 -o %d.tar.zst", 0, "1.tar.zst"),
    ("tarproc -c true BOMB -o out.tar.zst", 0, "out.tar.zst"),
    ("tarproc -c false BOMB -o out.tar.zst", 1, None),
    ("tarproc --map mapper.py:same BOMB -o out.tar.zst", 3, None),
]
LARGE_COMMANDS: list[tuple[str, int, str | None]] = [
    ("tarkit cat BOMB -o out.tar.zst", 0, "out.tar.zst"),
    ("tarkit split BOMB --maxcount 1 -o %d.tar.zst", 0, "1.tar.zst"),
    ("tarkit create -o out.tar.zst b.bin", 0, "out.tar.zst"),
]


def _peak(process: int) -> int:
    """Bytes that the process had in memory at most so far; 0 if it is gone."""
    try:
        status = (PROC / str(process) / "status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmHWM:")), 0)


def _watch(environment: Environment, words: Sequence[str], folder: Path) -> tuple[int, int]:
    """Exit code, and the largest peak of one of its processes."""
    peak = 0
    command = [environment.program(words[0]), *words[1:]]
    variables = {**os.environ, "TMPDIR": str(folder)}
    with (folder / "said").open("wb") as said:
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=variables
        )
        while process.poll() is None:
            peak = max(peak, *map(_peak, tree(process.pid)))
            time.sleep(INTERVAL)
    return process.returncode, peak


def _line(settings: Settings, mebibytes: int, command: str, code: int, shard: str | None) -> Line:
    environment, folder = tarkit_environment(settings.work), settings.fresh("bomb")
    bomb, size = folder / "bomb.tar.zst", mebibytes << 20
    call([environment.python, LOOPS / "bomb.py", str(mebibytes), bomb])
    (folder / "mapper.py").write_text("def same(sample):\n    return sample\n")
    with (folder / "b.bin").open("wb") as file:
        file.truncate(size)
    begin = time.monotonic()
    found, peak = _watch(environment, [str(bomb) if word == "BOMB" else word for word in command.split()], folder)
    seconds = time.monotonic() - begin
    if found != code:
        raise MeasureError(f"{command} ended with {found}: {(folder / 'said').read_text()[-300:]}")
    if shard is not None and f"bin:{size}" not in call([environment.program("tarkit"), "show", folder / shard]):
        raise MeasureError(f"{command}: {shard} does not hold the member of {size} bytes")
    say(f"    {peak / MEGABYTE:.0f} MB, {seconds:.1f} s: {command}")
    what = f"peak memory, {command}, a member of {mebibytes >> 10} GiB in {bomb.stat().st_size >> 10} kB"
    value = peak / MEGABYTE
    return Line(what, f"peak {value:.0f} MB", "none", value, " MB", f"{seconds:.1f} s", Bar(LIMIT, at_least=False))


def memory_bomb(settings: Settings) -> Result:
    """A member of 6 GiB of zeros through every program.

    One of 9 GiB through those that write shards.
    """
    mebibytes = (1 if settings.quick else 6) << 10
    lines = [_line(settings, mebibytes, *each) for each in COMMANDS]
    lines += [_line(settings, OVER_8_GIB, *each) for each in ([] if settings.quick else LARGE_COMMANDS)]
    settings.fresh("bomb")
    return Result(lines, {"megabytes": {line.measures: line.value for line in lines}})
