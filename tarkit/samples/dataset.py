"""WebDataset: a data set of shards as users of webdataset write it, made of tarkit's own steps.

Two styles run. The old one gives tuples at once::

    for key, image, cls in WebDataset("train-{0000..0147}.tgz", extensions="__key__ jpg cls"): ...

and the one of webdataset 1.0.2 chains methods::

    WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("jpg;png", "cls").shuffle(1000, seed=1)
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

from tarkit.errors import DataError, UsageError
from tarkit.formats.tally import DEFAULT_MEM, Tally
from tarkit.samples import transforms
from tarkit.samples.decoders import Decoders, decoded
from tarkit.samples.epochs import Draw
from tarkit.samples.handlers import Handler, handled
from tarkit.samples.read import read_samples
from tarkit.samples.sample import KeyRule, Sample, first_dot, key_rule
from tarkit.samples.splitters import Splitter, single_node_only, split_by_node, split_whole
from tarkit.samples.steps import Steps
from tarkit.specs.shardspec import expand
from tarkit.store.cache import PartCache
from tarkit.store.url import name_of_shard
from tarkit.trainers.world import loader_worker

# Arguments of webdataset 1.0.2 that have no meaning here -> what to use. None and False ask for nothing.
_REFUSED = {
    "mode": "None reads every shard once, and 'resampled' draws shards",
    "repeat": "loop over the data set again, or call its repeat()",
    "url_to_name": "parts of shards have names of their own in cache_dir",
    "verbose": "pass tally=Tally() and look at its counts",
}


class WebDataset(Steps):
    """Samples of shards, read anew by each iteration. Every method returns a new data set with one more step.

    A torch ``DataLoader`` takes it as an IterableDataset, if torch was imported before it was made. It can be pickled
    for workers that are spawned, if the functions given to it can.

    Args:
        urls: a path, URL or shard spec, or several (see :func:`tarkit.specs.shardspec.expand`).
        extensions: fields for :func:`tarkit.samples.transforms.to_tuple`, ``"__key__ jpg;png cls"``; the data set then
            gives tuples of decoded values. None: it gives samples, dicts.
        decoder: what images become, a word of :func:`~tarkit.samples.codecs.decode_field`; None leaves all fields as
            bytes. By default ``rgb`` (float32 of shape (height, width, 3), in 0..1) with ``extensions``, else None.
        shardshuffle: 0, False or None: shards come in order. A number: their order is shuffled with a buffer
            of so many names, in each epoch anew. True: 100.
        detshuffle: is ignored: the order of shards follows from seed and epoch anyway.
        resampled: shards are drawn, again and again, without end; others in each rank, worker and epoch. Nothing is
            split then: see ``with_epoch``. mode="resampled" is the same.
        seed: for the steps that draw and are given none. None: a fresh one, which is logged; ``seed`` has it.
        nodesplitter: which shards each of several ranks reads: :func:`~tarkit.samples.splitters.split_by_node` or
            another function from shards to shards; by default, several ranks are an error. None: all that are given.
        workersplitter: which of them each worker of a DataLoader reads:
            :func:`~tarkit.samples.splitters.split_by_worker`, another function, or None: all that are given. By
            default they are split if the DataLoader reads this data set itself; inside of another data set, which may
            have split them already, several workers are an error.
        handler: is given an error that ends a shard, see :mod:`tarkit.samples.handlers`; if it returns True, the next
            shard is read. Steps have handlers of their own. What was passed over is counted in ``handled``, by the
            name of the error, and logged after each iteration, by each worker for itself. None: errors are raised.
        empty_check: a data set without any sample is an error; a worker without shards is not.
        cache_dir: a folder of this machine where parts of remote shards are kept, for all processes and later epochs,
            see :class:`tarkit.store.cache.PartCache`. cache_size: bytes of it at most; below 0: 16 GiB, or half of
            what its disk has free, if that is less; 0: nothing is kept.
        select_files, rename_files: functions of a member's name: whether it is read, and the name that it is to have.
        rule, on_duplicate_field, on_repeated_key, on_damage, tally, mem: see :func:`tarkit.samples.read.read_samples`.
            A worker counts in a tally of its own.
        refused: the other arguments of webdataset 1.0.2; only values that ask for nothing are taken.

    Raises:
        UsageError: an argument that is not taken; the message says what to use. (From iterating) the process is one of
            several that would read the same samples.
        DataError: (from iterating) a shard is damaged, a field is missing, or no sample is found.
    """

    def __init__(
        self,
        urls: str | os.PathLike[str] | Iterable[str],
        *,
        extensions: str | None = None,
        decoder: str | None = "default",
        shardshuffle: int | None = None,
        detshuffle: bool = False,
        resampled: bool = False,
        mode: str | None = None,
        seed: int | None = None,
        nodesplitter: Splitter | None = single_node_only,
        workersplitter: Splitter | str | None = "default",
        handler: Handler | None = None,
        empty_check: bool = True,
        cache_dir: str | os.PathLike[str] | None = None,
        cache_size: int = -1,
        select_files: Callable[[str], object] | None = None,
        rename_files: Callable[[str], str] | None = None,
        rule: str | KeyRule = first_dot,
        on_duplicate_field: str = "error",
        on_repeated_key: str = "error",
        on_damage: str = "error",
        tally: Tally | None = None,
        mem: int = DEFAULT_MEM,
        **refused: Any,
    ) -> None:
        for name, value in refused.items():
            _refuse(name, value)
        super().__init__(seed)
        # An iterator would be empty the second time.
        self._urls = urls if isinstance(urls, (str, os.PathLike)) else list(urls)
        self._shardshuffle = 100 if shardshuffle is True else int(shardshuffle or 0)
        if mode not in (None, "resampled"):
            _refuse("mode", mode)
        resampled = resampled or mode == "resampled"
        if self._shardshuffle:
            transforms.shuffle((), self._shardshuffle, self._draw(None, "shardshuffle").seed_of(self.seed))
        if workersplitter != "default" and isinstance(workersplitter, str):
            raise UsageError(f"workersplitter is {workersplitter!r}; it must be a function or None")
        self._resampled, self._handler = resampled, handler
        if resampled:
            self._draw(None, "resampled")
        self._nodesplitter, self._workersplitter = nodesplitter, workersplitter
        self._empty_check = empty_check
        if select_files is not None or rename_files is not None:
            rule = partial(_by_name, key_rule(rule), select_files, rename_files)
        self._policies: dict[str, Any] = {"rule": rule, "on_damage": on_damage, "tally": tally, "mem": mem}
        if cache_dir is not None and cache_size:
            self._policies["cache"] = PartCache(cache_dir, cache_size if cache_size > 0 else None)
        elif cache_size not in (-1, 0):
            raise UsageError(f"cache_size={cache_size} needs cache_dir, the folder of the cache")
        self._policies |= {"on_duplicate_field": on_duplicate_field, "on_repeated_key": on_repeated_key}
        if decoder == "default":
            decoder = None if extensions is None else "rgb"
        wanted = None if extensions is None else extensions.replace("|", " ").replace(";", " ").split()
        if decoder is not None:
            self._add(decoded, Decoders((decoder,)), wanted)
        if extensions is not None:
            self._add(transforms.to_tuple, extensions)
        _register(type(self))

    def _reader(self) -> tuple[int, int]:
        worker = None if self._workersplitter is None else loader_worker()
        return 0 if self._nodesplitter is None else self._rank().rank, 0 if worker is None else worker.number

    def _given(self) -> list[tuple[str, object]]:
        own = {"handler": self._handler, "nodesplitter": self._nodesplitter, "workersplitter": self._workersplitter}
        return [*super()._given(), *own.items(), *self._policies.items()]

    def _named(self) -> list[str]:
        urls = [os.fspath(self._urls)] if isinstance(self._urls, (str, os.PathLike)) else self._urls
        return list(map(name_of_shard, urls))

    def _dealing(self) -> str:
        return f"shards({self._shardshuffle}, {self._resampled}) {super()._dealing()}"

    def _read(self, place: tuple[int, ...]) -> Iterator[Sample]:
        shards = iter(expand(self._urls) if self._resampled else self._of_node(expand(self._urls)))
        first = next(shards, None)
        shards = chain(() if first is None else (first,), shards)
        if not self._resampled:
            shards = iter(self._of_worker(shards))
        mine = next(shards, None)
        empty = True
        if mine is not None:
            for sample in self._samples(chain((mine,), shards), place):
                empty = False
                yield sample
        # Of few shards, a worker may have none.
        if empty and self._empty_check and (first is None or mine is not None):
            url = os.fspath(self._urls) if isinstance(self._urls, (str, os.PathLike)) else None
            raise DataError("the data set has no samples", url=url, hint="empty_check=False accepts that")

    def _samples(self, shards: Iterator[str], place: tuple[int, ...]) -> Iterator[Sample]:
        seed = Draw(None).at(self.seed, *place)
        if self._resampled:
            shards = _drawn(list(shards), random.Random(seed))
        elif self._shardshuffle:
            shards = transforms.shuffle(shards, self._shardshuffle, seed)
        if self._handler is None:
            return self._of_shards(shards)
        return handled(shards, self._of_shards, (), self._handler, self.handled)

    def _of_shards(self, shards: Iterable[str]) -> Iterator[Sample]:
        return read_samples(shards, literal=True, split=True, **self._policies)

    def _of_node(self, urls: Iterable[str]) -> Iterable[str]:
        splitter = self._nodesplitter
        if splitter is single_node_only or splitter is split_by_node:
            return splitter(urls, self._rank())
        return urls if splitter is None else splitter(urls)

    def _of_worker(self, urls: Iterable[str]) -> Iterable[str]:
        splitter = self._workersplitter
        if isinstance(splitter, str):
            return split_whole(urls, self)
        return urls if splitter is None else splitter(urls)


def _by_name(
    rule: KeyRule,
    select: Callable[[str], object] | None,
    rename: Callable[[str], str] | None,
    name: str,
) -> tuple[str, str] | None:
    if select is not None and not select(name):
        return None
    return rule(name if rename is None else rename(name))


def _drawn(shards: list[str], rng: random.Random) -> Iterator[str]:
    while True:
        yield rng.choice(shards)


def _register(kind: type) -> None:
    """Make a DataLoader see an IterableDataset, where torch is imported."""
    data = sys.modules.get("torch.utils.data")
    if data is not None and not issubclass(kind, data.IterableDataset):
        data.IterableDataset.register(kind)


def _refuse(name: str, value: object) -> None:
    if name not in _REFUSED:
        raise UsageError(f"WebDataset has no argument {name!r}")
    if value is not None and value is not False:
        raise UsageError(f"WebDataset({name}={value!r}) is not taken: {_REFUSED[name]}")
