"""Read tar shards as members and as samples.

:func:`read_samples` is what most callers need. Below it, :func:`read_members` walks an archive from
front to back on big reads, without seeking, so that pipes and sockets work like files. It never
returns less than the shard has: a cut, damage, or a file that is not a tar raises an error with
shard, byte offset and member, unless ``on_damage`` is "skip".
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypedDict

from tarkit.errors import DataError, TooLargeError, UsageError
from tarkit.formats.tally import DAMAGE_POLICIES, DEFAULT_MEM, Tally, check_policy
from tarkit.formats.tar.large import InPlace, RefuseLarge, SkipLarge
from tarkit.formats.tar.resync import resynchronise
from tarkit.formats.tar.walk import Archive, LargeMembers, Member
from tarkit.names.redaction import redact
from tarkit.samples.sample import KeyRule, Sample, first_dot, group_by_keys, in_sample, key_rule, skip_reason
from tarkit.specs.shardspec import expand, spec_texts
from tarkit.store.allocator import keep_freed_memory
from tarkit.store.read import ReadStream, open_read
from tarkit.world import consumer, loader_worker

if TYPE_CHECKING:
    from tarkit.store.cache import PartCache
else:
    PartCache = Any  # for typing.get_type_hints


class ReadOptions(TypedDict, total=False):
    """Keyword arguments of :func:`read_samples`, which describes them."""

    rule: str | KeyRule
    on_duplicate_field: str
    on_repeated_key: str
    on_damage: str
    tally: Tally | None
    mem: int
    cache: PartCache | None


def read_samples(
    urls: str | os.PathLike[str] | Iterable[str],
    *,
    rule: str | KeyRule = first_dot,
    on_duplicate_field: str = "error",
    on_repeated_key: str = "error",
    on_damage: str = "error",
    tally: Tally | None = None,
    allow_pipe_in_lists: bool = False,
    literal: bool = False,
    split: bool = False,
    mem: int = DEFAULT_MEM,
    large: LargeMembers | None = None,
    cache: PartCache | None = None,
    in_place: bool = False,
) -> Generator[Sample, None, None]:
    """Read the samples of one or many shards, in order, as dicts of raw bytes.

    >>> for sample in read_samples("s3://bucket/train-{0000..0147}.tar"):  # doctest: +SKIP
    ...     print(sample["__key__"], sample["__url__"], len(sample["jpg"]))

    Args:
        urls: a path, URL or shard spec (``s3://b/train-{0000..0147}.tgz``, ``*.tar``,
            ``@list.txt``, ``-``), or several.
        rule: key rule: ``first-dot``, ``last-dot`` or a regular expression of two groups.
        on_duplicate_field: error, first or last.
        on_repeated_key: error, or allow.
        on_damage: error, or skip: resume at the next valid header; the loss is in ``tally``.
            Samples with a member that cannot be delivered (a hard link, a sparse file) are dropped
            and counted.
        tally: filled while samples are taken: counts, skipped members, damage.
        allow_pipe_in_lists: True if an ``@LIST`` may name ``pipe:`` commands; the author of such a
            list runs them here.
        literal: ``urls`` are names of shards as they are, such as
            :func:`tarkit.specs.shardspec.expand` gives them: a listing of a store may well have
            ``[`` or ``{`` in its names.
        split: ``urls`` are those that this process is to read. Else reading is an error in one of
            several ranks, or workers of a torch DataLoader, because each would read every sample.
        mem: bytes of the shard that one sample may span; a larger one is an error that names its
            member and size. Also those of the window of a compressed shard, if it is more than what
            any stream may have.
        large: policy for members that are too large (:mod:`tarkit.formats.tar.large`).
        cache: cache for parts of remote shards (:class:`tarkit.store.cache.PartCache`).
        in_place: True to leave content of more than 64 KiB in shards that are plain local files. It
            is delivered as a :class:`tarkit.store.fieldfile.FieldFile`, which refers to the shard.

    Raises:
        UsageError: the process is one of several that would read the same.
        TooLargeError: a sample has more than ``mem`` bytes.
        DataError: the shard is damaged, or is not what the policies allow.
        MissingInputError, StreamError, TemporaryStreamError: a shard cannot be read.
    """
    if not split:
        _refuse_several_readers()
    tally = Tally() if tally is None else tally
    large = RefuseLarge(mem) if large is None else large
    names = spec_texts(urls)
    for url in names if literal else expand(names, allow_pipe_in_lists=allow_pipe_in_lists):
        with _open_shard(url, cache, mem) as stream:
            tally.part_read = stream.part_read
            reader = stream.in_place()
            read, take_whole = (stream.read, None) if reader is None else (reader.read, reader.take)
            ways = InPlace(reader) if in_place and reader is not None else large
            yield from group_by_keys(
                read_members(
                    read,
                    url=stream.name,
                    rule=rule,
                    on_damage=on_damage,
                    tally=tally,
                    large=ways,
                    take_whole=take_whole,
                ),
                url=stream.name,
                rule=rule,
                on_duplicate_field=on_duplicate_field,
                on_repeated_key=on_repeated_key,
                tally=tally,
                sample_limit=ways.sample_limit,
                spill=ways.spill,
            )
            tally.part_read = None
            tally.shards += 1


def _open_shard(url: str, cache: PartCache | None, mem: int) -> ReadStream:
    if cache is None:
        return open_read(url, mem=mem)
    from tarkit.store.cachedread import open_through_cache

    return open_through_cache(url, cache, mem=mem)


def _refuse_several_readers() -> None:
    """Reject reading all shards in one of several ranks or DataLoader workers.

    Raises:
        UsageError: the process is one of several.
    """
    worker = loader_worker()
    rank, world = 0, 1
    with suppress(UsageError):  # RANK alone may be a variable of any program
        rank, world = consumer()
    if worker is not None and worker.workers > 1:
        where = f"worker {worker.number} of {worker.workers} of a DataLoader"
    elif world > 1:
        where = f"rank {rank} of {world}"
    else:
        return
    raise UsageError(
        f"read_samples in {where}: each would read every sample. tarkit.trainers.torch.ShardDataset divides samples "
        "exactly over ranks and workers; split=True reads the shards given, where each process is given its own"
    )


def read_members(
    read: Callable[[int], bytes],
    *,
    url: str = "",
    rule: str | KeyRule = first_dot,
    on_damage: str = "error",
    tally: Tally | None = None,
    large: LargeMembers | None = None,
    take_whole: Callable[[int, int], bytes | None] | None = None,
) -> Iterator[Member]:
    """Yield the regular files of one tar stream: (name, content, offset of the header).

    Where an archive ends inside the stream (``cat a.tar b.tar``), and where something was lost, a
    mark with an empty name is given; see :data:`tarkit.formats.tar.walk.Member`.

    >>> with open("train-0.tar", "rb", buffering=0) as file:  # doctest: +SKIP
    ...     names = [name for name, content, offset in read_members(file.read) if name]

    Args:
        read: ``read(n)`` returns 1 to n bytes, or b"" at the end, like the method of a raw stream.
        url: name of the shard for errors.
        rule: key rule, which says whether a member whose content cannot be delivered (a hard link,
            a sparse file) is a field of a sample; one that is not is only counted.
        on_damage: error, or skip: resume at the next valid header, and after members that cannot be
            delivered.
        tally: counts what is skipped, and records damage.
        large: policy for members that are too large for memory; None: all are delivered as bytes.
        take_whole: function that reads content at once, as
            :class:`tarkit.formats.tar.walk.Archive` describes it.

    Raises:
        DataError: the stream is damaged.
        UnsupportedMemberError: a member is a field of a sample, and its content cannot be
            delivered.
    """
    check_policy("on_damage", on_damage, DAMAGE_POLICIES)
    keep_freed_memory()
    tally = Tally() if tally is None else tally
    archive = Archive(read, redact(url), tally, in_sample(key_rule(rule)), large, take_whole)
    while True:
        try:
            yield from archive.members()
            return
        except DataError as error:
            # A member that is too large is not damaged: a search for the next header would find
            # headers inside of it.
            if on_damage == "error" or not archive.begun or isinstance(error, TooLargeError):
                raise
            yield resynchronise(archive, error)
            if archive.ended:
                return


def placed_samples(
    read: Callable[[int], bytes],
    *,
    url: str,
    rule: KeyRule,
    on_damage: str = "error",
    tally: Tally | None = None,
    large: LargeMembers | None = None,
    on_duplicate_field: str = "error",
    on_repeated_key: str = "error",
) -> Iterator[tuple[int, Sample]]:
    """Yield (offset of its first header, sample) for the samples of one tar stream.

    Args:
        read: function that reads up to n bytes, as for :func:`read_members`.
        url: URL of the shard, for errors.
        on_damage: error or skip, as for :func:`read_members`.
        tally: filled with counts and damage.
        large: policy for members too large for memory. None: each content is replaced by a range of
            its length.
        on_duplicate_field: error, first or last, as for :func:`group_by_keys`.
        on_repeated_key: error or allow, as for :func:`group_by_keys`.
    """
    begins: dict[str, int] = {}
    ways = large or SkipLarge()

    def noted() -> Iterator[Member]:
        for name, content, offset in read_members(
            read, url=url, rule=rule, on_damage=on_damage, tally=tally, large=ways
        ):
            split = rule(name) if skip_reason(name, rule) is None else None
            if split is not None:
                begins.setdefault(split[0], offset)
            # Content that is not used would fill the memory.
            yield name, range(len(content)) if name and large is None else content, offset

    samples = group_by_keys(
        noted(),
        url=url,
        rule=rule,
        on_duplicate_field=on_duplicate_field,
        on_repeated_key=on_repeated_key,
        tally=tally,
        sample_limit=ways.sample_limit,
        spill=ways.spill,
    )
    for sample in samples:
        yield begins.pop(sample["__key__"]), sample
