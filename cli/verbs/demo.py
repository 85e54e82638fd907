"""``tarkit demo``: small shards, and pipelines that run over them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click

from tarkit.errors import EXIT_FAILED, EXIT_OK, CommandNotRunnableError, StreamError, UsageError, counted

from ..shared.program import say, verbose_option, version_option
from ..shared.results import Results
from .tour import MAPPER, PER_SHARD, SHARDS, STEPS, TOTAL, Step

_NAME = "tarkit demo"
_MARK = ".tarkit-demo"
"""In a folder that a demo made: the next one may replace its files."""


@click.command("demo")
@click.argument("folder", default="tarkit-demo")
@click.option("--force", is_flag=True, help="Also in a folder that is not empty; files of the same names are replaced.")
@click.option("--keep/--remove", default=True, help="What to do with the folder at the end.  [default: keep]")
@verbose_option
@version_option
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
        results.line(f"# {TOTAL} samples in {SHARDS} shards are in {folder}")
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
        (place / "mapper.py").write_text(MAPPER, encoding="utf-8")
    except OSError as error:
        raise StreamError(f"cannot be made: {error.strerror}", url=str(place)) from None
    with ShardWriter(str(place).replace("%", "%%") + "/shard-%06d.tar", PER_SHARD, encoder=False) as writer:
        for sample in demo_samples(TOTAL):
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
