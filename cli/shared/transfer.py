"""What ``tarkit put`` and ``tarkit get`` share: their options, the copying, the summary."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tarkit.errors import EXIT_FAILED, EXIT_OK, UsageError, counted
from tarkit.store.url import display_name

from .meter import Meter
from .program import say

if TYPE_CHECKING:
    from tarkit.store.transfer import CopyOutcome, FileCopy

_MOST_FILES = 10_000
"""So many files are looked up before the first is copied, to know how much there is to do."""

F = TypeVar("F", bound=Callable[..., Any])


def transfer_options(function: F) -> F:
    """-p, --overwrite and --no-clobber, -q."""
    options = (
        click.option("-p", "--parallel", type=click.IntRange(1), default=4, show_default=True, help="Files at a time."),
        click.option(
            "--overwrite/--no-clobber",
            default=True,
            help="Replace what is there (the default), or keep it; what is kept with another length is a failure.",
        ),
        click.option("-q", "--quiet", is_flag=True, help="No progress, no summary; only what failed."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def is_local(url: str) -> bool:
    """Whether it is a path or a file:// URL; a stream is neither local nor remote.

    Raises:
        UsageError: it is a stream.
    """
    from tarkit.store.url import local_path

    if url == "-" or url.startswith("pipe:"):
        raise UsageError(f"{display_name(url)} is a stream; tarkit cat --raw and shell redirection copy streams")
    return local_path(url) is not None


def run_transfer(program: str, specs: list[str], target: str, parallel: int, overwrite: bool, quiet: bool) -> int:
    """Copy, say what failed and how much was copied; the exit code."""
    from tarkit.specs.shardspec import expand
    from tarkit.store.transfer import copy_all, plan_copies

    started = time.monotonic()
    jobs = plan_copies(expand(specs, allow_pipe=False), target)
    first = list(itertools.islice(jobs, _MOST_FILES + 1))
    with Meter(program, quiet=quiet) as meter:
        so_far = _SoFar(meter, first if len(first) <= _MOST_FILES else [])
        copies = copy_all(
            itertools.chain(first, jobs), parallel=parallel, overwrite=overwrite, under_way=so_far.under_way
        )
        with closing(copies):
            for done in copies:
                so_far.add(done)
    if not quiet or so_far.failed:
        say(program, so_far.summary(time.monotonic() - started))
    if not so_far.files + so_far.kept + len(so_far.failed):
        say(program, "there was nothing to copy")
    return _exit_code(so_far.failed)


class _SoFar:
    """What became of the files so far. jobs: all of them, where that is known."""

    def __init__(self, meter: Meter, jobs: Sequence[FileCopy]) -> None:
        self.files = self.size = self.kept = 0
        self.failed: list[CopyOutcome] = []
        self._meter = meter
        self._lock = threading.Lock()
        self._number = len(jobs)
        sizes = [job.source.size for job in jobs if job.problem is None]
        self._total = 0 if None in sizes else sum(size or 0 for size in sizes)
        self._done = 0

    def under_way(self, count: int) -> None:
        """So many more bytes of a file that is being copied; called from threads."""
        with self._lock:
            self._done += count
        self._show()

    def add(self, done: CopyOutcome) -> None:
        """One file is copied, kept, or has failed."""
        with self._lock:
            if done.job.problem is None and done.job.source.size is not None:
                # Nothing is left to do of what was kept, or has failed.
                self._done += done.job.source.size - done.size
            if done.error is not None:
                self.failed.append(done)
            else:
                self.files += not done.kept
                self.kept += done.kept
                self.size += done.size
        if done.error is not None:
            self._meter.say(str(done.error))
        self._show()

    def _show(self) -> None:
        if not self._meter.is_due():
            return
        number = self.files + self.kept + len(self.failed)
        of = f" of {self._number}" if self._number else ""
        part = self._done / self._total if self._total else None
        self._meter.show(f"{number}{of} files so far, {self._done} bytes", part)

    def summary(self, seconds: float) -> str:
        """All of it in one line."""
        parts = [f"{counted(self.files, 'file')}, {self.size} bytes in {seconds:.1f} s"]
        parts += [f"{self.kept} kept"] if self.kept else []
        parts += [f"{len(self.failed)} failed"] if self.failed else []
        return ", ".join(parts)


def _exit_code(failed: list[CopyOutcome]) -> int:
    codes = {done.error.exit_code for done in failed if done.error is not None}
    if not codes:
        return EXIT_OK
    return codes.pop() if len(codes) == 1 else EXIT_FAILED
