"""The inputs of a conversion, as records or as samples."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from tarkit.errors import UsageError
from tarkit.formats.registry import format_module, holds_files, holds_rows, holds_samples, read_named
from tarkit.formats.tally import Tally
from tarkit.names.url import display_name, reads_once
from tarkit.samples.pieces import one_archive, sample_pieces
from tarkit.samples.read import read_members, read_samples
from tarkit.samples.sample import Sample, is_reserved
from tarkit.steps.encoding import Encoding, content_of, sample_of, sample_of_row
from tarkit.steps.harshards import har_samples
from tarkit.steps.selection import Selection
from tarkit.store.read import open_read

T = TypeVar("T")

Record = tuple[str, bytes]
"""Key and content."""


@dataclass
class Inputs:
    """The inputs, each with its format, as records or as samples.

    Attributes:
        number: number of inputs that were taken.
        rows: counter of the rows.
        selection: samples to take; None: all.
    """

    inputs: Iterator[tuple[str, str]]
    encoding: Encoding
    on_damage: str
    tally: Tally
    progress: Callable[[int], object]
    number: int = 0
    rows: Iterator[int] = field(default_factory=itertools.count)
    selection: Selection | None = None

    def _numbered(self, record: T) -> T:
        self.number += 1
        self.progress(self.number)
        return record

    def records(self, to: str) -> Iterator[Record]:
        """Yield the records to write."""
        files = self._files(to)
        if self.encoding.piece:
            yield from one_archive(files, rule=self.encoding.rule)
        else:
            yield from itertools.chain.from_iterable(files)
        self._check_selection()

    def _check_selection(self) -> None:
        if self.selection is not None:
            self.selection.check()

    def _files(self, to: str) -> Iterator[Iterator[Record]]:
        """Yield an iterator over the records of each input."""
        for name, source in self.inputs:
            if source == "tar" and to == "tar":
                raise _tar_already(name)
            is_copied = to != "tar" and not holds_samples(source)
            if is_copied and (self.encoding.field is not None or self.encoding.example):
                raise UsageError("between two record files, records stay as they are; leave out --field and --example")
            if holds_samples(source):
                suffix = self.encoding.suffix if holds_files(to) else ""
                found: Iterator[Record] = (
                    (f"{key or self.number}{suffix}", content) for key, content in self._of_samples(name, source)
                )
            else:
                found = self._of_records(name, source, empty_keys=to != "tar" and not holds_files(to))
            yield map(self._numbered, found)

    def samples(self, to: str) -> Iterator[Sample]:
        """Yield the records as samples."""
        for name, source in self.inputs:
            if source == to:
                raise _tar_already(name) if to == "tar" else UsageError(f"{display_name(name)} is {to} already")
            for sample in self._samples_of(name, source):
                sample["__url__"] = display_name(name)
                yield self._numbered(sample)
        self._check_selection()

    def _samples_of(self, name: str, source: str) -> Iterator[Sample]:
        encoding = self.encoding
        if holds_samples(source) and encoding.field is not None:
            for sample in self._samples_in(name, source):
                yield {"__key__": sample["__key__"], encoding.field: content_of(sample, encoding)}
        elif holds_samples(source):
            yield from self._samples_in(name, source)
        elif encoding.files and not holds_files(source):
            raise UsageError(f"{display_name(name)} is not an archive of files; convert it by itself")
        elif encoding.files:
            archive = format_module(source).Archive(name)
            yield from har_samples(
                archive,
                rule=encoding.rule,
                on_others=encoding.on_others,
                on_same_extension=encoding.on_same_extension,
                mem=encoding.mem,
                tally=self.tally,
            )
        else:
            suffix = encoding.suffix if holds_files(source) else ""
            for key, content in self._of_records(name, source):
                yield sample_of(name, key.removesuffix(suffix), content, encoding)

    def _of_records(self, name: str, source: str, *, empty_keys: bool = False) -> Iterator[Record]:
        """Yield samples made of records.

        Args:
            empty_keys: keep an empty key; otherwise such a record, like one without a key, is named
                by its number.
        """
        mem = self.encoding.mem
        for key, content in read_named(source, name, on_damage=self.on_damage, tally=self.tally, mem=mem):
            if key is None or not (key or empty_keys):
                key = f"{self.number:09d}"
            yield key, content

    def _of_samples(self, name: str, source: str) -> Iterator[Record]:
        encoding = self.encoding
        if encoding.piece:
            if self.on_damage != "error":
                raise UsageError("pieces of a damaged tar are not the tar: repair it with tarkit cat --on-damage skip")
            with open_read(name, mem=self.encoding.mem) as stream:
                # Nothing is left out, so the tally has nothing to count.
                yield from sample_pieces(
                    stream.read,
                    url=stream.name,
                    rule=encoding.rule,
                    on_repeated_key=encoding.on_repeated_key,
                    mem=encoding.mem,
                )
            return
        for sample in self._samples_in(name, source):
            key = sample["__key__"]
            if encoding.files:
                yield from ((f"{key}.{field}", sample[field]) for field in sample if not is_reserved(field))
            else:
                yield key, content_of(sample, encoding)

    def _samples_in(self, name: str, source: str) -> Iterator[Sample]:
        """Yield the selected samples of a tar, or of rows."""
        found = self._all_samples_in(name, source)
        return found if self.selection is None else self.selection.select(found, last=False)

    def _all_samples_in(self, name: str, source: str) -> Iterator[Sample]:
        if holds_rows(source):
            if self.on_damage != "error":
                raise UsageError(f"{display_name(name)}: damage in {source} cannot be skipped; leave out --on-damage")
            yield from samples_of_rows(name, source, self.encoding, self.rows)
        else:
            yield from samples_of_tar(name, self.encoding, on_damage=self.on_damage, tally=self.tally)


def samples_of_tar(name: str, encoding: Encoding, **policies: Any) -> Iterator[Sample]:
    """Yield the samples of a shard.

    Args:
        policies: other arguments of ``read_samples``.
    """
    return read_samples(
        name,
        literal=True,
        split=True,
        rule=encoding.rule,
        on_repeated_key=encoding.on_repeated_key,
        mem=encoding.mem,
        **policies,
    )


def samples_of_rows(name: str, source: str, encoding: Encoding, numbers: Iterator[int]) -> Iterator[Sample]:
    """Yield the rows of a file as samples.

    Args:
        numbers: numbers of the rows; the number is the key of a row without a key.
    """
    for row in format_module(source).read_rows(name, columns=encoding.columns, mem=encoding.mem):
        yield sample_of_row(name, f"{next(numbers):09d}", row)


def check_tar(name: str) -> None:
    """Check a file that was taken for a tar because it has no other format.

    Raises:
        DataError: the file is not a tar; the message says what it looks like.
    """
    if not reads_once(name):
        with open_read(name) as stream:
            next(read_members(stream.read, url=stream.name), None)


def _tar_already(name: str) -> UsageError:
    check_tar(name)
    what = "is taken for a tar" if reads_once(name) else "is a tar already"
    return UsageError(
        f"{display_name(name)} {what}, and tarkit cat joins tars; if it is another format, say so with --from FORMAT"
    )
