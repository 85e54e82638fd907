"""The outputs of an exchange: their names, and where among the sorted samples they begin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate

from tarkit.errors import UsageError, counted
from tarkit.exchange.settings import CUTS, ExchangeSettings
from tarkit.formats.tar.headers import END_OF_ARCHIVE, RECORD
from tarkit.specs.inputset import InputSet

_NAME = "shard-{:06d}.tar"
_PATTERN = "shard-{{000000..{:06d}}}.tar"


@dataclass(frozen=True)
class Cuts:
    """Where the outputs begin among the sorted samples.

    Attributes:
        count: number of outputs.
        of_size: beginnings are numbers of bytes of the samples before; False: of samples.
        begin: function from the number of an output to its beginning.
    """

    count: int
    of_size: bool
    begin: Callable[[int], int]


@dataclass(frozen=True)
class Outputs:
    """The outputs of a step with some settings.

    Attributes:
        named: names that the step gives; empty: outputs are numbered.
        settings: settings of the exchange.

    Raises:
        UsageError: the settings do not say by one number how outputs are cut, or they say so for
            outputs that are named.
    """

    named: tuple[str, ...]
    settings: ExchangeSettings

    def __post_init__(self) -> None:
        given = [name for name in CUTS if getattr(self.settings, name) is not None]
        if self.named:
            if given:
                raise UsageError(f"{given[0]} does not go with outputs that are named")
        elif len(given) != 1:
            found = " and ".join(given) or "none"
            raise UsageError(f"give one of shards, maxcount and maxsize, which cut the outputs; given: {found}")

    def name(self, number: int) -> str:
        """Return the file name of an output."""
        return self.named[number] if self.named else _NAME.format(number)

    def names(self, count: int) -> InputSet:
        """Return the file names of all outputs, for a run record."""
        return InputSet.of_names(self.named) if self.named else numbered_names(count)

    def cuts(self, samples: int, size: int, largest: int, placed: Mapping[int, int] | None = None) -> Cuts:
        """Return where the outputs begin.

        Args:
            samples: number of all samples.
            size: bytes of their members.
            largest: bytes of the largest sample.
            placed: number of a named output -> number of its samples.

        Raises:
            UsageError: there are fewer samples than outputs.
        """
        if self.named:
            numbers = ((placed or {}).get(number, 0) for number in range(len(self.named)))
            begins = [*accumulate(numbers, initial=0)]
            return Cuts(len(self.named), False, begins.__getitem__)
        count, most = self.settings.shards, self.settings.maxcount
        if count is not None:
            if samples < count:
                raise UsageError(f"{counted(samples, 'sample')} cannot fill {counted(count, 'shard')}")
            shards = count
            return Cuts(shards, False, lambda number: -(-samples * number // shards))
        if most is not None:
            each = most
            return Cuts(-(-samples // each), False, lambda number: each * number)
        # Of the bytes before a sample, its share decides; so an output has its share, and a part of
        # one sample more.
        limit = (self.settings.maxsize or 1) // RECORD * RECORD - len(END_OF_ARCHIVE)
        number_of = min(-(-size // max(limit - largest, limit // 2, 1)), samples)
        return Cuts(number_of, True, lambda number: -(-size * number // number_of))


def numbered_names(count: int) -> InputSet:
    """Return the file names of numbered outputs."""
    return InputSet(count, (_PATTERN.format(count - 1),))
