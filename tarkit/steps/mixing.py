"""Mix several data sets by weights, into one order of samples that a seed decides.

Sample j of a set of weight w is due at the time (j + u) / w, with a random u from 0 to 1, and the
samples come by their times. So the order is random, and in each part of the output every set has
its share, within one sample or two.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tarkit.errors import RepeatedKeyError, UsageError, printable
from tarkit.samples.sample import Sample

FIRST, LAST = "first", "last"
"""When a mix ends: with the first set that has no sample for its turn, or with the last one."""


@dataclass
class MixedSet:
    """A data set of a mix.

    Attributes:
        samples: its samples, in order.
        weight: its share of the mix, relative to those of the other sets.
        name: its name, for messages.
        prefix: text before its keys.
        taken: number of samples taken so far.
        is_over: True if it has no more samples; False if that is not known.
    """

    samples: Iterable[Sample]
    weight: float
    name: str
    prefix: str = ""
    taken: int = 0
    is_over: bool = False


def mix_samples(sets: Sequence[MixedSet], *, seed: int = 0, until: str = FIRST) -> Iterator[Sample]:
    """Yield the samples of several data sets by weights; no sample comes twice.

    Unless their prefixes keep the sets apart, all keys are kept in memory, to find one that two
    sets have.

    Args:
        sets: the data sets, whose numbers are updated.
        seed: number that decides on the order.
        until: FIRST, or LAST: sets that are over drop out, and the others go on by their weights.

    Raises:
        UsageError: there are fewer than two sets, or a weight is not a positive number.
        RepeatedKeyError: two sets have a key.
    """
    if len(sets) < 2:
        raise UsageError("a mix takes two data sets or more")
    if wrong := next((each for each in sets if not 0 < each.weight < math.inf), None):
        raise UsageError(f"the weight of {printable(wrong.name)} is {wrong.weight:g}; it must be a number above 0")
    # If no prefix begins with another prefix, no two sets can have the same key.
    prefixes = sorted(each.prefix for each in sets)
    is_apart = not any(after.startswith(before) for before, after in pairwise(prefixes))
    return _mixed(sets, seed, until, None if is_apart else {})


def _mixed(sets: Sequence[MixedSet], seed: int, until: str, seen: dict[str, int] | None) -> Iterator[Sample]:
    draws = [random.Random(f"mix {seed} {number}") for number in range(len(sets))]
    sources = [iter(each.samples) for each in sets]
    due = [(draw.random() / each.weight, number) for number, (each, draw) in enumerate(zip(sets, draws, strict=True))]
    heapq.heapify(due)
    while due:
        _, number = due[0]
        each = sets[number]
        sample = next(sources[number], None)
        if sample is None:
            each.is_over = True
            if until == FIRST:
                return
            heapq.heappop(due)
            continue
        each.taken += 1
        heapq.heapreplace(due, ((each.taken + draws[number].random()) / each.weight, number))
        sample = {**sample, "__key__": each.prefix + sample["__key__"]}
        if seen is not None and seen.setdefault(sample["__key__"], number) != number:
            other = sets[seen[sample["__key__"]]].name
            reason = f"the key is in {printable(other)} too"
            hint = "put a text before the keys of each set, with --prefixes a-,b-"
            raise RepeatedKeyError(reason, url=sample.get("__url__"), key=sample["__key__"], hint=hint)
        yield sample
