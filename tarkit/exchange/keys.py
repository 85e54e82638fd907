"""Find keys that several inputs have, by digests of the keys that are in the run files."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from typing import NamedTuple

from tarkit.errors import RepeatedKeyError, printable
from tarkit.exchange.positions import shard_and_number
from tarkit.exchange.runfile import RunFile, damaged
from tarkit.samples.sample import KeyRule
from tarkit.store.checksums import crc32

BUCKETS = 256
"""Number of parts of the range of digests, each of which is compared alone."""
_MEMORY = 64
"""Bytes of memory for each digest that is compared."""
HINT = "--rekey puts the number of its shard before each key; --on-repeated-key allow writes them as they are"
"""What a user can do about repeated keys."""


class KeyDigests:
    """Digests of the keys of a slice: the first 8 bytes of BLAKE2b."""

    def __init__(self) -> None:
        self._digests = [bytearray() for _ in range(BUCKETS)]

    def add(self, key: str) -> None:
        """Add a key."""
        digest = _digest(key)
        self._digests[digest[-1]] += digest

    def parts(self) -> list[bytes]:
        """Return the digests of each bucket, sorted as numbers."""
        # Bucket by bucket, since numbers of Python take five times as much memory.
        return [_data(sorted(_numbers(bytes(each)))) for each in self._digests]

    def encode(self) -> tuple[bytes, list[int], list[int]]:
        """Return all digests, sorted as numbers.

        Returns:
            the digests; how many there are before the end of each bucket; CRC-32 of each bucket.
        """
        parts = self.parts()
        return b"".join(parts), [*accumulate(len(part) // 8 for part in parts)], [crc32(part) for part in parts]


def _digest(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogateescape"), digest_size=8).digest()


def _numbers(data: bytes) -> array[int]:
    found = array("Q", data)
    if sys.byteorder == "big":
        found.byteswap()
    return found


def _data(numbers: Iterable[int]) -> bytes:
    found = array("Q", numbers)
    if sys.byteorder == "big":
        found.byteswap()
    return found.tobytes()


class RunKeys(NamedTuple):
    """The digests in a run file.

    Attributes:
        offset: offset of the first of them in the file, in bytes.
        ends: number of digests before the end of each bucket.
        crcs: CRC-32 of each bucket.
    """

    offset: int
    ends: Sequence[int]
    crcs: Sequence[int]


def check_keys(
    runs: Sequence[tuple[RunFile, RunKeys]], buckets: range, shards: Sequence[str], rule: KeyRule, mem: int
) -> None:
    """Check that no two samples have the same key.

    Args:
        runs: all run files.
        buckets: numbers of the buckets to compare.
        shards: URLs of the inputs, for the error.
        rule: key rule.
        mem: bytes of memory for digests.

    Raises:
        RepeatedKeyError: two samples have.
    """
    digests = sum(keys.ends[-1] for _, keys in runs)
    # Adjacent buckets are read with one request for each run file.
    at_once = max(1, BUCKETS * mem // max(1, digests * _MEMORY))
    for start in buckets[::at_once]:
        end = min(start + at_once, buckets.stop)
        if twice := repeated_digests(_of_buckets(run, keys, start, end) for run, keys in runs):
            check_samples(samples_with_digests(twice, _keys([run for run, _ in runs], rule)), shards)


def repeated_digests(parts: Iterable[bytes]) -> set[int]:
    """Return the digests that occur more than once in some parts of digests."""
    found = sorted(chain.from_iterable(map(_numbers, parts)))
    return {first for first, second in pairwise(found) if first == second}


def _of_buckets(run: RunFile, keys: RunKeys, start: int, end: int) -> bytes:
    """Return the digests of the buckets from ``start`` up to, not including, ``end``."""
    ends = [8 * each for each in (0, *keys.ends)][start : end + 1]
    data = run.read(keys.offset + ends[0], keys.offset + ends[-1])
    for (first, last), crc in zip(pairwise(ends), keys.crcs[start:end], strict=True):
        if crc32(data[first - ends[0] : last - ends[0]]) != crc:
            raise damaged(run.url, keys.offset + first, "digests of keys have another checksum")
    return data


def samples_with_digests(digests: set[int], samples: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yield the samples, as (key, position), whose keys have these digests."""
    return ((key, position) for key, position in samples if _numbers(_digest(key))[0] in digests)


def check_samples(samples: Iterable[tuple[str, bytes]], shards: Sequence[str]) -> None:
    """Check that no key is in samples twice, as (key, position); different keys may share a digest.

    Raises:
        RepeatedKeyError: one is.
    """
    seen: dict[str, bytes] = {}
    for key, position in samples:
        if (other := seen.setdefault(key, position)) != position:
            first, second = sorted(shard_and_number(each) for each in (other, position))
            reason = f"the key is in {printable(shards[first[0]])} too"
            raise RepeatedKeyError(reason, url=shards[second[0]], key=key, hint=HINT)


def _keys(runs: Sequence[RunFile], rule: KeyRule) -> Iterator[tuple[str, bytes]]:
    for run in runs:
        for block in run.blocks:
            for row in run.rows([block]):
                yield row.key(rule), row.position
