"""What ``tarkit put`` and ``tarkit get`` share: their options, the copying, the summary."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tarkit.errors import EXIT_FAILED, EXIT_OK, UsageError
from tarkit.transport.sources import display_name

from ._common import say

if TYPE_CHECKING:
    from tarkit.transfer import Done

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
        click.option("-q", "--quiet", is_flag=True, help="No summary; only what failed."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def is_local(url: str) -> bool:
    """Whether it is a path or a file:// URL; a stream is neither local nor remote.

    Raises:
        UsageError: it is a stream.
    """
    from tarkit.transport.sources import local_path

    if url == "-" or url.startswith("pipe:"):
        raise UsageError(f"{display_name(url)} is a stream; tarkit cat --raw and shell redirection copy streams")
    return local_path(url) is not None


def run_transfer(program: str, specs: list[str], target: str, parallel: int, overwrite: bool, quiet: bool) -> int:
    """Copy, say what failed and how much was copied; the exit code."""
    from tarkit.shards import expand
    from tarkit.transfer import plan, transfer

    started = time.monotonic()
    files = size = kept = 0
    failed: list[Done] = []
    sources = list(expand(specs, allow_pipe=False))
    with closing(transfer(plan(sources, target), parallel=parallel, overwrite=overwrite)) as copies:
        for done in copies:
            if done.error is not None:
                failed.append(done)
                say(program, str(done.error))
                continue
            files += not done.kept
            size += done.size
            kept += done.kept
    if not quiet or failed:
        parts = [f"{files} {'file' if files == 1 else 'files'}, {size} bytes in {time.monotonic() - started:.1f} s"]
        parts += [f"{kept} kept"] if kept else []
        parts += [f"{len(failed)} failed"] if failed else []
        say(program, ", ".join(parts))
    if not files + kept + len(failed):
        say(program, "there was nothing to copy")
    return _exit_code(failed)


def _exit_code(failed: list[Done]) -> int:
    codes = {done.error.exit_code for done in failed if done.error is not None}
    if not codes:
        return EXIT_OK
    return codes.pop() if len(codes) == 1 else EXIT_FAILED
