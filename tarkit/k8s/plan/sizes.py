"""How many bytes the shards of a run have: from a listing, by asking for each, or from a sample."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tarkit.errors import LocatedError, UsageError
from tarkit.store.entries import entries, identify

_AT_ONCE = 16


def sizes_of(urls: Sequence[str]) -> list[int | None]:
    """The bytes of each shard, by asking its store, 16 at a time; None where the store does not report them."""
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="sizes") as executor:
        return [identity.size for identity in executor.map(identify, urls)]


def bytes_of(urls: Sequence[str], *, of: int | None = None) -> tuple[int | None, int]:
    """The bytes of shards together, None if they are not known; and of how many shards that was extrapolated, 0 if
    it is exact.

    of: how many shards there are, if ``urls`` is a sample of them.
    """
    sizes = sizes_of(urls)
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes) or not sizes:
        return None, 0
    if of is None or of == len(sizes):
        return sum(known), 0
    return round(sum(known) / len(known) * of), len(known)


def spread(n: int, count: int) -> list[int]:
    """``count`` numbers below ``n``, evenly spread, in order; all of them if there are fewer."""
    count = min(n, count)
    return [(2 * index + 1) * n // (2 * count) for index in range(count)]


def listed_sizes(spec: str) -> dict[str, int]:
    """Name -> bytes of the files in the folder of a glob like ``s3://bucket/raw/*.tar``, from one listing.

    Empty for every other spec, and if the folder cannot be listed: then the sizes are not known.
    """
    folder, _, last = spec.rpartition("/")
    if not re.search(r"[*?\[]", last) or not folder or re.search(r"[*?\[{}]", folder):
        return {}
    if spec.lower().startswith(("@", "http://", "https://")):
        return {}
    try:
        # A listing may write the folder in another way; what counts is how the shards are named.
        return {f"{folder}/{entry.name}": entry.size for entry in entries(folder) if entry.size is not None}
    except (LocatedError, UsageError):
        return {}
