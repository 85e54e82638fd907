"""The output of steps that write samples: one shard, or a numbered series of shards."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import PurePath
from typing import Any, BinaryIO, TypedDict, cast

from tarkit.errors import MissingInputError, StreamError, TemporaryStreamError, UsageError, counted, printable
from tarkit.names.keywords import Unpack, keywords_of
from tarkit.names.outputnames import has_index_name, is_pattern, number_of_shard
from tarkit.names.redaction import redact
from tarkit.names.url import one_name
from tarkit.samples.index import remove_index
from tarkit.samples.sample import KeyRule
from tarkit.samples.shardwriter import ShardWriter
from tarkit.samples.tarwriter import TarWriter, TarWriterOptions
from tarkit.specs.manifest import check_manifest_name
from tarkit.specs.outputcheck import check_other_than, check_tar_output, existing_shards
from tarkit.specs.shardspec import take_slice
from tarkit.store.entries import remove, stat

GIBI = 1 << 30


class Nowhere(io.RawIOBase):
    """A binary file that keeps nothing."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        return len(data)


class OutputOptions(TypedDict, total=False):
    """Keyword arguments of :class:`ShardsOutput`, which describes them."""

    maxcount: int
    maxsize: int
    start: int
    manifest: str | None
    force: bool
    dry_run: bool
    mtime: float | None
    format: str
    index: bool
    rule: str | KeyRule
    on_repeated_key: str


class ShardsOutput:
    """One shard, or with a number in its name, as in ``out-%06d.tar``, a series of shards.

    Existing shards of the series, numbered from ``start`` on, would remain from a longer run: they
    are an error, or with ``force`` they are replaced, or removed at the end.

    Args:
        output: path, URL, ``-`` or pattern.
        maxcount: most samples in a shard of a series.
        maxsize: most bytes of content in a shard of a series, unless one sample has more.
        start: number of the first shard of a series.
        manifest: path or URL of a manifest of the series (``docs/formats/manifest.md``), or None.
        force: replace existing shards of the series, and its manifest.
        dry_run: check and count everything, but write nothing.
        writer: ``mtime``, ``format``, ``index``, ``rule`` and ``on_repeated_key`` of
            :class:`tarkit.samples.tarwriter.TarWriter`.

    Attributes:
        is_series: True for a series.
        total: number of samples written.
        size: bytes of their content.
        shards: names of the published shards.
        removed: names of shards of an earlier run that were removed.
        warning: error of the listing of earlier shards, if ``force`` made it harmless.

    Raises:
        UsageError: the name is not that of a tar, its folder is missing, or shards or the manifest
            of an earlier run exist.
        StreamError: the place of the output cannot be listed.
        TemporaryStreamError: it cannot be listed now.
    """

    @keywords_of(OutputOptions)
    def __init__(
        self,
        output: str,
        maxcount: int = 100_000,
        maxsize: int = 3 * GIBI,
        start: int = 0,
        manifest: str | None = None,
        force: bool = False,
        dry_run: bool = False,
        **writer: Unpack[TarWriterOptions],
    ) -> None:
        self.output = output
        self.is_series = is_pattern(output)
        self.total = self.size = 0
        self.shards: list[str] = []
        self.removed: list[str] = []
        self.warning: StreamError | None = None
        self._limits = maxcount, maxsize
        self._start, self._manifest = start, manifest
        self._force, self._dry_run = force, dry_run
        self._writer_options: TarWriterOptions = {**writer, "encoder": False}
        self._writer: TarWriter | ShardWriter | None = None
        self._counted: int | None = None
        self._cuts: set[int] = set()
        check_tar_output(output)
        self.earlier = self._earlier() if self.is_series else []

    def _earlier(self) -> list[str]:
        """List the existing shards of the series; without ``force``, they are an error."""
        try:
            found = existing_shards(self.output, self._start)
        except StreamError as error:
            if isinstance(error, TemporaryStreamError):
                raise
            if not self._force:
                error.hint = "--force writes the series without a look at what is there"
                raise
            self.warning = error
            return []
        if found and not self._force:
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            first = f"{printable(redact(found[0]))}{more} of this pattern {'are' if more else 'is'} there"
            raise UsageError(
                f"{first} from an earlier run; --force replaces or removes them, --start N continues after them"
            )
        self._reject_earlier_manifest()
        return found

    def _reject_earlier_manifest(self) -> None:
        """Reject an existing manifest, which may list shards that this run does not write."""
        if self._manifest is None:
            return
        check_manifest_name(self._manifest)
        with suppress(MissingInputError):
            stat(self._manifest)
            if not self._force:
                shown = printable(redact(self._manifest))
                raise UsageError(
                    f"{shown} is there from an earlier run; --force replaces it. "
                    f"To list shards of several runs: tarkit index --manifest {shown} SHARD..."
                )

    def _reject_own_inputs(self, inputs: Collection[str | PurePath]) -> None:
        """Reject an input that the output would replace or remove, perhaps before it is read."""
        if not self.is_series:
            check_other_than([self.output], inputs)
            return
        outputs = {one_name(os.fspath(name)) for name in self.earlier}
        # Without force, nothing of the series is there.
        for name in inputs if self._force else ():
            number = number_of_shard(self.output, str(name))
            if one_name(os.fspath(name)) in outputs or (number is not None and number >= self._start):
                raise UsageError(
                    f"{printable(redact(str(name)))} is an input, and one of the shards that --force replaces or "
                    "removes; write the series under another name or into another folder"
                )
        check_other_than(self.earlier, inputs)

    @contextmanager
    def open(
        self, inputs: Collection[str | PurePath] = (), published: Callable[[str], object] | None = None
    ) -> Iterator[ShardsOutput]:
        """Open the output for writing.

        When the context ends without an error, the last shard is published, and shards of an
        earlier run that were not replaced are removed. After an error, published shards stay.

        Args:
            inputs: names of the inputs, none of which may be an output.
            published: called with the name of each shard of a series after it was published.

        Raises:
            UsageError: an input is an output.
            StreamError: the number of samples is not that of :meth:`cut_evenly`.
        """
        self._reject_own_inputs(inputs)
        with self._open_writer(published) as self._writer:
            # That of a series grows with each shard.
            self.shards = self._writer.shards if isinstance(self._writer, ShardWriter) else [self.output]
            yield self
            if self._counted not in (None, self.total):
                reason = f"{self._counted} samples were counted, and {self.total} came"
                raise StreamError(f"{reason}; the input was changed meanwhile")
        for name in sorted(set(self.earlier) - set(self.shards)):
            self.removed.append(name)
            if not self._dry_run:
                remove_shard(name)

    def _open_writer(self, published: Callable[[str], object] | None) -> TarWriter | ShardWriter:
        options: TarWriterOptions = {**self._writer_options}
        if self._dry_run:
            options["index"] = False
        if not self.is_series:
            return TarWriter(cast(BinaryIO, Nowhere()) if self._dry_run else self.output, **options)
        return ShardWriter(
            self.output, *self._limits, published, self._start,
            opener=(lambda name: cast(BinaryIO, Nowhere())) if self._dry_run else None,
            manifest=None if self._dry_run else self._manifest, **options,
        )  # fmt: skip

    def write(self, sample: Mapping[str, Any]) -> int:
        """Write one sample of bytes; return the size of its content in bytes."""
        if self._writer is None:
            raise UsageError("the output is not open")
        if self.total in self._cuts and isinstance(self._writer, ShardWriter):
            self._writer.next_stream()
        size = self._writer.write(sample)
        self.total += 1
        self.size += size
        return size

    def cut_evenly(self, samples: int, shards: int) -> None:
        """Write shards whose lengths differ by at most one.

        Args:
            samples: number of samples that will be written.
            shards: number of shards of the series.

        Raises:
            UsageError: there are fewer samples than shards.
        """
        self._counted, self._cuts = samples, even_cuts(samples, shards)


def even_cuts(samples: int, shards: int) -> set[int]:
    """Return the numbers of the samples that begin a further shard, if all have the same length.

    Raises:
        UsageError: there are fewer samples than shards.
    """
    if samples < shards:
        raise UsageError(f"{counted(samples, 'sample')} cannot fill {counted(shards, 'shard')}")
    return {take_slice(samples, number, shards).start for number in range(1, shards)}


def remove_shard(name: str) -> None:
    """Remove a shard and its index; that of a missing shard, too."""
    # The index first: killed in between, a shard is left, which the next run finds.
    if has_index_name(name):
        remove_index(name)
    with suppress(MissingInputError):
        remove(name)
