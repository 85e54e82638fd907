"""Draw samples at random: an exact number of them, or a fraction.

The same seed draws the same samples again, with or without indexes. For a number, each sample gets
a random rank in the order of the input, and the lowest ranks are drawn. For a fraction, the hash of
seed and key decides, so that cutting the samples into other shards changes nothing.
"""

from __future__ import annotations

import heapq
import random
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing

from tarkit.errors import TemporaryStreamError, UsageError, counted
from tarkit.formats.tally import Tally
from tarkit.formats.tar.large import KeepInFiles
from tarkit.names.keywords import Unpack
from tarkit.names.url import display_name, reads_once
from tarkit.samples.read import ReadOptions, read_samples
from tarkit.samples.sample import Sample, first_dot, is_reserved, key_rule
from tarkit.steps.counting import count_shards
from tarkit.steps.lookup import fresh_indexed, samples_at
from tarkit.steps.parts import hash_share
from tarkit.store.fieldfile import SampleRoom

_FEW = 0.1
"""Largest part of a shard's samples that are read one by one: more are read with the others."""

Select = Callable[[Iterable[Sample]], Iterator[Sample]]


def draw_fraction(
    urls: Iterable[str], fraction: float, *, seed: int = 0, parallel: int = 1, stale: list[str] | None = None,
    **options: Unpack[ReadOptions],
) -> Iterator[Sample]:  # fmt: skip
    """Yield the samples whose hash of seed and key is below a fraction, in input order.

    A key that several shards have is drawn from all of them, or from none. Of a shard with a fresh
    index only these samples are read, if they are few.

    Args:
        urls: paths and URLs of shards.
        fraction: share of the samples, above 0 and up to 1.
        seed: number that decides which samples are drawn.
        parallel: number of reads of a remote shard at once, where it has an index.
        stale: filled with the names of indexes that were not used, since they are stale.
        options: key rule and policies of :func:`tarkit.samples.read.read_samples`.

    Raises:
        UsageError: the fraction is not in this range.
        DataError: a shard is damaged, or is not what the policies allow.
        MissingInputError, StreamError, TemporaryStreamError: a shard cannot be read.
    """
    if not 0 < fraction <= 1:
        raise UsageError(f"fraction is {fraction}; it must be above 0 and at most 1")
    rule, salt = key_rule(options.get("rule", first_dot)), f"sample {seed}"
    tally = options.setdefault("tally", None) or Tally()
    for url in urls:
        by_index = fraction <= _FEW and _has_strict_policies(options)
        shard = fresh_indexed(url, rule, [] if stale is None else stale) if by_index else None
        if shard is not None:
            numbers = (number for number, key in enumerate(shard.keys()) if hash_share(salt, key) < fraction)
            yield from samples_at(shard, numbers, parallel=parallel)
            tally.samples += len(shard)
            tally.shards += 1
            continue
        for sample in _read(url, options | {"tally": tally}):
            if hash_share(salt, sample["__key__"]) < fraction:
                yield sample


def draw_number(
    urls: Iterable[str], number: int, *, seed: int = 0, select: Select | None = None, parallel: int = 1,
    stale: list[str] | None = None, **options: Unpack[ReadOptions],
) -> Iterator[Sample]:  # fmt: skip
    """Yield exactly ``number`` samples, in input order; each subset has the same probability.

    Inputs that can be read again are counted first, and only shards that have a drawn sample are
    read: single samples through a fresh index, else up to the last drawn sample. A stream, and all
    input with ``select`` or a policy, is read once: the samples drawn so far are kept, up to 64 MiB
    in memory and the rest in ``$TMPDIR``: number * (1 + ln(inputs / number))
    samples in all.

    Args:
        urls: paths and URLs of shards.
        number: number of samples to draw.
        seed: number that decides which samples are drawn.
        select: function that selects and changes samples before the draw.
        parallel: number of shards to count, or reads of a remote shard, at once.
        stale: filled with the names of indexes that were not used, since they are stale.
        options: key rule and policies of :func:`tarkit.samples.read.read_samples`.

    Raises:
        UsageError: there are fewer samples.
        DataError: a shard is damaged, or is not what the policies allow.
        MissingInputError, StreamError, TemporaryStreamError: a shard cannot be read, or was
            replaced.
    """
    names, ranks = list(urls), random.Random(f"sample {seed}")
    if select is not None or not _has_strict_policies(options) or any(map(reads_once, names)):
        samples = (sample for url in names for sample in _read(url, options))
        yield from _reservoir(samples if select is None else select(samples), number, ranks)
        return
    tally = options.pop("tally", None) or Tally()
    sizes = []
    for count in count_shards(names, parallel=parallel, source_format="tar", **options):
        if count.error is not None:
            raise count.error
        count.tally.samples = count.samples
        tally.add(count.tally)
        sizes.append(count.samples)
        if stale is not None and count.stale is not None:
            stale.append(count.stale)
    drawn = sorted(place for _, place in heapq.nsmallest(number, ((ranks.random(), at) for at in range(sum(sizes)))))
    _check_number(number, len(drawn))
    begin = 0
    for url, size in zip(names, sizes, strict=True):
        chosen = [place - begin for place in drawn[bisect_left(drawn, begin) : bisect_left(drawn, begin + size)]]
        begin += size
        if chosen:
            yield from _samples_of_shard(url, size, chosen, parallel, options)


def _has_strict_policies(options: ReadOptions) -> bool:
    """Return True if all samples of a shard are read or none, so that an index has the same."""
    policies = ("on_damage", "on_repeated_key", "on_duplicate_field")
    return all(options.get(name, "error") == "error" for name in policies)


def _read(url: str, options: ReadOptions) -> Iterator[Sample]:
    with closing(read_samples([url], literal=True, split=True, large=KeepInFiles(), **options)) as samples:
        yield from samples


def _samples_of_shard(
    url: str, size: int, chosen: Sequence[int], parallel: int, options: ReadOptions
) -> Iterator[Sample]:
    """Yield samples of a shard that has ``size`` of them, by their numbers."""
    few = len(chosen) <= _FEW * size
    shard = fresh_indexed(url, key_rule(options.get("rule", first_dot)), []) if few else None
    if shard is not None and len(shard) == size:
        yield from samples_at(shard, chosen, parallel=parallel)
        return
    places = iter(chosen)
    place = next(places, None)
    for number, sample in enumerate(_read(url, options)):
        if number == place:
            yield sample
            if (place := next(places, None)) is None:
                return
    raise TemporaryStreamError(f"was replaced while it was read: it had {size} samples", url=display_name(url))


def _reservoir(samples: Iterable[Sample], number: int, ranks: random.Random) -> Iterator[Sample]:
    """Yield the samples of the lowest ranks, which are kept until the end of the input."""
    kept: list[tuple[float, int, Sample]] = []
    room = SampleRoom()
    for place, sample in enumerate(samples):
        rank = -ranks.random()
        if len(kept) == number and rank <= kept[0][0]:
            continue
        held = {name: value if is_reserved(name) else room.hold(value) for name, value in sample.items()}
        (heapq.heappush if len(kept) < number else heapq.heapreplace)(kept, (rank, place, held))
    _check_number(number, len(kept))
    for _, _, sample in sorted(kept, key=lambda each: each[1]):
        yield sample


def _check_number(number: int, found: int) -> None:
    if found < number:
        raise UsageError(f"--number is {number}, of only {counted(found, 'sample')}")
