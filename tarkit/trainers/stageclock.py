"""Time that a worker spends in each stage of making batches, in memory that the loop reads."""

from __future__ import annotations

from time import perf_counter_ns, process_time_ns
from typing import NamedTuple

from tarkit.samples.indexedshard import ReadCounts
from tarkit.trainers.sharednumbers import SharedNumbers

STAGES = "ordering", "fetching", "reading", "decoding", "collating", "idle"
"""Where a worker's time goes: to the order of the samples; to waiting for the network; to reading
samples; to decoding and ``transform``; to ``collate``; and between two batches, when the worker
waits until it is asked for the next one.
"""
ORDERING, FETCHING, READING, DECODING, COLLATING, IDLE = range(len(STAGES))

_HEAD = 5
"""Turn, batches, samples, bytes and processor time, in front of the stages of a worker's row."""
_WIDTH = _HEAD + len(STAGES)
_BATCHES = 8192
_PROCESSOR_EVERY = 10_000_000
"""Nanoseconds between two looks at the processor time, which take longer than those at a clock."""


class WorkerTimes(NamedTuple):
    """What a worker did in this iteration, up to the last batch that it has made.

    Attributes:
        batches, samples, bytes: numbers of what it read, also of batches that wait for the loop.
        processor: nanoseconds of processor time of all its threads.
        stages: nanoseconds in each stage, in the order of ``STAGES``.
    """

    batches: int = 0
    samples: int = 0
    bytes: int = 0
    processor: int = 0
    stages: tuple[int, ...] = (0,) * len(STAGES)


class WorkerNumbers(SharedNumbers):
    """Numbers that the workers of a loader write: of each worker, and of the last 8192 batches.

    Each number has one writer. Only a worker of the last iteration writes.

    Args:
        workers: number of workers, at least 1.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._sizes = 1 + workers * _WIDTH
        super().__init__(self._sizes + 2 * _BATCHES)

    @property
    def turn(self) -> int:
        """Number of the iteration."""
        turn: int = self[0]
        return turn

    def begin(self) -> None:
        """Begin an iteration: workers of earlier ones do not write any more."""
        self[0] += 1

    def note(self, worker: int, row: list[int]) -> None:
        """Store a worker's row, which begins with its turn."""
        at = 1 + worker * _WIDTH
        self[at : at + _WIDTH] = row

    def note_size(self, batch: int, samples: int, size: int) -> None:
        """Store how many samples a batch has, and their bytes in the shards."""
        at = self._sizes + batch % _BATCHES * 2
        self[at : at + 2] = [samples, size]

    def size_of(self, batch: int) -> tuple[int, int]:
        """Return the samples and bytes of a batch that was received."""
        at = self._sizes + batch % _BATCHES * 2
        samples, size = self[at : at + 2]
        return samples, size

    def times(self) -> list[WorkerTimes]:
        """Return the times of each worker in this iteration."""
        turn, found = self.turn, []
        for at in range(1, self._sizes, _WIDTH):
            row = self[at : at + _WIDTH]
            its_turn, batches, samples, size, processor, *stages = row
            found.append(
                WorkerTimes(batches, samples, size, processor, tuple(stages)) if its_turn == turn else WorkerTimes()
            )
        return found

    def __getstate__(self) -> dict[str, object]:
        return super().__getstate__() | {"workers": self._workers}

    def __setstate__(self, state: dict[str, object]) -> None:
        super().__setstate__(state)
        self._workers = int(str(state["workers"]))
        self._sizes = 1 + self._workers * _WIDTH


class StageClock:
    """A clock that attributes a worker's time to stages.

    The clock is read once a stage and batch, and not for each sample. Until it is attached to the
    numbers of a loader, nothing is recorded.

    Args:
        reads: counts of the reads of the samples. Their time of fetching is taken from the stage in
            which it was spent.
    """

    def __init__(self, reads: ReadCounts) -> None:
        self._reads = reads
        self._numbers: WorkerNumbers | None = None

    def attach(self, numbers: WorkerNumbers, worker: int) -> None:
        """Begin an iteration of a loader as its worker of this number."""
        self._numbers, self._worker = numbers, worker
        self._row = [0] * _WIDTH
        self._row[0] = numbers.turn
        self._fetched = self._reads.fetching
        self._began = process_time_ns()
        self._last = self._look = perf_counter_ns()
        self._bytes = self._reads.bytes

    def lap(self, stage: int) -> None:
        """Attribute the time since the last call to a stage, and that of waiting to fetching."""
        if self._numbers is not None:
            now, fetched = perf_counter_ns(), self._reads.fetching
            waited, self._fetched = fetched - self._fetched, fetched
            self._row[_HEAD + FETCHING] += waited
            self._row[_HEAD + stage] += now - self._last - waited
            self._last = now

    def finish(self, batch: int, samples: int) -> None:
        """Record that a batch was made, under its number, and all times up to now."""
        numbers = self._numbers
        if numbers is None or numbers.turn != self._row[0]:
            return
        row, size = self._row, self._reads.bytes - self._bytes
        self._bytes += size
        row[1] += 1
        row[2] += samples
        row[3] += size
        if self._last >= self._look:
            self._look = self._last + _PROCESSOR_EVERY
            row[4] = process_time_ns() - self._began
        numbers.note_size(batch, samples, size)
        numbers.note(self._worker, row)

    def __getstate__(self) -> dict[str, object]:
        return {"_reads": self._reads, "_numbers": None}  # a worker is attached where it begins
