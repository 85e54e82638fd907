"""Compare two data sets by key and content.

The keys and the digests of both are sorted in a temporary database, which is on the disk when it is
large.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from hashlib import blake2b
from typing import Any, NamedTuple

from tarkit.formats.tally import Tally
from tarkit.formats.tar.walk import Archive, LargeMembers
from tarkit.names.keywords import Unpack
from tarkit.samples.read import ReadOptions, read_samples
from tarkit.samples.sample import Sample, is_reserved
from tarkit.store.database import TemporaryDatabase
from tarkit.store.fieldfile import LARGE

EQUAL, DIFFERS, ONLY_A, ONLY_B, ORDER = "equal", "differs", "only-a", "only-b", "order"
"""Kinds of a difference, and samples without one."""
_TABLES = """
CREATE TABLE samples (side INTEGER, number INTEGER, key BLOB, fields TEXT);
CREATE TABLE pairs (a INTEGER, b INTEGER, key BLOB);
"""
# Repeated keys are compared one by one, in their order.
_BY_KEY = """
SELECT side, number, key, fields, row_number() OVER (PARTITION BY key, side ORDER BY number) AS time
FROM samples ORDER BY key, time, side
"""


class Difference(NamedTuple):
    """A difference between the data sets A and B.

    Attributes:
        kind: ``only-a``, ``only-b``, ``differs``, or ``order``: the sample is behind, in B, a
            sample that follows it in A.
        key: key of the sample.
        fields: field -> its sizes in A and in B, for the fields that differ; None: it is not there.
        places: numbers of the sample in A and in B, from 0; None: it is not there.
    """

    kind: str
    key: str
    fields: dict[str, tuple[int | None, int | None]]
    places: tuple[int | None, int | None]


class _Digested:
    """Stands for content that was read: its length and its digest."""

    def __init__(self, pieces: Iterable[bytes], size: int) -> None:
        self._size = size
        digest = blake2b(digest_size=16)
        for piece in pieces:
            digest.update(piece)
        self.digest = digest.hexdigest()

    def __len__(self) -> int:
        return self._size


class _DigestLarge(LargeMembers):
    """The policy that replaces large content by its digest."""

    member_limit = LARGE
    sample_limit = 2 * LARGE

    def take(self, archive: Archive, name: str, size: int) -> _Digested:
        return _Digested(archive.pieces(name, size), size)

    def spill(self, sample: Sample, name: str, content: Any) -> _Digested:
        return content if isinstance(content, _Digested) else _Digested([content], len(content))


def compare(
    urls: Iterable[str],
    against: Iterable[str],
    *,
    order: bool = False,
    counts: Counter[str] | None = None,
    select: Callable[[Iterable[Sample]], Iterable[Sample]] | None = None,
    progress: Callable[[int, float], object] = lambda samples, shards: None,
    **options: Unpack[ReadOptions],
) -> Iterator[Difference]:
    """Yield the differences between two data sets, A and B, in the order of their keys.

    Args:
        urls: names of the shards of A, as :func:`tarkit.specs.shardspec.expand` gives them.
        against: names of the shards of B.
        order: also find the first sample in another order; it comes last.
        counts: filled with the number of samples of each kind.
        select: function that chooses among the samples.
        progress: called with the numbers of samples and shards that were read so far.
        options: options of the reader.

    Raises:
        StreamError: there is no room on the disk for the temporary database.
    """
    counts = Counter() if counts is None else counts
    numbers = itertools.count(1)
    tally = options["tally"] = options.get("tally") or Tally()

    def rows(side: int, shards: Iterable[str]) -> Iterator[tuple[int, int, bytes, str]]:
        # A choice may look into any content.
        large = _DigestLarge() if select is None else None
        samples: Iterable[Sample] = read_samples(shards, literal=True, large=large, **options)
        for number, sample in enumerate(samples if select is None else select(samples)):
            progress(next(numbers), tally.shards_read())
            yield side, number, sample["__key__"].encode("utf-8", "surrogateescape"), _described(sample)

    with closing(TemporaryDatabase(_TABLES)) as database:
        for side, shards in enumerate((urls, against)):
            database.add("INSERT INTO samples VALUES (?, ?, ?, ?)", rows(side, shards))
        for (key, _), same in itertools.groupby(database.rows(_BY_KEY), lambda row: (row[2], row[4])):
            sides = {side: (number, fields) for side, number, _, fields, _ in same}
            found = _difference(key, sides.get(0, (None, "{}")), sides.get(1, (None, "{}")))
            counts[found.kind] += 1
            if found.kind != EQUAL:
                yield found
            if order and len(sides) == 2:
                database.change("INSERT INTO pairs VALUES (?, ?, ?)", *found.places, key)
        highest = -1
        for a, b, key in database.rows("SELECT a, b, key FROM pairs ORDER BY a"):
            if b < highest:
                counts[ORDER] += 1
                yield Difference(ORDER, key.decode("utf-8", "surrogateescape"), {}, (a, b))
                break
            highest = b


def _described(sample: Sample) -> str:
    """Return the size and the digest of each field, as JSON."""
    fields: dict[str, tuple[int, str]] = {}
    for name in sorted(sample):
        if not is_reserved(name):
            content = sample[name]
            digested = content if isinstance(content, _Digested) else _Digested([content], len(content))
            fields[name] = len(content), digested.digest
    return json.dumps(fields)


def _difference(key: bytes, a: tuple[int | None, str], b: tuple[int | None, str]) -> Difference:
    fields = {}
    if a[1] != b[1]:
        of_a, of_b = json.loads(a[1]), json.loads(b[1])
        for name in sorted(of_a.keys() | of_b.keys()):
            if of_a.get(name) != of_b.get(name):
                fields[name] = (of_a.get(name, [None])[0], of_b.get(name, [None])[0])
    kind = ONLY_B if a[0] is None else ONLY_A if b[0] is None else DIFFERS if fields else EQUAL
    return Difference(kind, key.decode("utf-8", "surrogateescape"), fields, (a[0], b[0]))
