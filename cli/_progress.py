"""What tarproc tells people while it runs, and the books at the end."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tarkit.errors import EXIT_FAILED, TarkitError, UsageError, printable, redact

from ._common import say, write_stdout

if TYPE_CHECKING:
    from tarkit.output import Output
    from tarkit.parallel import Failure
    from tarkit.run import Books
    from tarkit.sample import Tally

_LINE_EVERY = 30.0  # seconds
_STRAY_NOTES = 1
_FAILURE_LINES = 10


class Progress:
    """A progress bar on a terminal, a line now and then elsewhere, and the commands' output.

    A context manager. to_stderr: standard output carries a tar, so commands' output goes to stderr.
    failed_are_kept: failed samples go to a shard, so that not every one needs a line here.
    """

    def __init__(self, name: str, *, quiet: bool, verbose: bool, to_stderr: bool, failed_are_kept: bool) -> None:
        self.name = name
        self.quiet = quiet
        self.verbose = verbose
        self.books: Books | None = None
        self._to_stderr = to_stderr
        self._failed_are_kept = failed_are_kept
        self._failures = 0
        self._stray_notes = 0
        self._next_line = time.monotonic() + _LINE_EVERY
        self._bar: Any = None
        if not quiet and _is_terminal():
            from tqdm import tqdm

            self._bar = tqdm(unit=" samples", file=sys.stderr, leave=False, dynamic_ncols=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    @contextlib.contextmanager
    def _without_bar(self) -> Any:
        if self._bar is not None:
            self._bar.clear()
        yield
        if self._bar is not None:
            self._bar.refresh()

    def say(self, message: str) -> None:
        """One line on stderr."""
        with self._without_bar():
            say(self.name, message)

    def printed(self, key: str, output: Output) -> None:
        """Show what a command printed."""
        if not output.size:
            return
        with self._without_bar():
            output.show(self._write_stderr if self._to_stderr else write_stdout)

    def _write_stderr(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(2, rest) :]

    def failed(self, key: str, failure: Failure, output: Output) -> None:
        """Tell which sample failed, why, and the last thing its command said."""
        self._failures += 1
        if self._failed_are_kept and not self.verbose and self._failures > _FAILURE_LINES:
            if self._failures == _FAILURE_LINES + 1:
                self.say("further failures are not listed (-v lists them all)")
            return
        lines = output.tail(400).decode("utf-8", "replace").strip().splitlines()
        last = f": {printable(lines[-1].strip())}" if lines and failure.kind != "exception" else ""
        self.say(f"{printable(key)}: {failure.message}{last}")

    def stray(self, key: str, names: list[str]) -> None:
        """Tell, once, of files that do not become part of the output."""
        self._stray_notes += 1
        if self._stray_notes <= _STRAY_NOTES or self.verbose:
            shown = ", ".join(printable(name) for name in names[:3])
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            self.say(
                f"{printable(key)}: left in its folder, but no part of the output: {shown}{more} "
                "(only sample.* are; -m or --subdirs make samples of the others)"
            )

    def advanced(self, books: Books) -> None:
        """Show how far it is."""
        self.books = books
        if self._bar is not None:
            self._bar.update(books.read - self._bar.n)
        elif not self.quiet and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + _LINE_EVERY
            say(self.name, f"{books.read} samples so far, {books.failed} failed")


def _is_terminal() -> bool:
    try:
        return sys.stderr.isatty()
    except (AttributeError, ValueError):
        return False


def books_line(books: Books, tally: Tally, set_aside: str | None) -> str:
    """The books in one line: in + added = out + filtered + failed."""
    parts = [f"in {books.read}"]
    if books.added:
        parts[0] += f" + added {books.added}"
    parts[0] += f" = out {books.out} + filtered {books.filtered} + failed {books.failed}"
    if books.ignored:
        parts.append(f"exit codes ignored: {books.ignored}")
    if set_aside is not None:
        parts.append(f"failed samples are in {set_aside}")
    if tally.skipped:
        kinds = ", ".join(f"{reason} {count}" for reason, count in sorted(tally.skipped.items()))
        parts.append(f"skipped members: {kinds}")
    if tally.replaced:
        parts.append(f"duplicate fields dropped: {tally.replaced}")
    if tally.damage:
        url, start, end, reason = tally.damage[0]
        parts.append(
            f"damage: {len(tally.damage)} stretches, {tally.lost_bytes} bytes lost, "
            f"the first in {printable(url)} at {start} to {end} ({reason})"
        )
    if books.stray_files:
        parts.append(f"files that belong to no sample: {books.stray_files}")
    return "; ".join(parts)


def write_report(
    path: str,
    *,
    books: Books | None,
    tally: Tally,
    inputs: Sequence[str],
    output: str | None,
    seconds: float,
    error: BaseException | None,
) -> None:
    """Write the books as a JSON document."""
    from tarkit import run, streams

    books = books or run.Books()
    lost = run.lost_anything(books, tally)
    code = (error.exit_code if isinstance(error, TarkitError) else EXIT_FAILED) if error else 3 if lost else 0
    document = {
        "inputs": [redact(each) for each in inputs],
        "output": None if output is None else redact(output),
        "published": error is None and output is not None,
        "exit_code": code,
        "error": str(error) if error else None,
        "seconds": round(seconds, 3),
        "samples": {
            "in": books.read,
            "added": books.added,
            "out": books.out,
            "filtered": books.filtered,
            "failed": books.failed,
            "ignored": books.ignored,
        },
        "failures": books.failures,
        "stray_files": books.stray_files,
        "skipped_members": tally.skipped,
        "duplicate_fields_dropped": tally.replaced,
        "repeated_keys": tally.reopened,
        "damage": [
            {"url": url, "start": start, "end": end, "reason": reason} for url, start, end, reason in tally.damage
        ],
    }
    if path == "-":
        raise UsageError("--report - would mix with the tar or the commands' output; name a file")
    with streams.open_publish(path, compression=None) as file:
        file.write(json.dumps(document, indent=2).encode("utf-8") + b"\n")
