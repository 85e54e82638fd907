"""The task of the original notebook: photos from JPEG to PPM with ImageMagick, two at a time."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from data import Shard, extract, photo_shard
from environments import (
    Settings,
    call,
    old_tarproc_environment,
    real_convert,
    settle,
    system_program,
    tarkit_environment,
)
from rounds import Bar, Evidence, Result, Side, Trial, compare, raw_trials, take_turns

from measures.archive import pictures_in_folder, pictures_in_tar

COMMAND = "convert sample.jpg sample.ppm; rm sample.jpg"
BY_HAND = (
    "set -e -o pipefail; mkdir by-hand; tar xf {shard} -C by-hand; cd by-hand; "
    "ls | sed -n 's/[.]jpg$//p' | xargs -P2 -I% sh -c 'convert %.jpg %.ppm; rm %.jpg'; tar cf ../out.tar *"
)


@dataclass(frozen=True)
class Task:
    """What all sides share: the shard, where ``convert`` is, the settings."""

    settings: Settings
    shard: Shard
    programs: Path

    def clocked(
        self,
        folder: Path,
        command: Sequence[str | Path],
        stdin: str | None = None,
        temporary: Path | None = None,
    ) -> float:
        """Seconds of the whole command.

        Temporary files are on the disk of the work folder, unless said otherwise.
        """
        temporary = temporary or folder / "temporary"
        temporary.mkdir(exist_ok=True)
        path = f"{self.programs}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        variables: Mapping[str, str] = {"PATH": path, "TMPDIR": str(temporary)}
        settle()
        begin = time.perf_counter()
        call(command, folder=folder, variables=variables, stdin=stdin)
        return time.perf_counter() - begin


def _from_tar(
    task: Task, name: str, program: Sequence[str | Path], temporary: Path | None = None
) -> Callable[[int], Trial]:
    """A tarproc: the shard in, a shard out."""
    words = [*program, "-p", "2", "-c", COMMAND, task.shard.path, "-o", "out.tar"]
    return _shard_to_shard(task, name, words, temporary)


def _by_hand(task: Task, name: str, end: str) -> Callable[[int], Trial]:
    """The same work in a shell, with the fields of all samples in one folder."""
    return _shard_to_shard(task, name, ["bash", "-c", BY_HAND.format(shard=shlex.quote(str(task.shard.path))) + end])


def _shard_to_shard(
    task: Task, name: str, command: Sequence[str | Path], temporary: Path | None = None
) -> Callable[[int], Trial]:
    def run(_number: int) -> Trial:
        folder = task.settings.fresh(name)
        seconds = task.clocked(folder, command, temporary=temporary)
        evidence = pictures_in_tar(folder / "out.tar")
        task.settings.fresh(name)
        return Trial(seconds, evidence)

    return run


def _from_files(
    task: Task, name: str, program: Sequence[str | Path], words: Callable[[list[str]], str]
) -> Callable[[int], Trial]:
    """A program that is given work on files which were unpacked before the clock starts."""

    def run(_number: int) -> Trial:
        folder = task.settings.fresh(name)
        keys = extract(task.shard.path, folder)
        seconds = task.clocked(folder, program, stdin=words(keys))
        evidence: Evidence = pictures_in_folder(folder)
        task.settings.fresh(name)
        return Trial(seconds, evidence)

    return run


def _sides(task: Task) -> list[Side]:
    work = task.settings.work
    ours = tarkit_environment(work).program("tarproc")
    old_environment = old_tarproc_environment(work)
    # Started through its interpreter, since pip does not rewrite the first line of an old sdist's
    # script everywhere.
    old = [old_environment.python, old_environment.program("tarproc")]
    xargs: list[str | Path] = [system_program("xargs", "findutils"), "-P2", "-n2", "convert"]
    two = "convert {}.jpg {}.ppm; rm {}.jpg"
    parallel: list[str | Path] = [system_program("parallel", "parallel"), "-j2", two]
    return [
        Side("tarproc -p 2", _from_tar(task, "convert-tarproc", [ours])),
        Side(
            "xargs -P2 convert",
            _from_files(task, "convert-xargs", xargs, lambda keys: "".join(f"{k}.jpg {k}.ppm\n" for k in keys)),
        ),
        Side(
            "GNU parallel -j2",
            _from_files(task, "convert-parallel", parallel, lambda keys: "".join(f"{k}\n" for k in keys)),
        ),
        Side("tarproc 0.0.6 -p 2", _from_tar(task, "convert-old", old)),
    ]


def convert_photos(settings: Settings) -> Result:
    """Whole processes, start to end; the output of each is checked picture by picture."""
    shard = photo_shard(settings, 100 if settings.quick else 1000)
    task = Task(settings, shard, real_convert(settings.work))
    sides = _sides(task)
    trials = take_turns(sides, settings.repeats)
    bars = [
        (sides[1], Bar(1.25, at_least=False), "xargs: bare convert on unpacked files; no shell, no rm, no tar"),
        (sides[2], Bar(0.9, at_least=False), "GNU parallel: the same two commands on unpacked files; no tar"),
        (
            sides[3],
            Bar(0.5, at_least=False),
            "tarproc 0.0.6 runs with one corrected line: the misplaced regex flag (?i) in tarproclib/gopen.py",
        ),
    ]
    lines = [
        compare(
            f"convert {shard.samples:,} photos jpg -> ppm, 2 at a time",
            trials,
            sides[0].name,
            peer.name,
            bar,
            agree=("samples", "ppm_bytes", "checksum"),
            per_second=(shard.samples, "photos"),
            note=note,
        )
        for peer, bar, note in bars
    ]
    return Result(lines, raw_trials(trials))


def convert_by_hand(settings: Settings) -> Result:
    """The same from shard to shard, against what people type instead.

    Also with the scratch folder in memory.
    """
    shard = photo_shard(settings, 100 if settings.quick else 1000)
    task = Task(settings, shard, real_convert(settings.work))
    ours = [tarkit_environment(settings.work).program("tarproc")]
    memory = Path("/dev/shm")
    sides = [
        Side("tarproc -p 2", _from_tar(task, "convert-tarproc", ours)),
        Side("tar x, xargs -P2 sh -c, tar c", _by_hand(task, "convert-by-hand", "")),
        Side("the same, then rm -r and sync", _by_hand(task, "convert-clean", "; cd ..; rm -r by-hand; sync out.tar")),
        Side("tarproc -p 2, TMPDIR in memory", _from_tar(task, "convert-memory", ours, memory)),
    ]
    trials = take_turns(sides, settings.repeats)
    what = f"convert {shard.samples:,} photos jpg -> ppm from shard to shard, 2 at a time"
    pairs = [
        (0, 1, "by hand: nothing is removed or flushed to the disk, and a failure is not noticed for its sample"),
        (0, 2, "by hand, with what tarproc does too: the folder is removed, the output is on the disk"),
        (3, 1, "the scratch folder in memory (tmpfs)"),
    ]
    lines = [
        compare(
            what,
            trials,
            sides[mine].name,
            sides[other].name,
            Bar(1.1, at_least=False),
            agree=("samples", "ppm_bytes", "checksum"),
            per_second=(shard.samples, "photos"),
            note=note,
        )
        for mine, other, note in pairs
    ]
    return Result(lines, raw_trials(trials))
