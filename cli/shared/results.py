"""What the verbs of ``tarkit`` print: results to standard output, and what a reader met to stderr."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, OutputClosedError, StreamError, printable
from tarkit.errors import counted as counted

from .program import write_message, write_stdout

if TYPE_CHECKING:
    from tarkit.formats.tally import Tally

_BUFFER = 32 * 1024


class Results:
    """Lines for standard output, gathered unless it is a terminal. A context manager.

    only_messages: the result is elsewhere, in files or in the exit code, so that the work goes on, and ends with its
    own exit code, when standard output is closed.
    """

    def __init__(self, *, only_messages: bool = False) -> None:
        self._only_messages = only_messages
        self._at_once = os.isatty(1)
        self._pending = bytearray()

    def line(self, text: str) -> None:
        """One line; what is not printable in it is escaped."""
        self._pending += escaped(text).encode("utf-8", "backslashreplace") + b"\n"
        if self._at_once or len(self._pending) >= _BUFFER:
            self.flush()

    def now(self, text: str) -> None:
        """One line, that does not wait for others."""
        self.line(text)
        self.flush()

    def flush(self) -> None:
        """Have it all written.

        Raises:
            StreamError: its disk is full; or it is closed, and these are not only messages, nor (OutputClosedError)
            was it the reader who closed it.
        """
        pending, self._pending = bytes(self._pending), bytearray()
        if self._only_messages:
            write_message(1, pending)
        else:
            write_stdout(pending)

    def __enter__(self) -> Results:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.flush()
            return
        # What was found before the error is shown; but why the run ends is not hidden by another error.
        with suppress(OutputClosedError, StreamError):
            self.flush()


def escaped(text: str) -> str:
    """The text with everything escaped that a terminal would obey or can not show."""
    return text if text.isprintable() else "".join(c if c.isprintable() else printable(c) for c in text)


def met(tally: Tally, *, skipped: str = "skipped members") -> list[str]:
    """Phrases on what a reader met, none if there is nothing to tell. skipped: what to call such members."""
    parts = []
    if kinds := skipped_kinds(tally.skipped):
        parts.append(f"{skipped}: {kinds}")
    if lacking := missing_kinds(tally.missing_fields):
        parts.append(lacking)
    if tally.replaced:
        parts.append(f"duplicate fields dropped: {tally.replaced}")
    if tally.damage:
        url, start, end, reason = tally.damage[0]
        parts.append(
            f"damage: {counted(len(tally.damage), 'stretch', 'stretches')}, {tally.lost_bytes} bytes lost, "
            f"the first in {printable(url)} at {start} to {end} ({reason})"
        )
    return parts


def skipped_kinds(skipped: Mapping[str, int]) -> str:
    """Reasons and counts of skipped members. Folders are in most archives and are not reported."""
    return ", ".join(f"{reason} {count}" for reason, count in sorted(skipped.items()) if reason != "folder")


def missing_kinds(missing_fields: Mapping[str, int]) -> str:
    """How many samples lack a field that was asked for; nothing if none does."""
    counts = ", ".join(f"{printable(name)} {count}" for name, count in sorted(missing_fields.items()))
    return f"samples without a field of --fields: {counts}" if counts else ""


def exit_code_of(tally: Tally) -> int:
    """0, or 3 if something that a reader met is missing from the result."""
    return EXIT_SET_ASIDE if tally.lost_anything else EXIT_OK
