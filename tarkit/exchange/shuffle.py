"""``tarkit shuffle``: write all samples in a random order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from tarkit.exchange.positions import PlaceOf, shuffled
from tarkit.exchange.step import Step


@dataclass(frozen=True)
class Shuffle(Step):
    """Write the samples in a random order: all orders have the same probability.

    Attributes:
        seed: number that decides the order.
    """

    name: ClassVar[str] = "shuffle"
    seed: int = 0

    def options(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def place_of(self, shard: int) -> PlaceOf:
        return shuffled(self.seed, shard)
