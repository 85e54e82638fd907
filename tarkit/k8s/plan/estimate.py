"""How long a run over shards will take, and what it will cost: arithmetic on what was measured.

Nothing is looked up and nothing is guessed: what is not known stays None, and is said to be unknown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tarkit.errors import UsageError
from tarkit.store.entries import identify

POD_START = 10.0
"""Seconds from the creation of a pod to the start of its command, the image being on the node."""

PODS_PER_SECOND = 10.0
"""Pods that a cluster's controllers begin and end in a second with their default settings."""

_AT_ONCE = 16


@dataclass(frozen=True)
class Price:
    """What an hour of one CPU, and of one GiB of memory, costs in the user's money; spot_factor: by how much that is
    multiplied on spot nodes."""

    cpu_hour: float
    gib_hour: float = 0.0
    spot_factor: float = 1.0

    @classmethod
    def of(cls, config: Mapping[str, float]) -> Price | None:
        """From ``price:`` of the configuration, which knows the names; None if nothing is there.

        Raises:
            UsageError: the price of a CPU is not.
        """
        if not config:
            return None
        if "cpu_hour" not in config:
            raise UsageError("price: has no cpu_hour; say what an hour of one CPU costs")
        return cls(**config)


@dataclass(frozen=True)
class Estimate:
    """Of a run. waves: rounds of pods. slice_seconds: work in one pod. seconds: from start to end.
    cpu_hours, gib_hours: what the pods hold while they are there. cost: None without prices.

    Of what was not measured, all but ``waves`` is None.
    """

    waves: int
    slice_seconds: float | None
    seconds: float | None
    cpu_hours: float | None
    gib_hours: float | None
    cost: float | None


def estimate(
    n: int,
    total_bytes: int | None,
    w: int,
    p: int,
    *,
    seconds_per_shard: float | None = None,
    seconds_per_byte: float | None = None,
    cpus: float = 1.0,
    memory_gib: float = 0.0,
    price: Price | None = None,
    spot: bool = False,
) -> Estimate:
    """Time and cost of ``n`` shards in ``w`` slices, ``p`` of them at a time.

    Assumes that slices have about the same work; that p pods are there from the beginning to the end (no
    queue, no node to wait for); that a pod starts in ``POD_START`` seconds, which it pays for; that the controllers
    turn over ``PODS_PER_SECOND``; and that nothing has to be done twice. Seconds by bytes win over seconds
    by shard if the bytes are known.

    Raises:
        UsageError: not n >= 0, w >= 1 and p >= 1.
    """
    if n < 0 or w < 1 or p < 1:
        raise UsageError(f"{n} shards in {w} slices, {p} at a time: none of the last two can be below 1")
    waves = -(-w // p)
    work: float | None = None
    if seconds_per_byte is not None and total_bytes is not None:
        work = seconds_per_byte * total_bytes
    elif seconds_per_shard is not None:
        work = seconds_per_shard * n
    if work is None:
        return Estimate(waves, None, None, None, None, None)
    in_slice = work / w
    seconds = max(waves * (in_slice + POD_START), w / PODS_PER_SECOND)
    hours = w * (in_slice + POD_START) / 3600
    cost = None
    if price is not None:
        cost = hours * (cpus * price.cpu_hour + memory_gib * price.gib_hour) * (price.spot_factor if spot else 1.0)
    return Estimate(waves, in_slice, seconds, hours * cpus, hours * memory_gib, cost)


@dataclass(frozen=True)
class Bytes:
    """How many bytes the shards have. total: None if that is unknown. sampled: shards that were asked, all
    others being taken to be like them; 0: the total is exact."""

    total: int | None
    sampled: int = 0


def sizes_of(urls: Sequence[str]) -> list[int | None]:
    """The bytes of each shard, by asking its store, 16 at a time; None where the store does not say.

    Raises:
        MissingInputError: a shard is not there. StreamError, TemporaryStreamError: its store cannot be asked.
    """
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sizes") as executor:
        return [identity.size for identity in executor.map(identify, urls)]


def bytes_of(urls: Sequence[str], *, of: int | None = None) -> Bytes:
    """The bytes of shards together.

    of: how many shards there are, if ``urls`` is a sample of them, from which the rest is extrapolated.

    Raises:
        MissingInputError, StreamError, TemporaryStreamError: as ``sizes_of``.
    """
    sizes = sizes_of(urls)
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or not sizes:
        return Bytes(None)
    if of is None or of == len(sizes):
        return Bytes(sum(known))
    return Bytes(round(sum(known) / len(known) * of), sampled=len(known))


def spread(n: int, count: int) -> list[int]:
    """``count`` numbers below ``n``, evenly spread, in order; all of them if there are fewer."""
    count = min(n, count)
    return [(2 * index + 1) * n // (2 * count) for index in range(count)]
