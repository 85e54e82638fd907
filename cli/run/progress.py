"""What tarproc tells people while it runs, and the books at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, LINE, UsageError, printable, shortened
from tarkit.redaction import redact, redact_text

from ..shared.meter import Meter
from ..shared.program import exit_code, write_message, write_stdout
from ..shared.results import met

if TYPE_CHECKING:
    from tarkit.formats.tally import Tally
    from tarkit.mapping.output import Printed
    from tarkit.mapping.parallel import Failure
    from tarkit.runs.counts import Books
    from tarkit.store.publish import PublishStream

_STRAY_NOTES = 1
_FAILURE_LINES = 10


class Progress:
    """A progress bar on a terminal, a line now and then elsewhere, and the commands' output.

    A context manager. to_stderr: standard output carries a tar, so all that commands print goes to stderr.
    only_prints: what commands print is all that comes of the run, so that it ends with the reader of standard output.
    failed_are_kept: failed samples go to a shard, so that not every one needs a line here.
    """

    def __init__(
        self, name: str, *, quiet: bool, verbose: bool, to_stderr: bool, only_prints: bool, failed_are_kept: bool
    ) -> None:
        self.name = name
        self.quiet = quiet
        self.verbose = verbose
        self.books: Books | None = None
        self._to_stderr = to_stderr
        self._only_prints = only_prints
        self._closed: set[int] = set()
        self._failed_are_kept = failed_are_kept
        self._failures = 0
        self._stray_notes = 0
        self._meter = Meter(name, quiet=quiet)
        self._tally: Tally | None = None
        self._shards: int | None = None
        self._most: int | None = None

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take the bar away."""
        self._meter.close()

    def follow(self, tally: Tally, shards: int | None, most: int | None) -> None:
        """Show how much of the run is done: of so many shards that ``tally`` is of, or of ``most`` samples."""
        self._tally, self._shards, self._most = tally, shards, most

    def say(self, message: str) -> None:
        """One line on stderr."""
        self._meter.say(message)

    def printed(self, key: str, printed: Printed) -> None:
        """Show what a command printed."""
        if not printed.size:
            return
        with self._meter.hidden():
            printed.stdout.show(self._write_out)
            printed.stderr.show(self._write_err)

    def _write_out(self, data: bytes) -> None:
        if self._only_prints:
            write_stdout(data)
        else:
            self._write_message(2 if self._to_stderr else 1, data)

    def _write_err(self, data: bytes) -> None:
        self._write_message(2, data)

    def _write_message(self, fd: int, data: bytes) -> None:
        if fd not in self._closed and not write_message(fd, data):
            self._closed.add(fd)

    def failed(self, key: str, failure: Failure, printed: Printed) -> None:
        """Tell which sample failed, why, and the last line that its command printed."""
        self._failures += 1
        if self._failed_are_kept and not self.verbose and self._failures > _FAILURE_LINES:
            if self._failures == _FAILURE_LINES + 1:
                self.say("further failures are not listed (-v lists them all)")
            return
        line = "" if failure.kind == "exception" else printed.last_line()
        last = f": {printable(line)}" if line else ""
        self.say(f"{printable(key)}: {shortened(failure.message, LINE // 2)}{last}")

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
        self.show(books.read, books.failed)

    def show(self, read: int, failed: int) -> None:
        """So many samples of the whole run are accounted for."""
        if self._meter.is_due():
            self._meter.show(self.text(read, failed), self.part(read))

    def text(self, read: int, failed: int) -> str:
        """What is shown of them."""
        return f"{read} samples so far, {failed} failed"

    def part(self, read: int) -> float | None:
        """How much of the run is done, from 0.0 to 1.0; None if that is not known."""
        known = []
        if self._most:
            known.append(read / self._most)
        if self._tally is not None and self._shards:
            known.append(self._tally.shards_read() / self._shards)
        return max(known, default=None)


def books_line(books: Books, tally: Tally, set_aside: str | None) -> str:
    """The books in one line: in + added = out + filtered + failed."""
    parts = [f"in {books.read}"]
    if books.added:
        parts[0] += f" + added {books.added}"
    parts[0] += f" = out {books.out} + filtered {books.filtered} + failed {books.failed}"
    if books.ignored:
        parts.append(f"exit codes ignored: {books.ignored}")
    if set_aside is not None:
        parts.append(f"failed samples are in {redact(set_aside)}")
    parts += met(tally)
    if books.stray_files:
        parts.append(f"files that belong to no sample: {books.stray_files}")
    return "; ".join(parts)


@contextlib.contextmanager
def open_report(path: str | None) -> Iterator[PublishStream | None]:
    """The file for the report, opened before the run, since after it is too late for complaints.

    Raises:
        UsageError: it is standard output. StreamError: it can not be written.
    """
    if path is None:
        yield None
        return
    if path == "-":
        raise UsageError("--report - would mix with the tar or the commands' output; name a file")
    from tarkit.store.publish import open_publish

    report = open_publish(path, compression=None)
    try:
        yield report
    finally:
        # After commit, nothing.
        report.discard()


def report_document(
    *,
    books: Books | None,
    tally: Tally,
    inputs: Sequence[str],
    output: str | None,
    seconds: float,
    error: BaseException | None,
) -> bytes:
    """The books as a JSON document."""
    import json

    from tarkit.runs.counts import Books, lost_anything
    from tarkit.store.url import display_name

    books = books or Books()
    code = EXIT_SET_ASIDE if lost_anything(books, tally) else EXIT_OK
    document = {
        "inputs": [display_name(each) for each in inputs],
        "output": None if output is None else display_name(output),
        "published": error is None and output is not None,
        "exit_code": code if error is None else exit_code(error),
        "error": None if error is None else redact_text(str(error)) or type(error).__name__,
        "seconds": round(seconds, 3),
        "samples": books.as_dict(),
        "failures": books.failures,
        "stray_files": books.stray_files,
        "skipped_members": tally.skipped,
        "missing_fields": tally.missing_fields,
        "duplicate_fields_dropped": tally.replaced,
        "repeated_keys": tally.reopened,
        "damage": [
            {"url": url, "start": start, "end": end, "reason": reason} for url, start, end, reason in tally.damage
        ],
    }
    return json.dumps(document, indent=2).encode("utf-8") + b"\n"
