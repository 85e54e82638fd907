"""Memory of tarproc over a stream that never ends: does it stay bounded, and does it stay flat?"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from environments import Settings, tarkit_environment
from process_tree import born, resident, tree
from rounds import Bar, Line, MeasureError, Result, say

from measures.loop import LOOPS

INTERVAL = 0.2
MEGABYTE = 1_000_000
LIMIT = 300
# The median of the last quarter may be this much above that of the third and still be called flat.
FLAT_RATIO, FLAT_SLACK = 1.05, 5 * MEGABYTE


@dataclass
class Watched:
    """Bytes, one entry per look: the whole tree, and tarproc's own process.

    ``seen``: process id -> birth mark.
    """

    whole: list[int] = field(default_factory=list)
    parent: list[int] = field(default_factory=list)
    seen: dict[int, str] = field(default_factory=dict)
    processes: int = 0
    streamed: int = 0
    left_behind: int = 0

    def look(self, root: int) -> None:
        """Take one reading."""
        members = tree(root)
        sizes = [resident(process) for process in members]
        self.whole.append(sum(sizes))
        self.parent.append(sizes[0])
        self.processes = max(self.processes, len(members))
        for process in members:
            self.seen.setdefault(process, born(process))

    def growth(self) -> tuple[float, float]:
        """Medians of the third and of the last quarter; in the first two, buffers may fill."""
        half, late = len(self.whole) // 2, len(self.whole) * 3 // 4
        return statistics.median(self.whole[half:late]), statistics.median(self.whole[late:])

    @property
    def flat(self) -> bool:
        """True if the last quarter is not above the third by more than noise."""
        first, second = self.growth()
        return second <= first * FLAT_RATIO + FLAT_SLACK


def _watch(settings: Settings, arguments: Sequence[str], seconds: float) -> Watched:
    """Run tarproc over the endless stream for so long, look at it all the while, then stop it."""
    program = tarkit_environment(settings.work).program("tarproc")
    folder = settings.fresh("memory")
    progress, errors = folder / "progress", folder / "errors"
    watched = Watched()
    source = subprocess.Popen([sys.executable, LOOPS / "endless.py", progress], stdout=subprocess.PIPE)
    if source.stdout is None:
        raise MeasureError("the endless stream has no pipe")
    with errors.open("wb") as complaints:
        process = subprocess.Popen(
            [program, "-p", "8", *arguments, "-", "-o", "-"],
            stdin=source.stdout,
            stdout=subprocess.DEVNULL,
            stderr=complaints,
            cwd=folder,
            env={**os.environ, "TMPDIR": str(folder)},
        )
        source.stdout.close()
        try:
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                time.sleep(INTERVAL)
                if process.poll() is not None:
                    raise MeasureError(f"tarproc ended by itself with {process.returncode}: {_last_words(errors)}")
                watched.look(process.pid)
            watched.streamed = int(progress.read_text() or 0) if progress.exists() else 0
        finally:
            _stop(process)
            _stop(source)
    watched.left_behind = _sweep(watched.seen)
    settings.fresh("memory")
    return watched


def _last_words(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that we started: politely, after ten seconds for certain."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _sweep(seen: dict[int, str]) -> int:
    """How many processes of the tree outlived its root by more than a second; they are ended."""
    time.sleep(1)
    left = [process for process, mark in seen.items() if mark and born(process) == mark]
    for process in left:
        os.kill(process, signal.SIGKILL)
    return len(left)


def _result(what: str, watched: Watched) -> Result:
    first, second = watched.growth()
    peak, parent = max(watched.whole) / MEGABYTE, max(watched.parent) / MEGABYTE
    notes = [
        f"{'flat' if watched.flat else 'NOT FLAT'}: median {first / MEGABYTE:.0f} MB in the third quarter, "
        f"{second / MEGABYTE:.0f} MB in the last",
        f"{watched.streamed:,} samples (about {watched.streamed * 75_000 / 1e6:,.0f} MB) were taken in",
        f"sum over up to {watched.processes} processes, shared pages counted in each",
    ]
    if watched.left_behind:
        notes.append(f"{watched.left_behind} PROCESSES OUTLIVED tarproc")
    say(f"    peak {peak:.0f} MB, {notes[0]}")
    spread = f"tarproc's own process: {parent:.0f}"
    wrong = not watched.flat or watched.left_behind > 0 or watched.streamed == 0
    bar = Bar(LIMIT, at_least=False)
    line = Line(what, f"peak {peak:.0f} MB", "none", peak, " MB", spread, bar, "; ".join(notes), wrong)
    raw: dict[str, object] = {
        "interval_seconds": INTERVAL,
        "tree_bytes": watched.whole,
        "parent_bytes": watched.parent,
        "samples_taken_in": watched.streamed,
        "left_behind": watched.left_behind,
    }
    return Result([line], raw)


def memory(settings: Settings) -> Result:
    """Every sample takes 0.05 s: the stream is faster than the eight slots."""
    seconds = 12 if settings.quick else 30
    watched = _watch(settings, ["-c", "sleep 0.05"], seconds)
    return _result(f"peak memory, tarproc -p 8 -c 'sleep 0.05', endless stream, {seconds} s", watched)


def memory_stalled(settings: Settings) -> Result:
    """The first sample takes forever, all others no time: the output must wait, and the reader with
    it.
    """
    seconds = 12 if settings.quick else 30
    command = 'if [ "$(cat __key__)" = 000000000 ]; then sleep 600; fi'
    watched = _watch(settings, ["-c", command], seconds)
    return _result(f"peak memory, tarproc -p 8, first sample hangs, endless stream, {seconds} s", watched)
