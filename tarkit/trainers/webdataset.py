"""tarkit's reader in webdataset 1.0's own pipelines.

All steps are webdataset's: decode, shuffle, batched, mixing, splitters. Only the stage that reads
tars is replaced: it reads wherever tarkit reads, and what is cut, damaged or repeated is an error
with shard, member and byte offset.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from tarkit.errors import UsageError
from tarkit.extras import MissingExtraError, library
from tarkit.formats.tally import DEFAULT_MEM, Tally
from tarkit.names.keywords import Unpack
from tarkit.samples.read import ReadOptions, read_samples
from tarkit.samples.sample import KeyRule, Sample, first_dot, key_rule
from tarkit.store.cache import PartCache

wds = library("webdataset", "tarkit.trainers.webdataset", "webdataset")

_log = logging.getLogger(__name__)

Stage = Callable[[Iterable[Mapping[str, Any]]], Iterator[Sample]]
"""A function from shards, dicts with a ``url``, to samples."""


def tarfile_to_samples(
    handler: Callable[[Exception], object] | None = None,
    select_files: Callable[[str], object] | None = None,
    rename_files: Callable[[str], str] | None = None,
    *,
    rule: str | KeyRule = first_dot,
    on_duplicate_field: str = "error",
    on_repeated_key: str = "error",
    on_damage: str = "error",
    tally: Tally | None = None,
    mem: int = DEFAULT_MEM,
    cache: PartCache | None = None,
) -> Stage:
    """Return the stage of a ``webdataset.DataPipeline`` that reads shards.

    It replaces webdataset's own stage of this name.

    Names of fields are in lower case, as there.

    >>> pipeline = webdataset.DataPipeline(  # doctest: +SKIP
    ...     webdataset.SimpleShardList("train-{0000..0147}.tar"), webdataset.split_by_worker,
    ...     tarfile_to_samples(), webdataset.decode("rgb"), webdataset.to_tuple("jpg", "cls"),
    ...     webdataset.batched(64),
    ... )

    Args:
        handler: called with an error that ends a shard; if it returns True, the next shard is read,
            and the error is logged. None: errors are raised.
        select_files: function from a member's name to True if the member is read.
        rename_files: function from a member's name to its new name, which ``select_files`` gets.
        rule, on_duplicate_field, on_repeated_key, on_damage, tally, mem, cache: see
            :func:`tarkit.samples.read.read_samples`.

    Raises:
        UsageError: an argument has a wrong value; it does not go to the handler.
        DataError: (from iterating) a shard is damaged, or has content that the policies reject.
        MissingInputError, StreamError, TemporaryStreamError: (from iterating) a shard cannot be
            read.
    """
    policies: ReadOptions = {
        "rule": partial(_split, key_rule(rule), select_files, rename_files),
        "on_duplicate_field": on_duplicate_field,
        "on_repeated_key": on_repeated_key,
        "on_damage": on_damage,
        "tally": tally,
        "mem": mem,
        "cache": cache,
    }
    return partial(_samples, handler, policies)


def _samples(
    handler: Callable[[Exception], object] | None, policies: ReadOptions, shards: Iterable[Mapping[str, Any]]
) -> Iterator[Sample]:
    for shard in shards:
        try:
            yield from read_samples([os.fspath(shard["url"])], literal=True, split=True, **policies)
        except (MissingExtraError, UsageError):
            # Wrong with the program, not with the shard.
            raise
        except Exception as error:
            if handler is None:
                raise
            if not handler(error):
                return
            _log.warning("the rest of a shard is left out, as the handler says: %s", error)


def _split(
    rule: KeyRule,
    select: Callable[[str], object] | None,
    rename: Callable[[str], str] | None,
    name: str,
) -> tuple[str, str] | None:
    name = name if rename is None else rename(name)
    if select is not None and not select(name):
        return None
    split = rule(name)
    return None if split is None else (split[0], split[1].lower())


class WebDatasetOptions(ReadOptions, total=False):
    """Keyword arguments of :class:`WebDataset`: those of webdataset 1.0, and those of the reader.

    Attributes:
        handler: see :func:`tarfile_to_samples`. Default: errors are raised.
        mode: ``resampled`` is ``resampled=True``.
        resampled: draw shards at random without end, with replacement. Default: False.
        repeat: begin again at the end. Default: False.
        shardshuffle: number of shards that are shuffled among each other; False: none. webdataset
            warns if it is not given.
        cache_size: largest size of ``cache_dir`` in bytes; -1: see
            :class:`tarkit.store.cache.PartCache`.
        cache_dir: folder of this machine where parts of remote shards are kept, by name and
            version. Default: none.
        url_to_name: not used: parts have names of their own.
        detshuffle: shuffle shards by ``seed`` and epoch. Default: False.
        nodesplitter: step that takes the shards of this rank. Default: an error with several ranks.
        workersplitter: step that takes the shards of this DataLoader worker.
        select_files: see :func:`tarfile_to_samples`.
        rename_files: see :func:`tarfile_to_samples`.
        empty_check: an iteration without samples is an error. Default: True.
        verbose: not used.
        seed: number from which shuffles with ``resampled`` or ``detshuffle`` follow.
    """

    handler: Callable[[Exception], object]
    mode: str | None
    resampled: bool
    repeat: bool
    shardshuffle: bool | int | None
    cache_size: int
    cache_dir: str | None
    url_to_name: Callable[[str], str]
    detshuffle: bool
    nodesplitter: Callable[..., Any] | None
    workersplitter: Callable[..., Any] | None
    select_files: Callable[[str], object] | None
    rename_files: Callable[[str], str] | None
    empty_check: bool
    verbose: bool
    seed: int | None


class WebDataset(wds.WebDataset):  # type: ignore[misc, name-defined]
    """``webdataset.WebDataset`` whose shards are read by tarkit; its methods are webdataset's own.

    >>> data = WebDataset("train-{0000..0147}.tar", shardshuffle=100)  # doctest: +SKIP
    >>> pairs = data.decode("rgb").to_tuple("jpg", "cls")  # doctest: +SKIP

    Args:
        urls: in the forms of webdataset: a path, URL or brace pattern, or a list of them; or a dict
            or file that describes a mix of data sets.
        given: webdataset's arguments after ``urls``, without names.
        options: see :class:`WebDatasetOptions`.

    Raises:
        TypeError: an argument does not exist.
        ValueError: webdataset does not accept a value.
        UsageError: an argument of the reader has a wrong value.
    """

    def __init__(self, urls: str | Iterable[str], *given: Any, **options: Unpack[WebDatasetOptions]) -> None:
        theirs: dict[str, Any] = {**options}
        policies = {name: theirs.pop(name) for name in ReadOptions.__optional_keys__ if name in theirs}
        super().__init__(urls, *given, **theirs)
        # webdataset reads shards in three stages: one opens or fetches, one gives members, one
        # makes samples.
        at = next(
            number
            for number, stage in enumerate(self.pipeline)
            if isinstance(stage, (wds.cache.StreamingOpen, wds.cache.FileCache))
        )
        opened, members = self.pipeline[at : at + 2]
        if isinstance(opened, wds.cache.FileCache):
            size = None if opened.cleaner is None else opened.cleaner.cache_size
            policies.setdefault("cache", PartCache(opened.cache_dir, size))
        self.pipeline[at : at + 3] = [tarfile_to_samples(**members.kw, **policies)]
