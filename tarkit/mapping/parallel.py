"""An ordered parallel map whose memory is bounded in bytes.

The order of the answers is the order of the questions, whatever runs at the same time, so
that the output of a run does not depend on how many slots it had.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tarkit.formats.fieldfile import FieldFile
from tarkit.mapping.output import Printed
from tarkit.samples.sample import Sample

Batch = list[Sample]


@dataclass
class Failure:
    """Why a batch came to nothing.

    kind: one word: exit, signal, timeout, shell-died, exception, folder, too-large. message: for people,
    one line. code: exit code of the command, or None.
    """

    kind: str
    message: str
    code: int | None = None


@dataclass
class Outcome:
    """What came of one batch.

    made: for each sample of the batch, the samples that were made of it; empty if filtered out.
    It is meaningful only without failure, or where failures are ignored. printed: what the
    command printed. stray: names of files that were left but belong to no sample.
    """

    made: list[list[Sample]]
    printed: Printed
    failure: Failure | None = None
    stray: list[str] = field(default_factory=list)


class Pool(Protocol):
    """Runs batches, several at a time. One thread uses it."""

    def has_room(self) -> bool:
        """Whether submit() would take one more batch now."""

    def submit(self, ticket: int, batch: Batch) -> None:
        """Take a batch; its outcome will carry the ticket."""

    def collect(self) -> list[tuple[int, Outcome]]:
        """Wait until at least one batch that was taken is finished, and give all that are."""


def content_bytes(samples: Iterable[Sample]) -> int:
    """Bytes of all fields, also of those in files, plus a little for each sample itself."""
    total = 0
    for sample in samples:
        total += 1000
        for value in sample.values():
            if isinstance(value, (bytes, str, FieldFile)):
                total += len(value)
    return total


def in_batches(samples: Iterable[Sample], size: int) -> Iterator[Batch]:
    """Lists of ``size`` samples, the last one perhaps shorter."""
    batch: Batch = []
    for sample in samples:
        batch.append(sample)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


def ordered_map(batches: Iterable[Batch], pool: Pool, *, window: int) -> Generator[tuple[Batch, Outcome], None, None]:
    """Each batch with its outcome, in the order of the batches.

    Args:
        batches: drawn one at a time, and only when there is room for one.
        pool: where they run.
        window: bytes of samples that are held at most: those that wait for a slot, that run, and
            that are finished but wait for an earlier one. A single batch may exceed it.
    """
    source = iter(batches)
    waiting: deque[tuple[int, Batch, int]] = deque()  # ticket, batch, bytes; in input order
    finished: dict[int, tuple[Outcome, int]] = {}
    held = 0
    ticket = 0
    exhausted = False
    drawn: tuple[Batch, int] | None = None
    while True:
        # A pool that holds nothing has room for a batch.
        while not exhausted and (not waiting or pool.has_room()):
            if drawn is None:
                batch = next(source, None)
                if batch is None:
                    exhausted = True
                    break
                drawn = batch, content_bytes(batch)
            if waiting and held + drawn[1] > window:
                break
            pool.submit(ticket, drawn[0])
            waiting.append((ticket, *drawn))
            held += drawn[1]
            ticket += 1
            drawn = None
        if not waiting:
            return
        first = waiting[0][0]
        while first not in finished:
            for done, outcome in pool.collect():
                size = sum(map(content_bytes, outcome.made)) + outcome.printed.held
                finished[done] = outcome, size
                held += size
            if not exhausted and pool.has_room() and held < window:
                break
        while waiting and waiting[0][0] in finished:
            done, batch, size = waiting.popleft()
            outcome, made_size = finished.pop(done)
            yield batch, outcome
            held -= size + made_size
