"""``tarkit sort``: write all samples in the order of a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tarkit.exchange.placing import PlacedStep
from tarkit.exchange.positions import PlaceOf, ordinal
from tarkit.exchange.values import By, identity_of, value_of_samples

_INVERTED = bytes(range(255, -1, -1))


@dataclass(frozen=True)
class Sort(PlacedStep):
    """Write the samples in the order of a value; equal ones stay in the order of the inputs.

    Attributes:
        by: what to sort by, see :data:`tarkit.exchange.values.By`.
        reverse: the largest value comes first; equal ones stay in the order of the inputs.
        work_id: name for what a function does that has no name of its own.

    Raises:
        UsageError: ``by`` is not valid, or names a function that cannot be loaded.
    """

    name: ClassVar[str] = "sort"
    by: By = "key"
    reverse: bool = False
    work_id: str | None = None

    def __post_init__(self) -> None:
        value_of_samples(self.by)
        self.options()

    def options(self) -> dict[str, Any]:
        return {**super().options(), **identity_of(self.by, self.work_id), "reverse": self.reverse}

    def order_of(self, shard: int) -> PlaceOf:
        value = value_of_samples(self.by)
        if self.reverse:
            return lambda sample, number: value(sample).translate(_INVERTED) + ordinal(shard, number)
        return lambda sample, number: value(sample) + ordinal(shard, number)
