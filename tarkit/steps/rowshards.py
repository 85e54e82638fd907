"""Make a series of shards of the rows of a table whose files are fetched, and resume that.

Row i belongs to shard i // maxcount, so a failed row leaves a gap in its shard, and changes no
other. The done record beside a shard has a digest of its rows, and the place of each that failed.
The same call again skips the shards that are done, fetches only the rows that failed, and puts them
into their places: in the end a shard has the bytes of one in which no row ever failed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, deque
from collections.abc import Callable, Container, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from typing import Any

from tarkit.errors import EXIT_OK, EXIT_SET_ASIDE, MissingInputError, StreamError, UsageError, counted, printable
from tarkit.names.keywords import Unpack, keywords_of
from tarkit.names.outputnames import done_record_url, is_pattern, output_name, shard_name
from tarkit.names.redaction import redact
from tarkit.runs.donerecord import DoneRecord, read_record
from tarkit.samples.read import read_samples
from tarkit.samples.sample import Sample, first_dot
from tarkit.samples.tarwriter import TarWriter, TarWriterOptions, default_mtime
from tarkit.specs.manifest import ManifestShard, check_manifest_name, remove_manifest, write_manifest
from tarkit.specs.outputcheck import check_tar_output, existing_shards
from tarkit.steps.download import DownloadOptions, Outcome, outcomes
from tarkit.steps.failedrows import FailedTable, failed_table_name
from tarkit.steps.shardsoutput import remove_shard
from tarkit.steps.tablerows import Wanted
from tarkit.store.entries import remove, stat
from tarkit.store.fieldfile import FieldFile
from tarkit.store.read import open_read

MAX_ROWS = 10_000
"""Rows of a shard, if nothing else is asked for."""
_MOST_ROWS_OF_ONE = 100_000
_MOST_BYTES = 256 * 1024 * 1024
"""Bytes of the values of a shard's rows, which are in memory until the files are there."""


@dataclass
class RowsResult:
    """Result of :func:`create_from_rows`.

    Attributes:
        total: samples in all shards.
        size: bytes of content that were written by this run.
        waiting: rows whose files this run had to fetch.
        failed: files that failed, by reason.
        shards: names of all shards.
        published: those of them that this run made or changed.
        removed: shards of an earlier, longer run that were removed.
        table: name of the table of failed rows; None if no row failed.
        is_series: True for a series.
    """

    is_series: bool
    total: int = 0
    size: int = 0
    waiting: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    shards: list[str] = field(default_factory=list)
    published: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    table: str | None = None


@dataclass
class _Shard:
    """One shard of the series.

    Attributes:
        rows: number of its rows.
        digest: digest of the rows, and of the options of the writer.
        places: for each row that is still to be fetched, the number of samples of the published
            shard that come before it.
        record: record of the published shard, if its samples are kept.
        failed: rows that failed in this run, as in the done record.
    """

    name: str
    rows: int
    digest: str
    places: deque[int]
    record: DoneRecord | None
    failed: list[tuple[str, int]] = field(default_factory=list)
    writer: TarWriter | None = None
    old: Generator[Sample, None, None] | None = None
    copied: int = 0
    added: int = 0


class _Series:
    """The shards of the rows, in order."""

    def __init__(
        self, output: str, maxcount: int, cuts: Container[int] | None, start: int, force: bool,
        published: Callable[[str], object], manifest: str | None, writer: TarWriterOptions,
    ) -> None:  # fmt: skip
        self.result = RowsResult(is_pattern(output))
        self._output, self._maxcount, self._cuts, self._number = output, maxcount, cuts, start
        self._force, self._published, self._manifest = force, published, manifest
        # A manifest lists the MD5 of its shards; SHA-256 is faster.
        self._digest = "sha256" if manifest is None else "md5"
        self._writer: TarWriterOptions = {**writer, "encoder": False, "checksum": self._digest}
        self._options = json.dumps([str(writer.get("rule", "")), writer.get("format"), bool(writer.get("index"))])
        self._options += str(default_mtime() if writer.get("mtime") is None else writer.get("mtime"))
        self._planned: deque[_Shard] = deque()
        self._empty: list[_Shard] = []
        self._listed: list[ManifestShard] = []

    def plan(self, rows: Iterable[Wanted]) -> Iterator[Wanted]:
        """Yield the rows whose files are to be fetched."""
        for block in self._blocks(rows):
            name = shard_name(self._output, self._number) if is_pattern(self._output) else self._output
            self._number += 1
            record = None if self._force else read_record(done_record_url(name))
            before = 0 if record is None else record.samples.get("in", 0)
            digest = hashlib.blake2b(self._options.encode(), digest_size=16)
            digest_before = ""
            for count, row in enumerate(block, 1):
                _update(digest, row)
                if count == before:
                    digest_before = digest.hexdigest()
            if not self._force:
                record = _checked(name, record, digest_before, before < len(block))
            places: dict[str, int] = {}
            if record is not None:
                # Rows that were added to the table come after all others.
                places = {row.sample["__key__"]: record.samples["out"] for row in block[before:]} | dict(record.failed)
            wanted = [row for row in block if record is None or row.sample["__key__"] in places]
            at = deque(places.get(row.sample["__key__"], 0) for row in wanted)
            self._planned.append(_Shard(name, len(block), digest.hexdigest(), at, record))
            self.result.shards.append(name)
            self.result.waiting += len(wanted)
            yield from wanted

    def _blocks(self, rows: Iterable[Wanted]) -> Iterator[list[Wanted]]:
        block: list[Wanted] = []
        size = 0
        for number, row in enumerate(rows):
            is_full = len(block) >= self._maxcount or size >= _MOST_BYTES
            if block and (is_full if self._cuts is None else number in self._cuts):
                if not is_pattern(self._output):
                    reason = f"the rows of one shard are kept in memory, and there are more than {len(block)}"
                    raise UsageError(f"{reason}; write a series, such as -o train-%06d.tar")
                yield block
                block, size = [], 0
            block.append(row)
            size += sum(map(len, row.sample.values()))
        if block:
            yield block

    def accept(self, row: Wanted, outcome: Outcome, failures: FailedTable) -> None:
        """Take the outcome of the next row of the plan."""
        while not self._planned[0].places:
            self._finish(self._planned.popleft())
        shard = self._planned[0]
        place = shard.places.popleft()
        if isinstance(outcome, dict):
            writer = self._copy_until(shard, place)
            self.result.size += writer.write(outcome)
            shard.added += 1
        else:
            shard.failed.append((row.sample["__key__"], place + shard.added))
            for each in outcome:
                failures.write(each)
        if not shard.places:
            self._finish(self._planned.popleft())

    def _copy_until(self, shard: _Shard, place: float) -> TarWriter:
        """Open the shard's writer, and copy the first samples of the published shard to it."""
        if shard.writer is None:
            shard.writer = TarWriter(shard.name, **self._writer)
            if shard.record is not None:
                rule = self._writer.get("rule", first_dot)
                shard.old = read_samples(shard.name, literal=True, split=True, rule=rule)
        while shard.old is not None and shard.copied < place and (sample := next(shard.old, None)) is not None:
            shard.writer.write(sample)
            shard.copied += 1
        return shard.writer

    def _finish(self, shard: _Shard) -> None:
        if shard.writer is None and shard.record is None:
            # Published at the end, unless no row of the whole table has its files.
            self._empty.append(shard)
            return
        record = shard.record if shard.writer is None else self._publish(shard)
        if record is not None and record.output is not None:
            self.result.total += record.samples["out"]
            if self._manifest is not None:
                md5 = record.output.get("md5") or _checksum(shard.name, "md5")
                self._listed.append(ManifestShard(shard.name, record.samples["out"], record.output["size"], md5))

    def _publish(self, shard: _Shard) -> DoneRecord:
        writer = self._copy_until(shard, math.inf)
        if self._manifest is not None and not self.result.published:
            remove_manifest(self._manifest)
        samples = {"in": shard.rows, "out": shard.rows - len(shard.failed), "failed": len(shard.failed)}
        record = DoneRecord("failed", {}, shard.digest, version("tarkit"), samples=samples, failed=shard.failed)
        with writer:
            if shard.record is None:
                # Killed before the last step, the shard is known to be one of these rows.
                replace(record, error="interrupted", exit_code=StreamError.exit_code).publish(shard.name)
        size, checksum = writer.checksum_of_file()
        record.state, record.exit_code = "done", EXIT_SET_ASIDE if shard.failed else EXIT_OK
        record.output = {"name": output_name(shard.name), "size": size, self._digest: checksum}
        record.publish(shard.name)
        self.result.published.append(shard.name)
        self._published(shard.name)
        return record

    def finish(self) -> None:
        """Publish the shards that are left, unless no row has its files, and the manifest."""
        while self._planned:
            self._finish(self._planned.popleft())
        if not self.result.total:
            return
        for shard in self._empty:
            self._copy_until(shard, 0)
            self._finish(shard)
        if self._manifest is not None:
            write_manifest(self._manifest, sorted(self._listed, key=lambda each: self.result.shards.index(each.url)))

    def remove_others(self) -> None:
        """Remove shards of an earlier, longer run.

        Raises:
            UsageError: there are such shards, and they are not to be removed.
        """
        left = existing_shards(self._output, self._number) if is_pattern(self._output) else []
        if left and not self._force:
            more = f" and {counted(len(left) - 1, 'more shard')}" if len(left) > 1 else ""
            raise UsageError(f"{printable(redact(left[0]))}{more} of a longer run are there; remove them")
        for name in left:
            with suppress(MissingInputError):
                remove(done_record_url(name))
            remove_shard(name)
            self.result.removed.append(name)

    def discard(self) -> None:
        """Discard the shard that is being written."""
        for shard in self._planned:
            if shard.writer is not None:
                shard.writer.discard()


def _checked(name: str, record: DoneRecord | None, digest: str, is_longer: bool) -> DoneRecord | None:
    """Return the record of a published shard, or None if the shard must be made anew.

    Args:
        name: name of the shard.
        digest: digest of the rows that it was made of, as they are now.
        is_longer: True if there are more rows now.

    Raises:
        UsageError: the shard was made of other rows.
    """
    size: int | None = -1
    with suppress(MissingInputError):
        size = stat(name).size
    if (record is None and size != -1) or (record is not None and record.work != digest):
        reason = "is there, and was made of other rows or options; remove it, or --force makes the series anew"
        raise UsageError(f"{printable(redact(name))} {reason}")
    if record is None or record.state != "done" or record.output is None or size not in (None, record.output["size"]):
        return None
    is_used = record.failed or is_longer
    digest = "md5" if "md5" in record.output else "sha256"
    return None if is_used and _checksum(name, digest) != record.output[digest] else record


def _update(digest: Any, row: Wanted) -> None:
    values = sorted((name, value) for name, value in row.sample.items() if name != "__url__")
    for name, value in [*values, *row.sources]:
        digest.update(f"{name} {len(value)} ".encode("utf-8", "surrogatepass"))
        whole = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        for piece in whole.pieces() if isinstance(whole, FieldFile) else [whole]:
            digest.update(piece)


def _checksum(url: str, name: str) -> str:
    digest = hashlib.new(name, usedforsecurity=False)
    with open_read(url, compression=None) as stream:
        while piece := stream.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


@keywords_of(TarWriterOptions)
def create_from_rows(
    rows: Iterable[Wanted], output: str, options: DownloadOptions, *, maxcount: int = MAX_ROWS,
    cuts: Container[int] | None = None, start: int = 0, manifest: str | None = None, force: bool = False,
    dry_run: bool = False, failed_table: str | None = None, published: Callable[[str], object] = lambda name: None,
    each: Callable[[Outcome], object] = lambda outcome: None, **writer: Unpack[TarWriterOptions],
) -> RowsResult:  # fmt: skip
    """Fetch the files of the rows, and write one shard, or a series of shards, of their samples.

    A row with a file that failed is not written. The same call again fetches only such rows.

    Args:
        rows: rows of a table; keys do not repeat.
        output: path, URL or pattern; not ``-``.
        options: limits and policies of the downloads.
        maxcount: rows of a shard. One shard without a number in its name has 100,000 at most.
        cuts: numbers of the rows that begin a shard, in place of ``maxcount``; the values of a
            shard's rows must fit into memory.
        start: number of the first shard.
        manifest: path or URL of a manifest of all shards, or None.
        force: replace shards that are there, fetching all files again, and remove the other ones of
            the series.
        dry_run: fetch and write nothing; ``waiting`` of the result is the number of rows to fetch.
        failed_table: table of the failed rows, ``*.csv``; None: see
            :func:`failed_table_name`.
        published: called with the name of each shard that was published.
        each: called with the outcome of each row that was fetched.
        writer: ``mtime``, ``format``, ``index`` and ``rule`` of
            :class:`tarkit.samples.tarwriter.TarWriter`.

    Raises:
        MissingExtraError: aiohttp is not installed.
        StreamError: no row of the table has its files, so nothing was published.
        UsageError: an argument is not valid, or a shard is there that was not made of these rows.
    """
    check_tar_output(output)
    if manifest is not None:
        check_manifest_name(manifest)
        writer["index"] = True
    rows_of_shard = maxcount if is_pattern(output) else _MOST_ROWS_OF_ONE
    series = _Series(output, rows_of_shard, cuts, start, force, published, manifest, writer)
    result = series.result
    if dry_run:
        for _ in series.plan(rows):
            pass
        return result
    with FailedTable(failed_table or failed_table_name(output)) as failures:
        try:
            with closing(outcomes(series.plan(rows), options)) as results:
                for row, outcome in results:
                    series.accept(row, outcome, failures)
                    each(outcome)
            series.finish()
        finally:
            series.discard()
    result.failed, result.table = failures.reasons, failures.url if failures.reasons else None
    if failures.reasons and not result.total:
        reasons = ", ".join(f"{reason} {count}" for reason, count in failures.reasons.most_common())
        raise StreamError(f"no file could be fetched, so nothing was published: {reasons}", url=failures.url)
    series.remove_others()
    return result
