"""``tarkit shuffle``: write all samples in a random order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tarkit.exchange.placing import PlacedStep
from tarkit.exchange.positions import PlaceOf, shuffled


@dataclass(frozen=True)
class Shuffle(PlacedStep):
    """Write the samples in a random order: all orders have the same probability.

    Attributes:
        seed: number that decides the order.
    """

    name: ClassVar[str] = "shuffle"
    seed: int = 0

    def options(self) -> dict[str, Any]:
        return {**super().options(), "seed": self.seed}

    def order_of(self, shard: int) -> PlaceOf:
        return shuffled(self.seed, shard)
