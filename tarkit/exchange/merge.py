"""Merge run files: the samples of all of them in the order of their positions, from any one on."""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from operator import itemgetter

from tarkit.exchange.runfile import ROW_BYTES, Block, Row, RunFile
from tarkit.store.waits import Workers

_position = itemgetter(0)
_BATCH = 256
"""Most samples that are passed on at once."""


class Merge:
    """The samples of several run files, in the order of their positions.

    Args:
        runs: the run files.
        mem: bytes of memory for samples.
        parallel: number of requests at once.

    Attributes:
        samples: number of samples.
        size: bytes of their members.
    """

    def __init__(self, runs: Sequence[RunFile], mem: int, parallel: int = 1) -> None:
        self._runs, self._mem, self._parallel = runs, mem, parallel
        self.samples = sum(block.samples for run in runs for block in run.blocks)
        self.size = sum(block.size for run in runs for block in run.blocks)

    def rows(self, start: int = 0, *, of_size: bool = False) -> Iterator[tuple[int, Row]]:
        """Yield (number, sample) for the samples from a number on, as :meth:`batches` does."""
        for at, rows in self.batches(start, of_size=of_size):
            for row in rows:
                yield at, row
                at += row.size if of_size else 1

    def batches(self, start: int = 0, *, of_size: bool = False) -> Iterator[tuple[int, list[Row]]]:
        """Yield the samples from a number on, some at a time, with the number of the first of them.

        Each block is read once. Some that begin before the first wanted sample are read, too: where
        they end among those of the other run files, only their samples show.

        Args:
            start: number of the first wanted sample, from 0.
            of_size: the number of a sample is that of the bytes of the samples before it.
        """
        at, begin = self._begin(start, of_size)
        for rows in self._sorted(begin):
            if skipped := count_before(rows, start - at, of_size):
                at += measure(rows[:skipped], of_size)
                del rows[:skipped]
            if rows:
                yield at, rows
                at += measure(rows, of_size)

    def _begin(self, start: int, of_size: bool) -> tuple[int, list[int]]:
        """Return the first block to read of each run file, and the number of its samples before.

        Take as many blocks by their first positions as have no more samples than ``start``. All
        samples before the next block's first position are in them, so none of these is wanted. Of
        each run file, only the last of these blocks can have samples behind that position.
        """
        begin, passed = [-1] * len(self._runs), 0
        total = 0
        for block, run in self._by_first([0] * len(self._runs)):
            length = block.size if of_size else block.samples
            if total + length > start:
                break
            total += length
            if begin[run] >= 0:
                last = self._runs[run].blocks[begin[run]]
                passed += last.size if of_size else last.samples
            begin[run] += 1
        return passed, [max(0, number) for number in begin]

    def _by_first(self, begin: Sequence[int]) -> Iterator[tuple[Block, int]]:
        """Yield the blocks of all run files, from one on in each, by their first positions."""
        each = ([(block, number) for block in run.blocks[begin[number] :]] for number, run in enumerate(self._runs))
        return heapq.merge(*each)

    def _sorted(self, begin: Sequence[int]) -> Iterator[list[Row]]:
        """Yield the samples of the blocks from one on in each run file, some at a time."""
        wanted: dict[int, list[Block]] = {}
        carried: list[Row] = []
        memory = 0
        for block, run in chain(self._by_first(begin), [(None, 0)]):
            if wanted and (block is None or memory + block.memory > self._mem):
                rows = carried
                rows += chain.from_iterable(self._read(wanted))
                rows.sort(key=_position)
                # The blocks that are left may have samples from here on.
                cut = len(rows) if block is None else bisect_left(rows, block.first, key=_position)
                carried = rows[cut:]
                del rows[cut:]
                rows.reverse()
                while rows:
                    # Taken from the end, so that their memory is free when they are written.
                    yield rows[: -_BATCH - 1 : -1]
                    del rows[-_BATCH:]
                wanted, memory = {}, sum(row.size + len(row.position) + ROW_BYTES for row in carried)
            if block is not None:
                wanted.setdefault(run, []).append(block)
                memory += block.memory

    def _read(self, wanted: dict[int, list[Block]]) -> Iterator[Iterator[Row] | list[Row]]:
        """Read adjacent blocks of several run files, with one request for each file."""
        if self._parallel == 1:
            for run, blocks in wanted.items():
                yield self._runs[run].rows(blocks)
            return
        with Workers(self._parallel, "tarkit-gather") as workers:
            yield from workers.ahead(
                lambda item: [*self._runs[item[0]].rows(item[1])], wanted.items(), 2 * self._parallel
            )


def measure(rows: Sequence[Row], of_size: bool) -> int:
    """Return the bytes of samples, or their number."""
    return sum(row.size for row in rows) if of_size else len(rows)


def count_before(rows: Sequence[Row], number: int, of_size: bool) -> int:
    """Return how many of some samples come before a number that is counted from their first.

    Args:
        rows: the samples.
        number: the number; below 0: none come before.
        of_size: numbers are those of bytes, not of samples.
    """
    if number <= 0 or not of_size:
        return min(max(0, number), len(rows))
    return bisect_left([*accumulate((row.size for row in rows), initial=0)], number, 0, len(rows))
