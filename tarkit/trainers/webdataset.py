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
from tarkit.samples.read import read_samples
from tarkit.samples.sample import KeyRule, Sample, first_dot, key_rule
from tarkit.store.cache import PartCache

wds = library("webdataset", "tarkit.trainers.webdataset", "webdataset")

_log = logging.getLogger(__name__)
_POLICIES = ("rule", "on_duplicate_field", "on_repeated_key", "on_damage", "tally", "mem", "cache")


Stage = Callable[[Iterable[Mapping[str, Any]]], Iterator[Sample]]
"""From shards, dicts with a ``url``, to samples."""


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
    ...     tarfile_to_samples(), webdataset.decode("rgb"), webdataset.to_tuple("jpg", "cls"), webdataset.batched(64),
    ... )

    Args:
        handler: is given an error that ends a shard; if it returns True, the next shard is read,
            and the error is logged. None: errors are raised.
        select_files: whether a member of this name is read.
        rename_files: the name that a member is to have; ``select_files`` is given that one.
        rule, on_duplicate_field, on_repeated_key, on_damage, tally, mem, cache: see
            :func:`tarkit.samples.read.read_samples`.

    Raises:
        UsageError: an argument has a wrong value; it does not go to the handler.
        DataError: (from iterating) a shard is damaged, or is not what the policies allow.
        MissingInputError, StreamError, TemporaryStreamError: (from iterating) a shard cannot be
            read.
    """
    policies: dict[str, Any] = {
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
    handler: Callable[[Exception], object] | None, policies: Mapping[str, Any], shards: Iterable[Mapping[str, Any]]
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


class WebDataset(wds.WebDataset):  # type: ignore[misc, name-defined]
    """``webdataset.WebDataset`` whose shards are read by tarkit; its methods are webdataset's own.

    >>> WebDataset("train-{0000..0147}.tar", shardshuffle=100).decode("rgb").to_tuple("jpg", "cls")  # doctest: +SKIP

    Args:
        urls, given, options: as webdataset's, and those of ``tarfile_to_samples`` besides. With
            ``cache_dir``, parts of remote shards are kept there by name and version, up to
            ``cache_size`` bytes (-1: see :class:`tarkit.store.cache.PartCache`).

    Raises:
        TypeError: no such argument.
        ValueError: what webdataset refuses.
        UsageError: a wrong value of tarkit's own.
    """

    def __init__(self, urls: Any, *given: Any, **options: Any) -> None:
        policies = {name: options.pop(name) for name in _POLICIES if name in options}
        super().__init__(urls, *given, **options)
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
