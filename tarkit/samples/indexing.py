"""Indexes beside many shards: made if missing or stale, or compared with the shards."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

from tarkit.errors import (
    DataError,
    LocatedError,
    MissingInputError,
    StaleIndexError,
    TarkitError,
    TemporaryStreamError,
    UsageError,
)
from tarkit.formats.tally import SKIP_DAMAGE, Tally
from tarkit.names.outputnames import index_url, is_packed_name, seek_url
from tarkit.names.url import display_name, reads_once
from tarkit.samples.index import build_index, publish_index, remove_index
from tarkit.samples.indexedshard import open_indexed
from tarkit.samples.sample import KeyRule, first_dot
from tarkit.specs.manifest import ManifestShard
from tarkit.store.entries import Identity, check_same, identify, stat
from tarkit.store.publish import check_target
from tarkit.store.read import open_read, read_whole
from tarkit.store.retry import GoneStores
from tarkit.store.seekfile import build_seek
from tarkit.store.waits import Workers

_PIECE = 1 << 20
MADE, RENEWED, FRESH = "made", "renewed", "fresh"
"""States of an index: it was created, it was stale (or ``force`` is set) and was replaced, or it
was current.
"""


@dataclass(frozen=True)
class IndexOutcome:
    """Result for the index of one shard.

    Attributes:
        error: why it failed; then there is no state.
        tally: counts of reading the shard, if its index was made or compared.
        listed: entry of the shard for a manifest, if requested.
    """

    url: str
    state: str = ""
    samples: int = 0
    tally: Tally = field(default_factory=Tally)
    error: TarkitError | None = None
    listed: ManifestShard | None = None


def index_all(
    urls: Iterable[str],
    *,
    parallel: int = 1,
    force: bool = False,
    check: bool = False,
    dry_run: bool = False,
    listed: bool = False,
    rule: str | KeyRule = first_dot,
) -> Generator[IndexOutcome, None, None]:
    """Write an index beside each shard that has no current one, several at a time.

    Args:
        force: make all of them again.
        check: write nothing, and read each shard to compare its index with it.
        dry_run: make each index as else, but write none.
        listed: read each shard for its MD5, so that the results have entries of a manifest.

    Returns:
        The results, in order. A failed shard does not stop the others.

    Raises:
        UsageError: a shard of this name has no index, or nothing can be written at its place.
    """
    if parallel < 1:
        raise UsageError(f"shards at a time is {parallel}; it must be at least 1")
    act = partial(_compare if check else partial(ensure_index, force=force, dry_run=dry_run), rule=rule, listed=listed)
    gone = GoneStores()

    def named() -> Iterator[str]:
        for url in urls:
            index = index_url(url)
            if not check and not dry_run:
                check_target(index)
            yield url

    def outcome(url: str) -> IndexOutcome:
        try:
            with gone.asking(url):
                return act(url)
        except TarkitError as error:
            if isinstance(error, LocatedError) and error.hint is not None:
                # An index has no such option: it is of all that is in a shard.
                error.hint = error.hint.replace(SKIP_DAMAGE, "tarkit cat --on-damage skip")
            return IndexOutcome(url, error=error)

    with Workers(parallel, "tarkit-index") as pool:
        yield from pool.ahead(outcome, named(), 2 * parallel)


def ensure_index(
    url: str, *, force: bool = False, dry_run: bool = False, rule: str | KeyRule = first_dot, listed: bool = False
) -> IndexOutcome:
    """Make the index of a shard, unless a current one exists.

    A current index matches the end of the shard, and is not older. With ``dry_run``, it is not
    written.
    """
    if reads_once(url):
        # Opening a pipe without a writer waits for ever.
        raise UsageError(f"{display_name(url)} is a pipe or a device; only a file has an index")
    state, tally, digest = RENEWED, Tally(), hashlib.md5(usedforsecurity=False)
    try:
        shard = open_indexed(url, rule)
        if shard is None:
            state = MADE
        elif not force and not is_older(index_url(url), url):
            if not listed:
                return IndexOutcome(url, FRESH, len(shard))
            with open_read(url, compression=None) as stream:
                for data in iter(lambda: stream.read(_PIECE), b""):
                    digest.update(data)
            check_same(url, shard.identity)
            return IndexOutcome(url, FRESH, len(shard), listed=_listed(url, len(shard), shard.identity, digest))
    except DataError:
        # It is stale, or no index at all; what is wrong with the shard itself is found below.
        state = RENEWED
    before = identify(url)
    seek = build_seek(url) if is_packed_name(url) else None
    index = build_index(url, rule=rule, tally=tally, update=digest.update if listed else None)
    if identify(url) == before:
        if not dry_run:
            publish_index(index, url, seek)
        if identify(url) == before:
            found = _listed(url, len(index), before, digest) if listed else None
            return IndexOutcome(url, state, len(index), tally, listed=found)
        if not dry_run:
            remove_index(url)
    raise TemporaryStreamError("the shard was replaced while it was indexed", url=display_name(url))


def _listed(url: str, samples: int, identity: Identity, digest: hashlib._Hash) -> ManifestShard:
    return ManifestShard(url, samples, identity.size, digest.hexdigest())


def is_older(index: str, url: str) -> bool:
    """Return True if the index of a shard is older than the shard."""
    made, changed = stat(index).mtime, stat(url).mtime
    return made is not None and changed is not None and made < changed


def _compare(url: str, *, rule: str | KeyRule, listed: bool) -> IndexOutcome:
    """Read the shard, and compare its index with it, byte for byte."""
    tally, name, digest = Tally(), display_name(index_url(url)), hashlib.md5(usedforsecurity=False)
    try:
        text = read_whole(index_url(url), compression=None)
    except MissingInputError:
        raise MissingInputError("is not there", url=name, hint=f"make it: tarkit index {display_name(url)}") from None
    before = identify(url) if listed else None
    if is_packed_name(url) and (seek := build_seek(url)) is not None:
        _compare_seek(seek, url)
    index = build_index(url, rule=rule, tally=tally, update=digest.update if listed else None)
    if text != index.encode():
        hint = f"make it anew: tarkit index --force {display_name(url)}"
        raise StaleIndexError(f"{name} is not the index of this shard", url=url, hint=hint)
    if before is None:
        return IndexOutcome(url, FRESH, len(index), tally)
    check_same(url, before)
    return IndexOutcome(url, FRESH, len(index), tally, listed=_listed(url, len(index), before, digest))


def _compare_seek(seek: bytes, url: str) -> None:
    name = display_name(seek_url(url))
    hint = f"make it anew: tarkit index --force {display_name(url)}"
    try:
        found = read_whole(seek_url(url), compression=None)
    except MissingInputError:
        raise MissingInputError("is not there", url=name, hint=hint) from None
    if found != seek:
        raise StaleIndexError(f"{name} has not the seek points of this shard", url=url, hint=hint)
