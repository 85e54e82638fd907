"""The numbers of a data set's chosen samples, for each shard."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate, pairwise

from tarkit.errors import DataError, UsageError, counted, printable

Numbers = range | array  # type: ignore[type-arg] # array is generic only for type checkers
"""Ascending numbers of the chosen samples of a shard."""


class Subset:
    """The chosen samples of some shards.

    Args:
        numbers: for each shard, the numbers of its chosen samples.

    Attributes:
        numbers: for each shard, the numbers of its chosen samples.
        counts: number of chosen samples of each shard.
    """

    def __init__(self, numbers: Sequence[Numbers]) -> None:
        self.numbers = list(map(compact, numbers))
        self.counts = list(map(len, self.numbers))

    @classmethod
    def parsed(cls, texts: Sequence[str], counts: Sequence[int]) -> Subset:
        """Parse :meth:`texts`.

        Args:
            texts: text of each shard.
            counts: number of samples of each shard.

        Raises:
            DataError: a text is not that of numbers of samples.
        """
        try:
            return cls([array("I", _in_text(text, count)) for text, count in zip(texts, counts, strict=True)])
        except (ValueError, OverflowError):
            raise DataError("the numbers of the chosen samples are not those of these shards") from None

    def own(self, shard: int, number: int) -> int:
        """Return the number of a chosen sample among all samples of its shard.

        Raises:
            IndexError: there is no such sample.
        """
        if number < 0:
            raise IndexError(number)
        return self.numbers[shard][number]

    def places(self, samples: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return (shard, number among all its samples) of chosen samples."""
        return [(shard, self.numbers[shard][number]) for shard, number in samples]

    def texts(self) -> list[str]:
        """Return for each shard its numbers as text: ``0-3 7 9-12``, or ``0-98/2`` with a step."""
        return list(map(_as_text, self.numbers))

    def digest(self) -> str:
        """Return a digest, which is equal for equal samples."""
        return digest_of_texts(map(_as_text, self.numbers))

    def part(self, numbers: range | slice) -> Subset:
        """Return the subset of the chosen samples with these numbers.

        Args:
            numbers: numbers among all chosen samples, shard after shard, with or without a step.

        Raises:
            UsageError: the numbers do not ascend, are not all in the data set, or there are none.
        """
        wanted = _checked_range(numbers, sum(self.counts))
        ends = accumulate(self.counts)
        return Subset([_part(wanted, end - len(own), own) for end, own in zip(ends, self.numbers, strict=True)])


def digest_of_texts(texts: Iterable[str]) -> str:
    """Return the digest of a subset from its :meth:`Subset.texts`."""
    digest = blake2b(digest_size=8)
    for text in texts:
        digest.update(f"{text}\n".encode())
    return digest.hexdigest()


def _checked_range(numbers: range | slice, count: int) -> range:
    if isinstance(numbers, slice):
        numbers = range(*numbers.indices(count))
    if not isinstance(numbers, range) or numbers.step < 1:
        raise UsageError(f"the numbers are {printable(repr(numbers))}; they must be an ascending range or slice")
    if not numbers:
        raise UsageError(f"{numbers} has no number")
    if numbers[0] < 0 or numbers[-1] >= count:
        raise UsageError(f"{numbers} is not within the data set, which has {counted(count, 'sample')}")
    return numbers


def _part(numbers: range, begin: int, own: Numbers) -> Numbers:
    """Return the numbers of a shard's samples that a range over all shards chooses.

    Args:
        numbers: ascending numbers in the data set.
        begin: number in the data set of the shard's first sample.
        own: numbers in the shard of its samples.
    """
    first = max(0, -(-(begin - numbers.start) // numbers.step))
    start = numbers.start + first * numbers.step - begin
    return own[start : max(start, numbers.stop - begin) : numbers.step]


def compact(numbers: Numbers) -> Numbers:
    """Return ascending numbers as a range if their distances are equal, else unchanged."""
    if isinstance(numbers, range):
        return numbers
    if len(numbers) < 2:
        return range(numbers[0], numbers[0] + 1) if numbers else range(0)
    step = numbers[1] - numbers[0]
    if numbers[-1] - numbers[0] != step * (len(numbers) - 1) or any(b - a != step for a, b in pairwise(numbers)):
        return numbers
    return range(numbers[0], numbers[-1] + 1, step)


def _as_text(numbers: Numbers) -> str:
    if isinstance(numbers, range):
        step = f"/{numbers.step}" * (len(numbers) > 1 and numbers.step > 1)
        return _run(numbers[0], numbers[-1]) + step if numbers else ""
    runs, first = [], 0
    for at in range(1, len(numbers) + 1):
        if at == len(numbers) or numbers[at] != numbers[at - 1] + 1:
            runs.append(_run(numbers[first], numbers[at - 1]))
            first = at
    return " ".join(runs)


def _run(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _in_text(text: str, count: int) -> Iterator[int]:
    """Yield the numbers of a text.

    Raises:
        ValueError: the text is not such numbers, or they are not below ``count``.
    """
    end = 0
    for word in text.split():
        run, _, step = word.partition("/")
        first, _, last = run.partition("-")
        found = range(int(first), int(last or first) + 1, int(step or 1))
        if not found or found[0] < end:
            raise ValueError(f"{word} does not ascend")
        if found[-1] >= count:
            raise ValueError(f"{word} is not below {count}")
        yield from found
        end = found[-1] + 1
