"""The functions of an exchange that run in tasks on a Spark cluster.

An input is read twice. First each sample gives its position and its size, which Spark sorts without
the content, to find where outputs begin. Then the samples themselves go through Spark's shuffle.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import accumulate, chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple

from tarkit.errors import DataError, TarkitError, counted
from tarkit.exchange.cuts import Cuts, Outputs
from tarkit.exchange.keys import repeated_digests, samples_with_digests
from tarkit.exchange.output import GatheredOutput
from tarkit.exchange.plan import Plan
from tarkit.exchange.positions import FAILED, value_of
from tarkit.exchange.runfile import Row, joined
from tarkit.exchange.slicereader import SliceReader
from tarkit.exchange.stagefiles import finished_record
from tarkit.exchange.step import Step
from tarkit.names.url import join
from tarkit.runs.donerecord import DoneRecord
from tarkit.samples.sample import key_rule
from tarkit.store.fieldfile import LARGE, FieldFile

PLACE, KEYS, SUMMARY = range(3)
"""Kinds of what the first reading of a slice gives: see :meth:`ExchangeJob.places`."""
_SAMPLED = 1000
"""Number of positions of a slice that are sent to the driver."""
_PIECE = 64 * 1024
"""Bytes of a sample in a record of the shuffle: pyspark looks at its memory after 1000 records."""
_BATCH = 256 * 1024
"""Bytes of the samples that an output takes at once."""
_NUMBER = 4
"""Bytes of the number of a piece, behind the position of its sample."""
_MOST_REPEATED = 1000
"""Number of repeated digests of a task: different keys have the same one by chance, rarely."""

Outcome = tuple[int, Any]
"""(0, result) or (exit code, message)."""


class SliceSummary(NamedTuple):
    """What is known of a slice after the first reading.

    Attributes:
        samples: number of samples.
        size: bytes of their members.
        failed: number of samples without a position.
        failed_size: bytes of their members.
        largest: bytes of the largest sample.
        first_failure: why the first sample without a position has none.
        skipped: reason -> number of members that are not of a sample.
        placed: number of a named output -> number of its samples.
        stride: samples from one sampled position to the next.
        sampled: positions of some samples.
    """

    samples: int
    size: int
    failed: int
    failed_size: int
    largest: int
    first_failure: str
    skipped: Mapping[str, int]
    placed: Mapping[int, int]
    stride: int
    sampled: Sequence[bytes]


class Beginning(NamedTuple):
    """The beginning of an output, or of a range of positions.

    Attributes:
        position: position of its first sample.
        samples: number of samples before it.
    """

    position: bytes
    samples: int


class RangeSize(NamedTuple):
    """The samples of a range of positions.

    Attributes:
        first: position of the first one; None if there is none.
        samples: number of samples.
        size: bytes of their members.
    """

    first: bytes | None
    samples: int
    size: int


@dataclass(frozen=True)
class ExchangeJob:
    """What each task has to know of an exchange.

    Args:
        urls: names of the inputs that are the same on all machines.
        outdir: name of the folder of the outputs that is the same on all machines.
    """

    plan: Plan
    step: Step
    outputs: Outputs
    urls: Sequence[str]
    outdir: str

    def _slice(self, number: int) -> SliceReader:
        """Return the reader of a slice."""
        return SliceReader(self.plan, self.step, self.outputs.settings, self.urls, number)

    def places(self, numbers: Iterable[int]) -> Iterator[tuple[int, Any]]:
        """Yield what the first reading of slices gives.

        It is (PLACE, (position, size)) for each sample, (KEYS, (bucket, digests)), and at the end
        (SUMMARY, (0, :class:`SliceSummary`)), or (SUMMARY, (exit code, message)).
        """
        for number in numbers:
            try:
                yield from self._places(number)
            except TarkitError as error:
                yield SUMMARY, (error.exit_code, str(error))

    def _places(self, number: int) -> Iterator[tuple[int, Any]]:
        reader = self._slice(number)
        samples = size = 0
        stride, sampled = 1, list[bytes]()
        with closing(reader.rows()) as rows:
            for row in rows:
                if not samples % stride:
                    sampled.append(row.position)
                    if len(sampled) == _SAMPLED:
                        del sampled[1::2]
                        stride *= 2
                samples, size = samples + 1, size + row.size
                yield PLACE, (row.position, row.size)
        for bucket, digests in enumerate(reader.keys.parts() if reader.keys is not None else ()):
            if digests:
                yield KEYS, (bucket, digests)
        found = SliceSummary(
            samples, size, len(reader.failed), reader.failed_size, reader.largest, reader.first_failure,
            reader.tally.skipped,
            {int.from_bytes(prefix, "big"): count for prefix, count in reader.placed.items()}, stride, sampled,
        )  # fmt: skip
        yield SUMMARY, (0, found)

    def with_keys(self, digests: set[int], numbers: Iterable[int]) -> Iterator[Outcome]:
        """Yield (0, (key, position)) for the samples of slices whose keys have these digests."""
        rule = key_rule(self.outputs.settings.key_rule)
        for number in numbers:
            with closing(self._slice(number).rows()) as rows:
                for found in samples_with_digests(digests, ((row.key(rule), row.position) for row in rows)):
                    yield 0, found

    def payload(
        self, starts: Sequence[bytes], wanted: Mapping[int, int], numbers: Iterable[int]
    ) -> Iterator[tuple[bytes, tuple[bytes, int, bytes]]]:
        """Yield the samples of slices in pieces, each with a key by which it sorts.

        Args:
            starts: positions of the first samples of the outputs from 1 on.
            wanted: the outputs that are to be made.
            numbers: numbers of the slices.
        """
        for number in numbers:
            with closing(self._slice(number).rows()) as rows:
                for row in rows:
                    if bisect_right(starts, row.position) in wanted:
                        yield from _in_pieces(row)

    def gather(
        self,
        numbers: Sequence[int],
        samples: Sequence[int],
        index: int,
        pieces: Iterable[tuple[bytes, tuple[bytes, int, bytes]]],
    ) -> Iterator[Outcome]:
        """Write one output, and yield (0, its record).

        Args:
            numbers: numbers of the outputs that are made.
            samples: number of samples that each must have.
            index: place of this one in both lists.
            pieces: its samples as :meth:`payload` gave them, sorted.
        """
        try:
            yield 0, self._gathered(numbers[index], samples[index], _whole(pieces))
        except TarkitError as error:
            yield error.exit_code, str(error)

    def _gathered(self, number: int, samples: int, rows: Iterator[Row]) -> DoneRecord:
        # Another attempt of this task may have made it.
        url = join(self.outdir, self.outputs.name(number))
        if (found := finished_record(url, self.plan.id)) is not None:
            return found
        output = GatheredOutput(url, self.plan, self.outputs.settings)
        try:
            output.fill(self.step.write, _batches(rows))
            if output.counts.read != samples:
                reason = f"{counted(output.counts.read, 'sample')} came in, not {samples}"
                hint = f"{self.step.name} must give a sample the same position each time, and write all"
                raise DataError(reason, url=url, hint=hint)
            return output.publish()
        finally:
            # After publish(), this does nothing.
            output.discard()


def of_kind(kind: int, found: Iterable[tuple[int, Any]]) -> Iterator[Any]:
    """Yield the values of one kind."""
    return (value for each, value in found if each == kind)


def range_bounds(summaries: Sequence[SliceSummary], ranges: int, *, in_groups: bool) -> list[bytes]:
    """Return the bounds of ranges of positions that have about as many samples each.

    Args:
        in_groups: samples with the same value are not parted.
    """
    found = sorted((position, each.stride) for each in summaries for position in each.sampled)
    total = sum(weight for _, weight in found)
    bounds, passed = list[bytes](), 0
    for position, weight in found:
        passed += weight
        if passed * ranges >= total * (len(bounds) + 1):
            # All samples with a value sort from the value itself on. Those without a position have
            # no values by which to cut.
            bounds.append(min(value_of(position), FAILED) if in_groups else position)
    return sorted({*bounds[: ranges - 1]})


def place_of_bound(bounds: Sequence[bytes], position: bytes) -> int:
    """Return the number of the range of a position."""
    return bisect_right(bounds, position)


def place_of_output(starts: Sequence[bytes], wanted: Mapping[int, int], position: bytes) -> int:
    """Return the number of the task that makes the output of a position."""
    return wanted[bisect_right(starts, position)]


def place_of_bucket(buckets: int, parts: int, bucket: int) -> int:
    """Return the number of the task that compares the digests of a bucket."""
    return bucket * parts // buckets


def size_of_range(places: Iterable[tuple[bytes, int]]) -> Iterator[Outcome]:
    """Yield (0, RangeSize) for the sorted samples of a range."""
    first, samples, size = None, 0, 0
    for position, each in places:
        first = position if first is None else first
        samples, size = samples + 1, size + each
    yield 0, RangeSize(first, samples, size)


def repeated(parts: Iterable[tuple[int, bytes]]) -> Iterator[Outcome]:
    """Yield (0, digests that occur more than once), for digests that are sorted by buckets."""
    found = set[int]()
    for _, same in groupby(parts, key=itemgetter(0)):
        if len(found) < _MOST_REPEATED:
            found.update(sorted(repeated_digests(digests for _, digests in same))[:_MOST_REPEATED])
    yield 0, found


@dataclass(frozen=True)
class OutputSearch:
    """The search for the first samples of the outputs in sorted ranges of positions.

    Args:
        sizes: of all ranges.
        cuts: where the outputs begin.
        in_groups: samples with the same value are never in two outputs.
    """

    sizes: Sequence[RangeSize]
    of_size: bool
    in_groups: bool
    wanted: Sequence[Sequence[tuple[int, int]]]

    @classmethod
    def of(cls, sizes: Sequence[RangeSize], cuts: Cuts, *, in_groups: bool) -> OutputSearch:
        """Return the search, for the numbers that the driver knows."""
        ends = [*accumulate(each.size if cuts.of_size else each.samples for each in sizes)]
        wanted: list[list[tuple[int, int]]] = [[] for _ in sizes]
        for number in range(1, cuts.count):
            begin = cuts.begin(number)
            if (place := bisect_right(ends, begin)) < len(ends):
                wanted[place].append((number, begin - (ends[place - 1] if place else 0)))
        return cls(sizes, cuts.of_size, in_groups, wanted)

    def find(self, index: int, places: Iterable[tuple[bytes, int]]) -> Iterator[Outcome]:
        """Yield (0, (number of the output, position, samples of the range before))."""
        left = iter(self.wanted[index])
        number, begin = next(left, (0, 0))
        at, last = 0, None
        for samples, (position, size) in enumerate(places):
            if not number:
                return
            value = value_of(position) if self.in_groups else position
            while number and at >= begin and value != last:
                yield 0, (number, Beginning(position, samples))
                number, begin = next(left, (0, 0))
            last = value
            at += size if self.of_size else 1

    def beginnings(self, found: Iterable[tuple[int, Beginning]], count: int) -> list[Beginning]:
        """Return the beginnings of the outputs from 1 on, from the results of all ranges.

        An output that begins behind the last sample, or the last group, of a range begins with the
        first sample of the next range. The last outputs have none if there is no such range.
        """
        before = [0, *accumulate(each.samples for each in self.sizes)]
        place_of = {number: place for place, each in enumerate(self.wanted) for number, _ in each}
        known = {number: Beginning(each.position, before[place_of[number]] + each.samples) for number, each in found}
        beginnings = list[Beginning]()
        for number in range(1, count):
            if number not in known and number in place_of:
                for place in range(place_of[number] + 1, len(self.sizes)):
                    if (first := self.sizes[place].first) is not None:
                        known[number] = Beginning(first, before[place])
                        break
            if number not in known:
                break
            beginnings.append(known[number])
        return beginnings


def _in_pieces(row: Row) -> Iterator[tuple[bytes, tuple[bytes, int, bytes]]]:
    """Yield a sample as records of at most 64 KiB; only the first has its size and its words."""
    if not row.size:  # the step leaves it out
        yield row.position + bytes(_NUMBER), (b"", 0, row.words)
    size, words, number = row.size, row.words, 0
    for data in joined(row.parts):
        for start in range(0, len(data), _PIECE):
            yield row.position + number.to_bytes(_NUMBER, "big"), (data[start : start + _PIECE], size, words)
            size, words, number = 0, b"", number + 1


def _whole(pieces: Iterable[tuple[bytes, tuple[bytes, int, bytes]]]) -> Iterator[Row]:
    """Yield the samples of sorted pieces; those of more than 32 MiB are kept in files."""
    for position, same in groupby(pieces, key=_position_of):
        _, (data, size, words) = next(same)
        if len(data) < size:
            content = chain([data], (value[0] for _, value in same))
            yield Row(position, (FieldFile.keep(content) if size > LARGE else b"".join(content),), size, words)
        else:
            yield Row(position, (data,), size, words)


def _batches(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Yield samples in lists of about 256 KiB."""
    held, size = list[Row](), 0
    for row in rows:
        held.append(row)
        size += row.size
        if size >= _BATCH:
            yield held
            held, size = [], 0
    if held:
        yield held


def _position_of(piece: tuple[bytes, Any]) -> bytes:
    return piece[0][:-_NUMBER]
