"""Indexes beside many shards: made where there is none or a stale one, or compared with the shards."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from tarkit.errors import DataError, MissingInputError, StaleIndexError, TarkitError, TemporaryStreamError, UsageError
from tarkit.formats.tally import Tally
from tarkit.samples.index import build_index, publish_index
from tarkit.samples.indexedshard import open_indexed
from tarkit.samples.sample import KeyRule, first_dot
from tarkit.specs.outputnames import index_url
from tarkit.store.entries import identify, stat
from tarkit.store.publish import check_target
from tarkit.store.read import read_whole
from tarkit.store.url import display_name
from tarkit.store.waits import Workers

MADE, RENEWED, FRESH = "made", "renewed", "fresh"
"""What became of an index: there was none, it was stale (or force asked for another), or it was left as it is."""


@dataclass
class IndexOutcome:
    """What became of the index of one shard. error: why it failed; then there is no state. tally: of reading the shard,
    if that was read."""

    url: str
    state: str = ""
    samples: int = 0
    error: TarkitError | None = None
    tally: Tally = field(default_factory=Tally)


def index_all(
    urls: Iterable[str],
    *,
    parallel: int = 1,
    force: bool = False,
    check: bool = False,
    rule: str | KeyRule = first_dot,
) -> Generator[IndexOutcome, None, None]:
    """See that an index is beside each shard, several at a time; what became of each, in order. A shard that fails
    stops no other.
    force: make all of them anew. check: write nothing, and read each shard to compare its index with it.

    Raises:
        UsageError: nothing can be written at such a place.
    """
    if parallel < 1:
        raise UsageError(f"shards at a time is {parallel}; it must be at least 1")
    left, running = iter(urls), deque[Future[IndexOutcome]]()
    with Workers(parallel, "tarkit-index") as pool:
        while True:
            while len(running) < 2 * parallel and (url := next(left, None)) is not None:
                if not check:
                    check_target(index_url(url))
                running.append(pool.submit(_outcome, url, force, check, rule))
            if not running:
                return
            yield running.popleft().result()


def _outcome(url: str, force: bool, check: bool, rule: str | KeyRule) -> IndexOutcome:
    outcome = IndexOutcome(url)
    try:
        if check:
            _compare(outcome, rule)
        else:
            ensure_index(outcome, force, rule)
    except TarkitError as error:
        outcome.error = error
    return outcome


def ensure_index(outcome: IndexOutcome, force: bool = False, rule: str | KeyRule = first_dot) -> None:
    """Make the index of a shard, unless a fresh one is there: one that fits the shard's end, and is not older."""
    url = outcome.url
    state = RENEWED
    try:
        shard = open_indexed(url, rule)
        if shard is None:
            state = MADE
        elif not force and not _is_older(index_url(url), url):
            outcome.state, outcome.samples = FRESH, len(shard)
            return
    except DataError:
        # It is stale, or no index at all; of what is wrong with the shard itself, building one reports.
        state = RENEWED
    before = identify(url)
    index = build_index(url, rule=rule, tally=outcome.tally)
    if identify(url) != before:
        raise TemporaryStreamError("the shard was replaced while it was read", url=display_name(url))
    publish_index(index, url)
    outcome.state, outcome.samples = state, len(index)


def _is_older(index: str, url: str) -> bool:
    made, changed = stat(index).mtime, stat(url).mtime
    return made is not None and changed is not None and made < changed


def _compare(outcome: IndexOutcome, rule: str | KeyRule) -> None:
    """Read the shard, and hold its index against it, byte for byte."""
    url, name = outcome.url, display_name(index_url(outcome.url))
    try:
        text = read_whole(index_url(url), compression=None)
    except MissingInputError:
        raise MissingInputError("is not there", url=name, hint=f"make it: tarkit index {display_name(url)}") from None
    index = build_index(url, rule=rule, tally=outcome.tally)
    if text != index.encode():
        hint = f"make it anew: tarkit index --force {display_name(url)}"
        raise StaleIndexError(f"{name} is not the index of this shard", url=url, hint=hint)
    outcome.state, outcome.samples = FRESH, len(index)
