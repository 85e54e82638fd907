"""Samples as pictures: a contact sheet, and pictures in a terminal."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tarkit.errors import (
    EXIT_NOT_FOUND,
    CommandNotRunnableError,
    OutputClosedError,
    StreamError,
    UsageError,
    counted,
    quoted,
)

from .meter import Meter
from .program import say
from .results import Results

if TYPE_CHECKING:
    from tarkit.samples.sample import Sample

_NAME = "tarkit show"
_PROGRAMS = {"chafa": (), "termvisage": ("--cli",)}
"""Program -> its options."""
_EDGE = 1024
"""Longer edge of a picture for the terminal, in pixels."""
_BROKEN = 20
"""Largest number of broken pictures that are listed."""


def write_sheet(
    samples: Iterable[Sample], output: str, title: str, number: int | None, edge: int, parallel: int, quiet: bool
) -> None:
    """Write a contact sheet, and print what it has and lacks.

    Args:
        output: URL of the page.
        number: largest number of samples; None: as many as a page may have.
        edge: longer edge of its pictures, in pixels.
        parallel: number of processes that decode pictures.

    Raises:
        UsageError: the output does not end with .html, and is not - either.
    """
    from tarkit.names.url import display_name
    from tarkit.steps.contactsheet import MOST_SAMPLES, contact_sheet
    from tarkit.store.publish import open_publish

    if output != "-" and not output.endswith((".html", ".htm")):
        # Otherwise a shard that is the option's value by mistake would be replaced.
        raise UsageError(f"--html {quoted(output)}: the name of a page ends with .html")
    with Meter(_NAME, quiet=quiet) as meter, open_publish(output) as stream:

        def progress(done: int) -> None:
            if meter.is_due():
                meter.show(f"{counted(done, 'sample')} so far", None)

        most = MOST_SAMPLES if number is None else number
        sheet = contact_sheet(samples, title=title, number=most, edge=edge, parallel=parallel, progress=progress)
        stream.write(sheet.page)
    for line in sheet.broken[:_BROKEN]:
        say(_NAME, line)
    if sheet.broken or not quiet:
        size = f"{len(sheet.page) / 1e6:.1f} MB"
        say(_NAME, " ".join([f"{display_name(output)}: {counted(sheet.samples, 'sample')}, {size}.", *sheet.lacks]))


def show_pictures(samples: Iterable[Sample], results: Results) -> None:
    """Show the pictures of samples in the terminal, by a program that is installed.

    Raises:
        CommandNotRunnableError: no such program is installed.
        MissingExtraError: Pillow is not installed.
        StreamError: the program failed.
    """
    from tarkit.extras import library
    from tarkit.steps.thumbnails import is_picture, thumbnail

    library("PIL.Image", "--picture", "images")
    command = next(([path, *options] for name, options in _PROGRAMS.items() if (path := shutil.which(name))), None)
    if command is None:
        hint = "install chafa (apt install chafa, brew install chafa), or termvisage (pip install termvisage)"
        raise CommandNotRunnableError(
            f"--picture needs a program that shows pictures in a terminal: {hint}", EXIT_NOT_FOUND
        )
    for sample in samples:
        results.now(sample["__key__"])
        for field in filter(is_picture, sample):
            try:
                content, note = thumbnail(sample[field], _EDGE)
            except Exception as error:
                results.now(f"  {field}: {error}")
                continue
            results.now(f"  {field}: {note}")
            _run(command, content)


def _run(command: list[str], content: bytes) -> None:
    """Run a command for a JPEG file, on standard output."""
    with tempfile.NamedTemporaryFile(suffix=".jpg") as file:
        file.write(content)
        file.flush()
        # Its input is not that of tarkit, which may be a shard.
        done = subprocess.run([*command, file.name], stdin=subprocess.DEVNULL, check=False)
    if done.returncode == -signal.SIGPIPE:
        raise OutputClosedError
    if done.returncode:
        raise StreamError(f"{command[0]} ended with status {done.returncode}")
