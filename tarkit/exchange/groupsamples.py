"""The samples of one group, which can be read several times: few are in memory, many in a file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from tarkit.exchange.runfile import ROW_BYTES, Row, RunFile, write_run
from tarkit.samples.sample import Sample

_BLOCK_SIZE = 256 * 1024


class GroupSamples:
    """The samples of one group.

    Args:
        rows: its samples, all of which are taken.
        sample_of: function that makes a sample of a row.
        path: path of the file for samples above the limit.
        limit: bytes of samples to hold in memory.

    Attributes:
        count: number of samples.
        held: the samples, if they are in memory.

    Raises:
        StreamError: the file cannot be written.
    """

    def __init__(self, rows: Iterable[Row], sample_of: Callable[[Row], Sample], path: str, limit: int) -> None:
        self._sample_of, self._path = sample_of, path
        self._run: RunFile | None = None
        self.held: list[Sample] = []
        self.count = 0
        first, size = list[Row](), 0
        for row in rows:
            first.append(row)
            size += row.size + ROW_BYTES
            if size > limit:
                self._run = self._written(chain(_taken(first), rows))
                return
        self.held = [sample_of(row) for row in first]
        self.count = len(first)

    def _written(self, rows: Iterable[Row]) -> RunFile:
        run = write_run(self._path, rows, _BLOCK_SIZE)
        self.count = sum(block.samples for block in run.blocks)
        return run

    def samples(self) -> Iterator[Sample]:
        """Yield the samples, in order; each call begins anew.

        Raises:
            DataError, StreamError: the file cannot be read.
        """
        if self._run is None:
            for sample in self.held:
                yield dict(sample)
            return
        for block in self._run.blocks:
            for row in self._run.rows([block]):
                yield self._sample_of(row)

    def discard(self) -> None:
        """Remove the file, if there is one."""
        if self._run is not None:
            self._run = None
            os.unlink(self._path)
        self.held = []


def _taken(rows: list[Row]) -> Iterator[Row]:
    """Yield rows, each of which is then no longer in the list."""
    rows.reverse()
    while rows:
        yield rows.pop()
