"""Match: merge the digests of all samples, and mark those that an earlier sample equals.

The marks of a part of the digests are a run file, sorted by the places of their samples.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Generator, Iterator, Sequence
from copy import copy
from typing import NamedTuple

from tarkit.exchange.digests import KEPT
from tarkit.exchange.merge import Merge
from tarkit.exchange.positions import FAILED, ORDINAL, failure, ordinal, shard_and_number, value_of
from tarkit.exchange.runfile import Row, RunFile
from tarkit.exchange.slicereader import RowSource
from tarkit.specs.shardspec import take_slice

DUPLICATE, UNCOMPARED, REFUSED = b"D", b"K", b"R"
"""Kinds of marks: the sample equals an earlier one; it is kept without a digest; it has failed."""


class Mark(NamedTuple):
    """What is special about a sample.

    Attributes:
        shard: number of its input.
        number: its number there.
        kind: DUPLICATE, UNCOMPARED or REFUSED.
        key: its key.
        reason: why it has no digest.
        first: of a duplicate, number of the input of the first sample with this digest.
        first_key: its key.
        digest: their digest.
    """

    shard: int
    number: int
    kind: bytes
    key: str
    reason: str = ""
    first: int = 0
    first_key: str = ""
    digest: bytes = b""


class Match(RowSource):
    """The match of one of as many parts as there are slices.

    Args:
        digests: the digests of all slices.
        number: number of the part.
        parts: number of parts.
    """

    def __init__(self, digests: Merge, number: int, parts: int) -> None:
        super().__init__()
        self._digests = digests
        self._part = take_slice(digests.samples, number, parts)

    def rows(self) -> Generator[Row, None, None]:
        """Yield what the part finds, with positions."""
        first = Row(b"", (), 0, b"")
        for row in self._own():
            self.tally.samples += 1
            position = row.position
            if failure(position) is not None:
                place = position[len(FAILED) : len(FAILED) + ORDINAL]
                yield _mark_row(place, REFUSED, row.words, position[len(FAILED) + ORDINAL :])
            elif position.startswith(KEPT):
                yield _mark_row(position[-ORDINAL:], UNCOMPARED, row.words, value_of(position)[1:])
            elif value_of(position) != value_of(first.position):
                first = row
            else:
                found = first.position[-ORDINAL:] + value_of(position)[1:]
                yield _mark_row(position[-ORDINAL:], DUPLICATE, row.words, first.words, found)

    def _own(self) -> Iterator[Row]:
        """Yield the rows of the values that begin in this part."""
        last, is_own = None, False
        # The row before shows if a value began there.
        for number, row in self._digests.rows(max(0, self._part.start - 1)) if self._part else ():
            value = value_of(row.position)
            if value != last:
                if number >= self._part.stop:
                    return
                last, is_own = value, number >= self._part.start
            if is_own:
                yield row


def _mark_row(place: bytes, kind: bytes, key: bytes, text: bytes, more: bytes = b"") -> Row:
    return Row(place + kind + more, (), 0, key + b"\0" + text)


def _mark_of(row: Row) -> Mark:
    place, kind, more = row.position[:ORDINAL], row.position[ORDINAL : ORDINAL + 1], row.position[ORDINAL + 1 :]
    key, text = (each.decode("utf-8", "surrogateescape") for each in row.words.split(b"\0", 1))
    shard, number = shard_and_number(place)
    if kind != DUPLICATE:
        return Mark(shard, number, kind, key, text)
    return Mark(shard, number, kind, key, "", shard_and_number(more[:ORDINAL])[0], text, more[ORDINAL:])


def read_marks(runs: Sequence[RunFile], shards: range, mem: int) -> Iterator[Mark]:
    """Yield the marks of the samples of adjacent inputs, in input order.

    Args:
        runs: the marks of all parts.
        shards: numbers of the inputs.
        mem: bytes of memory for marks.
    """
    begin, end = ordinal(shards.start, 0), ordinal(shards.stop, 0)
    parts = list[RunFile]()
    for run in runs:
        firsts = [block.first for block in run.blocks]
        part = copy(run)
        part.blocks = run.blocks[max(0, bisect_right(firsts, begin) - 1) : bisect_left(firsts, end)]
        parts.append(part)
    for _, row in Merge(parts, mem).rows():
        if row.position >= end:
            return
        if row.position >= begin:
            yield _mark_of(row)
