"""Options and output shared by ``tarkit put`` and ``tarkit get``."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

import click

from tarkit.errors import UsageError, counted, exit_code_of_all
from tarkit.names.url import display_name

from .meter import Meter
from .program import json_option, say, standard_options
from .results import Results

if TYPE_CHECKING:
    from tarkit.store.transfer import CopyOutcome, FileCopy

_MOST_FILES = 10_000
"""Largest number of files that are listed before the first is copied, to know the total."""

_HELP = """{summary}

Each file is published whole, or not at all. A file that fails does not stop the others; failed files are
listed, and the exit code is not 0. If TARGET ends with /, every {source} is copied into it under its own
name. If not, a file is copied into TARGET if it is a folder, else to TARGET itself, and the contents of
a source folder are copied into TARGET; several sources need a folder.

The length of each copy is compared with the length that the store reports. Folders are copied with
everything below them; empty folders are not created. {source} may have braces, and * ? [ patterns;
@LIST is a list of sources.
"""


def transfer_command(
    verb: str, source: str, summary: str, epilog: str, check: Callable[[Sequence[str], str], None]
) -> click.Command:
    """Return the command of a verb that copies.

    Args:
        source: name of the source in the usage line.
        check: raises an error for sources and targets that are not allowed.
    """

    @click.command(verb, help=_HELP.format(summary=summary, source=source), epilog=epilog)
    @click.argument("sources", metavar=f"{source}...", nargs=-1, required=True)
    @click.argument("target", metavar="TARGET")
    @click.option(
        "-p",
        "--parallel",
        type=click.IntRange(1),
        default=4,
        show_default=True,
        help="Number of files to copy at once.",
    )
    @click.option(
        "--overwrite/--no-clobber",
        default=True,
        help="Replace existing files (the default), or keep them; a kept file of a different length is a failure.",
    )
    @click.option("-q", "--quiet", is_flag=True, help="Print only failures: no progress, no summary.")
    @click.option("--dry-run", is_flag=True, help="Print what would be copied where, and copy nothing.")
    @json_option
    @standard_options
    def command(
        sources: tuple[str, ...], target: str, parallel: int, overwrite: bool, quiet: bool, dry_run: bool,
        as_json: bool, verbose: bool,
    ) -> int:  # fmt: skip
        check(sources, target)
        from tarkit.specs.shardspec import expand
        from tarkit.store.transfer import copy_all, plan_copies

        jobs = plan_copies(expand(sources, allow_pipe=False, manifests=False), target)
        first = list(itertools.islice(jobs, _MOST_FILES + 1))
        options: Any = {"parallel": parallel, "overwrite": overwrite, "dry_run": dry_run}
        with Meter(f"tarkit {verb}", quiet=quiet) as meter, Results(only_messages=True) as results:
            so_far = _SoFar(meter, first if len(first) <= _MOST_FILES else [])
            jobs = itertools.chain(first, jobs)
            with closing(copy_all(jobs, under_way=so_far.under_way, **options)) as copies:
                for done in copies:
                    so_far.add(done)
                    if as_json or (dry_run and done.error is None):
                        results.line(_shown(done, as_json, dry_run))
        so_far.conclude(f"tarkit {verb}", quiet, dry_run)
        return exit_code_of_all(so_far.codes)

    return command


def is_local(url: str) -> bool:
    """Return True if the argument is a path or a file:// URL.

    A stream, which is neither local nor remote, is a usage error.
    """
    from tarkit.names.url import local_path

    if url == "-" or url.startswith("pipe:"):
        raise UsageError(f"{display_name(url)} is a stream; tarkit cat --raw and shell redirection copy streams")
    return local_path(url) is not None


def _shown(done: CopyOutcome, as_json: bool, dry_run: bool) -> str:
    """Return the line of one file on standard output."""
    source, target = display_name(done.job.source.url), display_name(done.job.target)
    state = "failed" if done.error is not None else "kept" if done.kept else "not copied" if dry_run else "copied"
    if not as_json:
        return f"{source} -> {target}{' (kept)' if done.kept else ''}"
    error = None if done.error is None else str(done.error)
    return json.dumps({"source": source, "target": target, "size": done.size, "state": state, "error": error})


class _SoFar:
    """Results of the copies so far.

    Args:
        jobs: all copies, if they are known.
    """

    def __init__(self, meter: Meter, jobs: Sequence[FileCopy]) -> None:
        self.codes: set[int] = set()
        self._files = self._size = self._kept = self._failed = self._done = 0
        self._begin = time.monotonic()
        self._meter = meter
        self._lock = threading.Lock()
        self._of = f" of {len(jobs)}" if jobs else ""
        sizes = [job.source.size for job in jobs if job.problem is None]
        self._total = 0 if None in sizes else sum(size or 0 for size in sizes)

    def under_way(self, count: int) -> None:
        """Count bytes of a file that is being copied; called from threads."""
        with self._lock:
            self._done += count
        self._show()

    def add(self, done: CopyOutcome) -> None:
        """Count one file that was copied or kept, or that failed."""
        with self._lock:
            if done.job.problem is None and done.job.source.size is not None:
                # Nothing is left to do of what was kept, or has failed.
                self._done += done.job.source.size - done.size
            self._failed += done.error is not None
            self._kept += done.error is None and done.kept
            self._files += done.error is None and not done.kept
            self._size += done.size if done.error is None else 0
        if done.error is not None:
            self.codes.add(done.error.exit_code)
            self._meter.say(str(done.error))
        self._show()

    def _show(self) -> None:
        if self._meter.is_due():
            number = self._files + self._kept + self._failed
            part = self._done / self._total if self._total else None
            self._meter.show(f"{number}{self._of} files so far, {self._done} bytes", part)

    def conclude(self, name: str, quiet: bool, dry_run: bool) -> None:
        """Print the results in one line."""
        if not quiet or self._failed:
            seconds = time.monotonic() - self._begin
            took = "would be copied" if dry_run else f"in {seconds:.1f} s"
            parts = [f"{counted(self._files, 'file')}, {self._size} bytes {took}"]
            parts += [f"{self._kept} kept"] if self._kept else []
            parts += [f"{self._failed} failed"] if self._failed else []
            say(name, ", ".join(parts))
        if not self._files + self._kept + self._failed:
            say(name, "there was nothing to copy")
