"""``tarkit demo``: small shards, and pipelines that run over them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import click

from tarkit.errors import EXIT_FAILED, EXIT_OK, CommandNotRunnableError, StreamError, UsageError, counted

from ..shared.program import say, standard_options
from ..shared.results import Results

_NAME = "tarkit demo"
_MARK = ".tarkit-demo"
"""In a folder that a demo made: the next one may replace its files."""

_SHARDS = 3
_PER_SHARD = 20
_TOTAL = _SHARDS * _PER_SHARD
_ALL = "shard-{000000..000002}.tar"
_FAILING = "000007"

_MAPPER = '''\
def measure(sample):
    """Add how bright the picture is, from 0 to 255."""
    pixels = sample["ppm"][-48 * 48 * 3 :]
    sample["light.txt"] = b"%d" % (sum(pixels) // len(pixels))
    return sample
'''

Check = Callable[[Path, str], "str | None"]
"""Given the folder and what was printed, it returns what is wrong, or None."""


class Step(NamedTuple):
    """One command. title: what it shows. command: as typed to bash. code: the exit code that is right.
    needs: the program without which the step is left out."""

    title: str
    command: str
    check: Check
    code: int = 0
    needs: str = ""


def _has(count: int, *names: str, right: Callable[[dict[str, Any]], object] = lambda sample: "ppm" in sample) -> Check:
    """A check: these shards have so many samples together, and each is right."""

    def check(folder: Path, printed: str) -> str | None:
        from tarkit.samples.read import read_samples

        samples = list(read_samples([str(folder / name) for name in names], split=True))
        good = sum(map(bool, map(right, samples)))
        if (len(samples), good) == (count, count):
            return None
        return f"{', '.join(names)} should have {count} samples; of {len(samples)}, {good} are right"

    return check


def _prints(*wanted: str) -> Check:
    """A check: these texts were printed."""

    def check(folder: Path, printed: str) -> str | None:
        missing = [text for text in wanted if text not in printed]
        return f"{missing[0]!r} should have been printed" if missing else None

    return check


def _sum_is_right(sample: dict[str, Any]) -> bool:
    return bool(sample.get("sha256", b"").split()[:1] == [hashlib.sha256(sample["ppm"]).hexdigest().encode("ascii")])


def _shape_is_upper_case(sample: dict[str, Any]) -> bool:
    return bool(json.loads(sample["json"])["shape"].isupper())


_SHA256 = "sha256sum" if shutil.which("sha256sum") else "shasum -a 256"
_TEST = f'test "$(cat __key__)" != {_FAILING} || {{ echo "I do not like this one"; exit 9; }}'

STEPS = (
    Step("How many samples there are", f"tarkit show --count '{_ALL}'", _prints(f"{_TOTAL}")),
    Step("What is in them", "tarkit show shard-000000.tar -n 3", _prints("000002", "ppm:")),
    Step("They are plain tars", "tar tvf shard-000000.tar | head -n 3", _prints("000000.cls"), needs="tar"),
    Step(
        "A command runs in each sample's folder; look into the first two",
        "cat shard-000000.tar | tarproc -c 'cat __key__; echo; wc -c sample.*' --count 2",
        _prints("000001", "sample.json"),
    ),
    Step(
        "Whatever it leaves as sample.* is the new sample; two run at once",
        f"tarproc -p 2 -c '{_SHA256} < sample.ppm > sample.sha256' {_ALL} -o sums.tar",
        _has(_TOTAL, "sums.tar", right=_sum_is_right),
    ),
    Step(
        "The output does not depend on how many run at once",
        f"tarproc -p 1 -c '{_SHA256} < sample.ppm > sample.sha256' {_ALL} -o again.tar && cmp sums.tar again.tar",
        _has(_TOTAL, "again.tar"),
    ),
    Step(
        "Change a field",
        f"tarproc -p 2 -c 'tr a-z A-Z < sample.json | sed s/SHAPE/shape/ > new; mv new sample.json' {_ALL} -o loud.tar",
        _has(_TOTAL, "loud.tar", right=_shape_is_upper_case),
    ),
    Step(
        "Keep the samples of one class, and cut the result into shards of 8",
        f"tarproc --filter 'grep -qx 1 sample.cls' {_ALL} -o - | "
        "tarkit split - -o 'ones-%06d.tar' --maxcount 8 --force",
        _has(_TOTAL // 3, "ones-000000.tar", "ones-000001.tar", "ones-000002.tar"),
    ),
    Step("Join them again, compressed", "tarkit cat ones-*.tar -o ones.tar.gz", _has(_TOTAL // 3, "ones.tar.gz")),
    Step("A Python function does as well", "cat mapper.py", _prints("def measure")),
    Step(
        "It is loaded once in each of two processes",
        f"tarproc -p 2 --map mapper.py:measure {_ALL} -o measured.tar && tarkit show measured.tar -n 2",
        _has(_TOTAL, "measured.tar", right=lambda sample: "light.txt" in sample),
    ),
    Step(
        "When a sample fails, the others go on, and the exit code is 3",
        f"tarproc -p 2 -c '{_TEST}' {_ALL} -o checked.tar",
        _has(_TOTAL - 1, "checked.tar"),
        code=3,
    ),
    Step(
        "The failed one is kept, with the reason",
        f"tarkit show checked.tar.failed.tar && tar xOf checked.tar.failed.tar {_FAILING}.__error__.txt",
        _prints(_FAILING, "exit code 9", "I do not like this one"),
        needs="tar",
    ),
    Step(
        "Run just that one again, with something better, and put it to the others",
        "tarproc --retry-failed checked.tar.failed.tar -c true -o fixed.tar && "
        "tarkit cat checked.tar fixed.tar -o complete.tar",
        _has(_TOTAL, "complete.tar"),
    ),
    Step(
        "Convert the pictures with ImageMagick",
        f"tarproc -p 2 -c 'convert sample.ppm sample.jpg; rm sample.ppm' {_ALL} -o jpeg.tar",
        _has(_TOTAL, "jpeg.tar", right=lambda sample: "jpg" in sample),
        needs="convert",
    ),
)
"""The tour, in order."""


@click.command("demo")
@click.argument("folder", default="tarkit-demo")
@click.option("--force", is_flag=True, help="Also in a folder that is not empty; files of the same names are replaced.")
@click.option("--keep/--remove", default=True, help="What to do with the folder at the end.  [default: keep]")
@standard_options
def command(folder: str, force: bool, keep: bool, verbose: bool) -> int:
    """Make three small shards and run pipelines over them.

    FOLDER is a new folder, or one that an earlier demo made, ./tarkit-demo by default. Each command is printed as
    one would type it there, then what it prints. Pictures are drawn by code, and the commands are those that every
    machine has; ImageMagick is used if it is there. If a command does not do what it should, the exit code is 1.
    """
    place = Path(folder)
    is_new = not place.exists()
    if not is_new and not place.is_dir():
        raise UsageError(f"{folder} is not a folder")
    if not is_new and any(place.iterdir()) and not force and not (place / _MARK).exists():
        raise UsageError(f"{folder} is not empty; name another folder, or pass --force")
    if not keep and not is_new:
        raise UsageError(f"{folder} was there before, so --remove does not apply to it")
    with Results(only_messages=True) as results:
        path = _path()
        _make(place)
        results.line(f"# {_TOTAL} samples in {_SHARDS} shards are in {folder}")
        results.line(f"$ cd {folder}")
        wrong = [step.command for step in STEPS if not _run(step, place, path, results)]
        results.line("")
        if wrong:
            results.line(f"# {counted(len(wrong), 'command')} had an unexpected result, the first: {wrong[0]}")
        else:
            results.line("# All commands did what they should.")
        if not keep and not wrong:
            shutil.rmtree(place)
    return EXIT_FAILED if wrong else EXIT_OK


def _path() -> str:
    """A PATH on which the programs of this very installation come first; without one of them, the demo ends."""
    # Not resolved: in a virtual environment the interpreter is a link, and the programs are beside that.
    beside = os.path.dirname(os.path.abspath(sys.executable))
    path = os.pathsep.join(part for part in (beside, os.environ.get("PATH", "")) if part)
    for program in ("bash", "tarproc", "tarkit"):
        if shutil.which(program, path=path) is None:
            raise CommandNotRunnableError(f"{program} is neither beside {sys.executable} nor on the path", 127)
    return path


def _make(place: Path) -> None:
    """The shards and the mapper."""
    from tarkit.toolbox.demodata import demo_samples
    from tarkit.writer import ShardWriter

    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / _MARK).touch()
        (place / "mapper.py").write_text(_MAPPER, encoding="utf-8")
    except OSError as error:
        raise StreamError(f"cannot be made: {error.strerror}", url=str(place)) from None
    with ShardWriter(str(place).replace("%", "%%") + "/shard-%06d.tar", _PER_SHARD, encoder=False) as writer:
        for sample in demo_samples(_TOTAL):
            writer.write(sample)


def _run(step: Step, place: Path, path: str, results: Results) -> bool:
    """Run one command and show it; False if it did not do what it should."""
    results.line("")
    results.line(f"# {step.title}")
    if step.needs and shutil.which(step.needs, path=path) is None:
        results.line(f"# (left out: {step.needs} is not installed)")
        return True
    results.line(f"$ {step.command}")
    results.flush()
    done = subprocess.run(
        [shutil.which("bash", path=path) or "bash", "-c", step.command],
        cwd=place,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    for line in done.stdout.splitlines():
        results.line(line)
    if done.returncode != step.code:
        problem: str | None = f"the exit code is {done.returncode}, and should be {step.code}"
    else:
        problem = step.check(place, done.stdout)
    if problem:
        say(_NAME, problem)
    return not problem
