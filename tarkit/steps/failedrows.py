"""Write the table of rows whose files could not be fetched."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Generator, Iterable
from contextlib import suppress

from tarkit.errors import MissingInputError, UsageError, printable
from tarkit.names.outputnames import is_pattern, split_pattern
from tarkit.names.redaction import redact
from tarkit.samples.sample import Sample
from tarkit.steps.download import DownloadOptions, FailedRow, fetched
from tarkit.steps.tablerows import Wanted
from tarkit.store.entries import remove
from tarkit.store.publish import WholeOutput, open_publish


def failed_table_name(output: str) -> str:
    """Return the name of the table of failed rows: ``train-failed.csv`` for ``train-%06d.tar``."""
    head = split_pattern(output)[0] if is_pattern(output) else output.removesuffix(".tar")
    return f"{head.rstrip('-_.')}{'' if head.endswith('/') else '-'}failed.csv"


class FailedTable(WholeOutput):
    """A CSV of failed rows. An empty one is removed.

    Args:
        url: path or URL; it ends in ``.csv``.

    Raises:
        UsageError: the name has a different ending.
    """

    def __init__(self, url: str) -> None:
        if not url.endswith(".csv"):
            raise UsageError(f"{printable(redact(url))}: a table of failed rows is called *.csv")
        self.url = url
        self.reasons: Counter[str] = Counter()
        self._stream = open_publish(url, compression=None)

    def write(self, row: FailedRow) -> None:
        """Add a row."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([row] if self.reasons else [row._fields, row])
        self._stream.write(text.getvalue().encode("utf-8", "surrogateescape"))
        self.reasons[row.reason] += 1

    def close(self) -> None:
        if self.reasons:
            self._stream.close()
            return
        self._stream.discard()
        with suppress(MissingInputError):
            remove(self.url)

    def discard(self) -> None:
        self._stream.discard()


def fetched_and_listed(
    rows: Iterable[Wanted], options: DownloadOptions, table: str, reasons: Counter[str]
) -> Generator[Sample, None, None]:
    """Yield the samples of rows as :func:`tarkit.steps.download.fetched`, and list the failed rows.

    Args:
        options: limits and policies.
        table: name of the table of failed rows, which is published after the last sample.
        reasons: filled at the end: number of failures by reason.
    """
    with FailedTable(table) as failures:
        yield from fetched(rows, options, failures.write)
    reasons.update(failures.reasons)
