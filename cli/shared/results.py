"""Output of the verbs of ``tarkit``: results on stdout, findings of readers on stderr."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, OutputClosedError, StreamError, escaped, printable

from .program import write_message, write_stdout

if TYPE_CHECKING:
    from tarkit.formats.tally import Tally
    from tarkit.runs.counts import Counts
    from tarkit.runs.work import Work

_BUFFER = 32 * 1024


class Results:
    """Lines for standard output, buffered unless it is a terminal.

    A context manager.

    Args:
        only_messages: True if the result is in files or in the exit code, so the work continues if
            standard output is closed, and ends with its own exit code.
    """

    def __init__(self, *, only_messages: bool = False) -> None:
        self.only_messages = only_messages
        self._at_once = os.isatty(1)
        self._pending = bytearray()

    def line(self, text: str) -> None:
        """Print one line, with unprintable characters escaped."""
        self._pending += escaped(text).encode("utf-8", "backslashreplace") + b"\n"
        if self._at_once or len(self._pending) >= _BUFFER:
            self.flush()

    def now(self, text: str) -> None:
        """Print one line at once."""
        self.line(text)
        self.flush()

    def flush(self) -> None:
        """Flush standard output.

        Raises:
            OutputClosedError: results were written, and their reader closed standard output.
            StreamError: the disk is full, or results were written and standard output is closed.
        """
        pending, self._pending = bytes(self._pending), bytearray()
        if self.only_messages:
            write_message(1, pending)
        else:
            write_stdout(pending)

    def __enter__(self) -> Results:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()
            return
        # What was found before the error is shown; but why the run ends is not hidden by another
        # error.
        with suppress(OutputClosedError, StreamError):
            self.flush()


def counts_line(counts: Counts, work: Work) -> str:
    """Return the line of counts: samples and shards of a run, and counts of its readers."""
    nothing = work.output is None and work.outdir is None
    unwritten = ["nothing was written, as there is neither -o nor -O"] if nothing else []
    return "; ".join([counts.line(of_shards=work.outdir is not None), *unwritten])


def missing_line(counts: Counts) -> str | None:
    """Return a line with the number of missing inputs and examples, or None.

    None if at most one is missing, since that was printed before.
    """
    if counts.shards_missing < 2:
        return None
    names = ", ".join(printable(name) for name in counts.missing_names)
    if counts.shards_missing <= len(counts.missing_names):
        return f"{counts.shards_missing} shards are missing: {names}"
    return f"{counts.shards_missing} shards are missing, for example {names}"


def counted_names(what: str, names: Sequence[str]) -> list[str]:
    """Return a phrase with the number of the names and the first of them, or an empty list."""
    return [f"{what}: {len(names)}, the first {printable(names[0])}"] if names else []


def exit_code_of(tally: Tally) -> int:
    """Return 0, or 3 if the result lacks something that a reader counted."""
    return EXIT_SET_ASIDE if tally.lost_anything else EXIT_OK
