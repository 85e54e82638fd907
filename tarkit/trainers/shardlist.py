"""List the shards of a data set with their numbers of samples, from manifests or from indexes."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import blake2b
from itertools import chain

from tarkit.errors import DataError, MissingInputError, StreamError, TemporaryStreamError, UsageError
from tarkit.names.outputnames import index_command, index_url
from tarkit.names.url import display_name
from tarkit.samples.index import count_of_index
from tarkit.samples.indexedshard import IndexedShard
from tarkit.specs.manifest import ManifestShard, is_manifest, read_manifest
from tarkit.specs.shardspec import expand, spec_texts
from tarkit.store.entries import identify
from tarkit.store.rangedfile import RangedFile
from tarkit.store.waits import Workers

AT_A_TIME = 8
"""Number of indexes or parts that are read at a time."""


class NoIndexError(UsageError):
    """A shard has no index, or does not exist in a store that does not report missing files."""


def listed_shards(urls: str | os.PathLike[str] | Iterable[str]) -> tuple[list[tuple[ManifestShard, str]], list[int]]:
    """Return the shards, each with the source of its number of samples.

    Returns:
        The shards, and how many of them each of ``urls`` names.

    Raises:
        UsageError: a shard has no index, or no shard is named.
        DataError: a manifest, or an index, is damaged.
        MissingInputError, StreamError, TemporaryStreamError: a manifest or index cannot be read.
    """
    groups = [list(_listed(spec)) for spec in spec_texts(urls)]
    if not groups:
        raise UsageError("a data set names no shards")
    return _all_counted(list(chain(*groups))), list(map(len, groups))


def _listed(name: str) -> Iterator[tuple[ManifestShard | str, str]]:
    """Return the shards, in a manifest's order, each with the source of its sample count."""
    if is_manifest(name) and not name.startswith("@"):
        for manifest in expand(name, manifests=False):
            source = display_name(manifest)
            yield from ((shard, source) for shard in read_manifest(manifest))
    else:
        yield from ((url, "the index that was there when the data set was opened") for url in expand(name))


def _all_counted(named: list[tuple[ManifestShard | str, str]]) -> list[tuple[ManifestShard, str]]:
    asked = [(shard, source) for shard, source in named if isinstance(shard, str)]
    with Workers(AT_A_TIME, "tarkit-counts") as pool:
        counts = iter(list(pool.map(_counted, asked)) if asked else ())
    return [next(counts) if isinstance(shard, str) else (shard, source) for shard, source in named]


def _counted(named: tuple[str, str]) -> tuple[ManifestShard, str]:
    shard, source = named
    try:
        return ManifestShard(shard, count_of_index(shard)), source
    except TemporaryStreamError:
        raise
    except (MissingInputError, StreamError):
        # Stores that do not report what is missing refuse access to it.
        raise without_index(shard) from None


def without_index(url: str) -> NoIndexError:
    """Return the error for a shard without an index, or with one to which access is refused.

    Raises:
        MissingInputError: the shard does not exist either.
        StreamError: there is an index, and the shard cannot be read.
        TemporaryStreamError: its store does not answer now.
    """
    make = f"make it by {index_command(url)}"
    with suppress(StreamError):
        identify(url)
    with suppress(MissingInputError):
        try:
            count_of_index(url)
        except TemporaryStreamError:
            raise
        except StreamError as error:
            return NoIndexError(f"{error}; if the shard has no index, {make}; else allow this process to read it")
        RangedFile(url)
    return NoIndexError(f"{display_name(url)} has no index {display_name(index_url(url))}: {make}")


def check_listed(shard: IndexedShard, listed: ManifestShard, source: str) -> None:
    """Check that a shard is as it was listed.

    Raises:
        DataError: the shard differs from its entry in the list.
    """
    index = display_name(index_url(shard.url))
    for what, found, wanted in (
        (f"samples by {index}", len(shard), listed.nsamples),
        ("bytes", shard.identity.size, listed.filesize),
    ):
        if wanted not in (None, found):
            hint = "make index and manifest anew: tarkit index --manifest; then open the data set again"
            raise DataError(f"it has {found} {what}, and {wanted} by {source}", url=shard.url, hint=hint)


def digest_of_shards(names: Sequence[str], counts: Sequence[int], streams: Mapping[str, int] | None = None) -> str:
    """Return the digest of shards for states, equal for a copy at a different place.

    Args:
        names: name of each shard without its folder.
        counts: number of samples of each shard.
        streams: number of shards of each stream, in their order; None or empty: no streams.
    """
    parts = [names, counts, *([streams] if streams else [])]
    return blake2b(json.dumps(parts).encode(), digest_size=8).hexdigest()
