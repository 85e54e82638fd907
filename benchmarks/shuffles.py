"""Print how good the shuffles of tarkit.trainers.order are, as the table of docs/order.md."""

from __future__ import annotations

from itertools import pairwise
from random import Random
from statistics import fmean, pstdev

from tarkit.trainers.order import EpochOrder, OrderSettings, Place

SHARDS, SAMPLES, BATCH = 200, 1000, 256


def row(name: str, order: list[Place], following: list[Place]) -> str:
    """The measures of one order.

    Args:
        following: that of the next epoch.
    """
    numbers = [place.shard * SAMPLES + place.sample for place in order]
    batches = [numbers[at : at + BATCH] for at in range(0, len(numbers), BATCH)]
    neighbours = fmean(a // SAMPLES == b // SAMPLES for a, b in pairwise(numbers))
    successors = fmean(b == a + 1 for a, b in pairwise(numbers))
    shards = fmean(len({number // SAMPLES for number in batch}) for batch in batches)
    spread = pstdev(map(fmean, batches)) / (pstdev(numbers) / BATCH**0.5)
    batch_of = {place.shard * SAMPLES + place.sample: at // BATCH for at, place in enumerate(following)}
    again = fmean(batch_of.get(a) == batch_of.get(b) for batch in batches for a, b in pairwise(batch))
    early = len({number // SAMPLES for number in numbers[:10_000]})
    return f"| {name} | {neighbours:.1%} | {successors:.2%} | {shards:.0f} | {spread:.1f} | {early} | {again:.2%} |"


def epoch(number: int, **settings: int) -> list[Place]:
    order = EpochOrder([SAMPLES] * SHARDS, OrderSettings(BATCH, seed=0, **settings), number)
    return [place for batch in range(order.batches) for place in order.batch(batch)]


def main() -> None:
    """Print the table."""
    print(
        "| order | neighbours of one shard | successors | shards in a batch | spread of batch means ÷ that of chance",
        end="",
    )
    print(" | shards in the first 10,000 | neighbours in one batch again in the next epoch |\n" + "|---" * 7 + "|")
    for name, settings in (
        ("whole shards, no block", {"run": SAMPLES, "block": 1}),
        ("whole shards, blocks of 10,000", {"run": SAMPLES}),
        ("runs of 100, blocks of 10,000", {}),
        ("... in 8 lanes (default of ShardDataset)", {"lanes": 8}),
        ("runs of 10, blocks of 10,000", {"run": 10}),
    ):
        print(row(name, epoch(0, **settings), epoch(1, **settings)))
    places = [Place(shard, sample) for shard in range(SHARDS) for sample in range(SAMPLES)]
    orders = [Random(number).sample(places, len(places)) for number in (0, 1)]
    print(row("all samples at random", *orders))


if __name__ == "__main__":
    main()
