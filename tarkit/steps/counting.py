"""Count the samples of shards, and the bytes of each field, with as few reads as possible.

The numbers come from a fresh index; without one from the headers of the shard, and only where that
saves nothing from all of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tarkit.errors import TarkitError, UsageError
from tarkit.extras import MissingExtraError
from tarkit.formats.registry import format_of, read_sizes
from tarkit.formats.tally import Tally
from tarkit.formats.tar.large import KeepInFiles
from tarkit.formats.tar.unread import open_headers
from tarkit.names.keywords import Unpack
from tarkit.names.url import display_name
from tarkit.samples.read import ReadOptions, placed_samples, read_samples
from tarkit.samples.sample import Sample, first_dot, is_reserved, key_rule
from tarkit.steps.lookup import fresh_indexed
from tarkit.steps.selection import Selection
from tarkit.store.waits import Workers

INDEX, HEADERS, WHOLE = "index", "headers", "whole"
"""Sources of the count of a shard."""


@dataclass
class ShardCount:
    """The numbers of one shard, or of a file of another format.

    Attributes:
        url: URL of the shard, without secrets.
        source: INDEX, HEADERS or WHOLE.
        samples: number of samples or records.
        members: field -> number of samples that have it; for records, the field is "".
        sizes: field -> bytes of its content.
        stale: name of a stale index, which was not used, or None.
        error: error that ended the count of the shard, or None.
        tally: counts of skipped members and damage.
    """

    url: str
    source: str = WHOLE
    samples: int = 0
    members: Counter[str] = field(default_factory=Counter)
    sizes: Counter[str] = field(default_factory=Counter)
    stale: str | None = None
    error: TarkitError | None = None
    tally: Tally = field(default_factory=Tally)

    def add(self, sizes: Iterable[tuple[str, int]]) -> None:
        """Count a sample or record with the sizes of its fields."""
        self.samples += 1
        for name, size in sizes:
            self.members[name] += 1
            self.sizes[name] += size

    def add_sample(self, sample: Sample) -> None:
        """Count a sample."""
        self.add((name, len(value)) for name, value in sample.items() if not is_reserved(name))

    def merge(self, other: ShardCount) -> None:
        """Add the numbers of another shard."""
        self.samples += other.samples
        self.members.update(other.members)
        self.sizes.update(other.sizes)

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers for JSON."""
        fields = {name: {"samples": self.members[name], "bytes": self.sizes[name]} for name in sorted(self.members)}
        return {"samples": self.samples, "bytes": self.sizes.total(), "fields": fields}


def count_shards(
    urls: Iterable[str], *, parallel: int = 1, source_format: str | None = None, selection: Selection | None = None,
    **options: Unpack[ReadOptions],
) -> Iterator[ShardCount]:  # fmt: skip
    """Yield the numbers of each shard, in order; a bad shard does not stop the others.

    Args:
        urls: paths and URLs of shards, or of files of other formats.
        parallel: number of shards at once.
        source_format: format of the files; None: by their names and first bytes.
        selection: selection of what is counted; shards are read whole then, one after the other.
        options: key rule and policies of :func:`tarkit.samples.read.read_samples`.

    Raises:
        UsageError: a policy or the key rule is not valid, or a place cannot be read.
        MissingExtraError: a library is not installed.
    """
    one = partial(_counted, source_format=source_format, selection=selection, options=options)
    if selection is not None:
        yield from map(one, urls)
        selection.check()
        return
    with Workers(parallel, "tarkit-count") as pool:
        yield from pool.ahead(one, urls, 2 * parallel)


def _counted(url: str, source_format: str | None, selection: Selection | None, options: ReadOptions) -> ShardCount:
    count = ShardCount(display_name(url))
    try:
        found = source_format or format_of(url)
        if selection is not None:
            _count_selected(url, count, selection, options)
        elif found == "tar":
            _count_tar(url, count, options)
        else:
            policy = options.get("on_damage", "error")
            for _, size in read_sizes(found, url, on_damage=policy, tally=count.tally):
                count.add([("", size)])
    except (UsageError, MissingExtraError):
        raise
    except TarkitError as error:
        count.error = error
    return count


def _count_selected(url: str, count: ShardCount, selection: Selection, options: ReadOptions) -> None:
    options = {**options, "tally": count.tally}
    with closing(read_samples([url], literal=True, split=True, large=KeepInFiles(), **options)) as samples:
        for sample in selection.select(samples, last=False):
            count.add_sample(sample)


def _count_tar(url: str, count: ShardCount, options: ReadOptions) -> None:
    rule = key_rule(options.get("rule", first_dot))
    stale: list[str] = []
    shard = fresh_indexed(url, rule, stale)
    count.stale = next(iter(stale), None)
    if shard is not None:
        count.source = INDEX
        for number in range(len(shard)):
            count.add((member.field, member.size) for member in shard.index[number])
        return
    names = ("on_damage", "on_duplicate_field", "on_repeated_key")
    policies: dict[str, Any] = {name: options.get(name, "error") for name in names}
    with open_headers(url) as headers:
        count.source = WHOLE if headers.identity is None else HEADERS
        for _, sample in placed_samples(
            headers.read, url=headers.name, rule=rule, tally=count.tally, large=headers.large, **policies
        ):
            count.add_sample(sample)
