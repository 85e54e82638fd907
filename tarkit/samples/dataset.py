"""WebDataset: a data set of shards as users of webdataset write it, made of tarkit's own steps.

Two styles run. The old one gives tuples at once::

    for key, image, cls in WebDataset("train-{0000..0147}.tgz", extensions="__key__ jpg cls"): ...

and the one of webdataset 1.0.2 chains methods::

    WebDataset(urls, shardshuffle=False).decode("pil").to_tuple("jpg;png", "cls").shuffle(1000, seed=1)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any

from tarkit.errors import DataError, UsageError
from tarkit.formats.tally import Tally
from tarkit.formats.tar.large import DEFAULT_MEM
from tarkit.samples import transforms
from tarkit.samples.codecs import decode_field, decode_sample
from tarkit.samples.read import read_samples
from tarkit.samples.sample import KeyRule, Sample, first_dot
from tarkit.specs.shardspec import expand

Step = Callable[[Iterable[Any]], Iterator[Any]]

_COPIES = "nothing is cached; copy the shards and name the copies"
# Arguments of webdataset 1.0.2 that have no meaning here -> what to use. None and False ask for nothing.
_REFUSED = {
    "handler": "errors are raised; on_damage='skip' goes on behind damage and counts it in tally",
    "mode": "every shard is read once; loop over the data set for more epochs",
    "resampled": "every shard is read once; pass a list with the shards drawn as you like",
    "repeat": "loop over the data set again; each iteration reads the shards anew",
    "cache_size": _COPIES,
    "cache_dir": _COPIES,
    "url_to_name": _COPIES,
    "detshuffle": "shardshuffle=N with a seed is always deterministic",
    "nodesplitter": "pass each node its own shards, by tarkit.specs.shardspec.take_slice",
    "workersplitter": "pass each worker its own shards, by tarkit.specs.shardspec.take_slice",
    "select_files": "pass rule=, a function from member name to (key, field), or to None to skip it",
    "rename_files": "pass rule=, a function from member name to (key, field)",
    "verbose": "pass tally=Tally() and look at its counts",
}


class WebDataset:
    """Samples of shards, read anew by each iteration. Every method returns a new data set with one more step.

    Args:
        urls: a path, URL or shard spec, or several (see :func:`tarkit.specs.shardspec.expand`).
        extensions: fields for :func:`tarkit.samples.transforms.to_tuple`, ``"__key__ jpg;png cls"``; the data set then
            gives tuples of decoded values. None: it gives samples, dicts.
        decoder: what images become, a word of :func:`~tarkit.samples.codecs.decode_field`; None leaves all fields as
            bytes. By default ``rgb`` (float32 of shape (height, width, 3), in 0..1) with ``extensions``, else None.
        shardshuffle: 0, False or None: shards come in order. A number: their order is shuffled with a buffer
            of so many names, the same order in each iteration.
        seed: for shardshuffle, and for ``shuffle`` where it is given none.
        empty_check: a data set without any sample is an error.
        rule, on_duplicate_field, on_repeated_key, on_damage, tally, mem: see :func:`tarkit.samples.read.read_samples`.
        refused: the other arguments of webdataset 1.0.2; only values that ask for nothing are taken.

    Raises:
        UsageError: an argument that is not taken; the message says what to use.
        DataError: (from iterating) a shard is damaged, a field is missing, or no sample is found.
    """

    def __init__(
        self,
        urls: str | os.PathLike[str] | Iterable[str],
        *,
        extensions: str | None = None,
        decoder: str | None = "default",
        shardshuffle: int | None = None,
        seed: int | None = None,
        empty_check: bool = True,
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
        # An iterator would be empty the second time.
        self._urls = urls if isinstance(urls, (str, os.PathLike)) else list(urls)
        if shardshuffle is True:
            raise UsageError("shardshuffle=True: pass the number of shard names to shuffle among, such as 100")
        self._shardshuffle = int(shardshuffle or 0)
        self._seed = seed
        if self._shardshuffle:
            transforms.shuffle((), self._shardshuffle, _needed(seed, "shardshuffle"))
        self._empty_check = empty_check
        self._policies: dict[str, Any] = {"rule": rule, "on_damage": on_damage, "tally": tally, "mem": mem}
        self._policies |= {"on_duplicate_field": on_duplicate_field, "on_repeated_key": on_repeated_key}
        self._steps: tuple[Step, ...] = ()
        if decoder == "default":
            decoder = None if extensions is None else "rgb"
        wanted = None if extensions is None else extensions.replace("|", " ").replace(";", " ").split()
        if decoder is not None:
            self._steps += (_decoding(decoder, wanted),)
        if extensions is not None:
            self._steps += self.to_tuple(extensions)._steps[-1:]

    def __iter__(self) -> Iterator[Any]:
        samples: Iterator[Any] = self._read()
        for step in self._steps:
            samples = step(samples)
        return samples

    def _read(self) -> Iterator[Sample]:
        urls = expand(self._urls)
        if self._shardshuffle:
            urls = transforms.shuffle(urls, self._shardshuffle, _needed(self._seed, "shardshuffle"))
        empty = True
        for sample in read_samples(urls, literal=True, **self._policies):
            empty = False
            yield sample
        if empty and self._empty_check:
            url = os.fspath(self._urls) if isinstance(self._urls, (str, os.PathLike)) else None
            raise DataError("the data set has no samples", url=url, hint="empty_check=False accepts that")

    def _then(self, step: Step) -> WebDataset:
        step(())  # checks the step's arguments here, where they were written
        other = WebDataset.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other._steps = (*self._steps, step)
        return other

    def decode(self, image: str | None = None, *, only: str | Collection[str] | None = None) -> WebDataset:
        """Decode all fields, or ``only`` those named; see :func:`tarkit.samples.codecs.decode_sample`.

        A field in ``only`` that no sample has is an error after the last sample (DataError)."""
        wanted = only.split() if isinstance(only, str) else only
        decoding = _decoding(image, wanted)
        return self._then(lambda samples: decoding(transforms.require_fields(samples, wanted or ())))

    def to_tuple(self, *fields: str) -> WebDataset:
        """Tuples of values; see :func:`tarkit.samples.transforms.to_tuple`."""
        return self._then(lambda samples: transforms.to_tuple(samples, *fields))

    def rename(self, **names: str) -> WebDataset:
        """``rename(image="jpg;png")``; see :func:`tarkit.samples.transforms.rename_fields`."""
        return self._then(lambda samples: transforms.rename_fields(samples, names))

    def select(self, predicate: Callable[[Any], object]) -> WebDataset:
        """Only the samples for which ``predicate(sample)`` is true."""
        return self._then(lambda samples: transforms.select(samples, predicate))

    def map(self, function: Callable[[Any], Any]) -> WebDataset:
        """``function(sample)`` for each sample, except those for which it is None.

        A dict that comes back from a dict without a ``__key__`` is given the sample's."""
        return self._then(lambda samples: _mapped(samples, function))

    def map_dict(self, **functions: Callable[[Any], Any]) -> WebDataset:
        """``map_dict(jpg=resize)``; see :func:`tarkit.samples.transforms.map_fields`."""
        return self._then(lambda samples: transforms.map_fields(samples, functions))

    def shuffle(self, size: int, *, seed: int | None = None) -> WebDataset:
        """A buffer shuffle, see :func:`~tarkit.samples.transforms.shuffle`; the same order each time. 0: no shuffle."""
        if size == 0:
            return self
        chosen = _needed(self._seed if seed is None else seed, "shuffle")
        return self._then(lambda samples: transforms.shuffle(samples, size, chosen))

    def slice(self, *bounds: int | None) -> WebDataset:
        """Samples by number: ``slice(stop)`` or ``slice(start, stop[, step])``, as :func:`itertools.islice`."""
        if not 1 <= len(bounds) <= 3:
            raise UsageError(f"slice takes stop, or start, stop and step; got {bounds!r}")
        try:
            return self._then(lambda samples: islice(samples, *bounds))
        except ValueError as error:
            raise UsageError(f"slice{bounds!r}: {error}") from None

    def take(self, count: int) -> WebDataset:
        """The first ``count`` samples."""
        return self._then(lambda samples: transforms.take(samples, count))


def _refuse(name: str, value: object) -> None:
    if name not in _REFUSED:
        raise UsageError(f"WebDataset has no argument {name!r}")
    if not (value is None or value is False or (name == "cache_size" and value in (-1, 0))):
        raise UsageError(f"WebDataset({name}={value!r}) is not taken: {_REFUSED[name]}")


def _needed(seed: int | None, step: str) -> int:
    if seed is None:
        raise UsageError(f"{step} needs a seed, so that the order can be had again: pass seed=N")
    return seed


def _decoding(image: str | None, only: Collection[str] | None) -> Step:
    decode_field("bin", b"", image=image)  # refuses an unknown image word before anything is read
    return lambda samples: (decode_sample(sample, image=image, only=only) for sample in samples)


def _mapped(samples: Iterable[Any], function: Callable[[Any], Any]) -> Iterator[Any]:
    for sample in samples:
        result = function(sample)
        if isinstance(sample, dict) and isinstance(result, dict) and "__key__" in sample:
            result = {"__key__": sample["__key__"], **result}
        if result is not None:
            yield result
