"""Progress of a run of tarproc, and its report at the end."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from tarkit.errors import UsageError, escaped, printable
from tarkit.mapping.output import Printed
from tarkit.mapping.parallel import Failure
from tarkit.names.outputnames import FAILED_SUFFIX, failed_samples_url
from tarkit.names.redaction import redact_text
from tarkit.names.url import display_name, join
from tarkit.runs.counts import Counts
from tarkit.runs.progress import ProgressReporter
from tarkit.runs.work import Work
from tarkit.specs.outputcheck import check_other_than
from tarkit.store.publish import PublishStream, open_publish

from .shared.meter import Meter
from .shared.program import exit_code, write_message, write_stdout

if TYPE_CHECKING:
    from tarkit.runs.donerecord import DoneRecord

_STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_STRAY_NOTES = 1
_STRAY_NAMES = 5
_FAILURE_LINES = 10
_ONE_LINE = 200
"""Largest number of characters of a command's output that are shown in the line of its failure."""


class RunDisplay(ProgressReporter):
    """A progress bar on a terminal, periodic lines otherwise, and the commands' output."""

    def __init__(self, name: str, work: Work) -> None:
        super().__init__(work)
        self._meter = Meter(name, quiet=work.quiet)
        # Standard output carries a tar, so all that commands print goes to stderr.
        self._to_stderr = work.output in _STANDARD_OUTPUT
        # On one terminal, or in one log, a line of either is seen beside the reason that quotes it.
        self._in_one_place = self._to_stderr or _is_one_file(1, 2)
        # What commands print is all that comes of the run, so that it ends with the reader of
        # standard output.
        self._only_prints = work.output is None and work.outdir is None
        self._closed: set[int] = set()
        self._failed_are_kept = False
        self._failures = self._strays = 0
        self._hidden = False

    def close(self) -> None:
        """Remove the progress bar."""
        self._meter.close()

    def say(self, message: str) -> None:
        """Print one line on stderr."""
        self._meter.say(message)

    def started(self, counts: Counts, shards: int | None, *, failed_are_kept: bool) -> None:
        super().started(counts, shards, failed_are_kept=failed_are_kept)
        self._failed_are_kept = failed_are_kept

    def printed(self, key: str, printed: Printed) -> None:
        if printed.size:
            with self._meter.hidden():
                to_stdout = partial(self._write_message, 2 if self._to_stderr else 1)
                if not (self._hidden and self._in_one_place):
                    printed.stdout.show(write_stdout if self._only_prints else to_stdout)
                if not self._hidden:
                    printed.stderr.show(partial(self._write_message, 2))

    def _write_message(self, fd: int, data: bytes) -> None:
        if fd not in self._closed and not write_message(fd, data):
            self._closed.add(fd)

    def failed(self, key: str, failure: Failure, printed: Printed) -> None:
        """Print a failed sample's key, the reason, and the last line of its command's output."""
        if self._work.errors == "abort":
            # The error that ends the run says it all.
            return
        self._failures += 1
        # In a shard they are at hand, so that not every one needs a line here.
        if self._failed_are_kept and not self._work.verbose and self._failures > _FAILURE_LINES:
            if self._failures == _FAILURE_LINES + 1:
                self.say(
                    f"further failures are not shown (-v shows them); {self._kept()} gets all, with their reasons, "
                    "unless nothing is published"
                )
            self._hidden = True
            return
        # Of what goes to stderr too, one line is part of this one; of more, the whole follows.
        here = (printed.stderr, printed.stdout) if self._in_one_place else (printed.stderr,)
        lines = sum(len(each.tail(_ONE_LINE + 1).strip().splitlines()) for each in here)
        self._hidden = lines == 1 and failure.is_of_command and sum(each.size for each in here) <= _ONE_LINE
        follows = lines and not self._hidden and not self._work.batch
        named = "" if self._shards == 1 else f"{printable(display_name(failure.url or '-'))}, "
        self.say(named + failure.line(key, None if follows else printed))
        if self._work.verbose and failure.detail:
            with self._meter.hidden():
                lines_of_detail = map(escaped, redact_text(failure.detail).splitlines())
                self._write_message(2, "".join(f"{line}\n" for line in lines_of_detail).encode("utf-8", "replace"))

    def _kept(self) -> str:
        """Return a sentence on the place of the failed samples."""
        if self._work.outdir is not None:
            return display_name(join(self._work.outdir, f"*{FAILED_SUFFIX}"))
        return display_name(failed_samples_url(str(self._work.output)))

    def stray(self, key: str, names: list[str]) -> None:
        """Print the files of a sample's folder that are not in the output, a few times only."""
        self._strays += 1
        if self._strays <= _STRAY_NOTES or self._work.verbose:
            shown = ", ".join(printable(name) for name in names[:_STRAY_NAMES])
            more = f" and {len(names) - _STRAY_NAMES} more" if len(names) > _STRAY_NAMES else ""
            self.say(
                f"{printable(key)}: left in its folder, but not part of the output: {shown}{more}; only files called "
                f"{self._work.base}.FIELD are (-m makes samples of files with other names, --subdirs of folders)"
            )

    def advanced(self, read: int, failed: int) -> None:
        self._hidden = False
        super().advanced(read, failed)
        if self._meter.is_due():
            self._meter.show(self.text(), self.part())

    def shard_missing(self, url: str) -> None:
        """Count a missing input, and print the first one.

        There may be 100,000 of them; the summary at the end has their number.
        """
        if self.counts.shards_missing == 1:
            self.say(f"{printable(display_name(url))}: no such file; missing shards are counted")
        self.advanced(self._read, self._failed)

    def shard_skipped(self, output_url: str) -> None:
        if self._work.verbose:
            self.say(f"{printable(display_name(output_url))}: done before")
        self.advanced(self._read, self._failed)

    def shard_done(self, output_url: str, record: DoneRecord) -> None:
        name = printable(display_name(output_url))
        if record.state != "done":
            self.say(f"{name}: failed: {record.error}")
        elif self._work.verbose or record.exit_code:
            self.say(f"{name}: {Counts.of(record).sum_of_samples()}")

    def noted(self, message: str) -> None:
        self.say(printable(message))


def _is_one_file(one: int, other: int) -> bool:
    """Return True if two descriptors are open on the same file, pipe or terminal.

    False if one of them is closed.
    """
    try:
        return os.path.sameopenfile(one, other)
    except OSError:
        return False


@contextlib.contextmanager
def open_report(path: str | None, inputs: Iterable[str] = ()) -> Iterator[PublishStream | None]:
    """Open the file for the report before the run, so that errors are raised early.

    Args:
        inputs: names of the inputs as given; the report must not be one of them.
    """
    if path is None:
        yield None
        return
    if path == "-":
        raise UsageError("--report - would mix with the tar or the commands' output; name a file")
    check_other_than([path], inputs)
    report = open_publish(path, compression=None)
    try:
        yield report
    finally:
        # After commit, nothing.
        report.discard()


def report_document(work: Work, counts: Counts, seconds: float, error: BaseException | None) -> bytes:
    """Return the counts as a JSON document."""
    import json

    document: dict[str, object] = {
        "inputs": [display_name(each) for each in work.inputs or (str(work.retry_failed),)],
        "exit_code": counts.exit_code if error is None else exit_code(error),
        "error": None if error is None else redact_text(str(error)) or type(error).__name__,
        "seconds": round(seconds, 3),
        "samples": counts.as_dict(),
        "empty": counts.empty,
        "failures": counts.failures,
        "stray_files": counts.stray_files,
        "emptied_fields": counts.emptied,
        **counts.met.as_dict(),
    }
    if work.outdir is None:
        document["output"] = None if work.output is None else display_name(work.output)
        document["published"] = error is None and work.output is not None
    else:
        document["outdir"] = display_name(work.outdir)
        document["shards"] = {
            "done": counts.shards_done,
            "done_before": counts.shards_before,
            "failed": counts.shards_failed,
            "missing": counts.shards_missing,
        }
        document["missing_examples"] = counts.missing_names
    return json.dumps(document, indent=2).encode("utf-8") + b"\n"
