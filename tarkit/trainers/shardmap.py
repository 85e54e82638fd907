"""Read samples of a data set by number, through the indexes beside its shards."""

from __future__ import annotations

import copy
import io
import logging
import os
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate
from operator import index

from tarkit.errors import DataError, TarkitError, UsageError, counted, printable
from tarkit.names.keywords import Unpack, keywords_of
from tarkit.names.outputnames import index_url
from tarkit.names.url import display_name
from tarkit.samples.sample import KeyRule, Sample, first_dot, key_rule
from tarkit.store.cache import PartCache
from tarkit.store.waits import Workers
from tarkit.trainers.choice import SampleChoice, SubsetOptions
from tarkit.trainers.openshards import OpenShards
from tarkit.trainers.order import Place
from tarkit.trainers.shardlist import listed_shards
from tarkit.trainers.subset import Subset

_log = logging.getLogger(__name__)


class ShardMap:
    """A map-style data set: ``len(it)`` samples, ``it[number]``; all samples, or a subset.

    Only the bytes of a sample are read. It may be given to ShardDataset and ``tarkit.batches`` in
    place of shards.

    It can be passed to other processes; each opens shards for itself, when it reads the first
    sample of them.

    The first sample that is read of a shard raises UsageError if the shard has no index,
    StaleIndexError if that is of another shard, DataError if it is damaged, or if the shard has
    other samples or bytes than were listed or counted. Of a local shard's index, a line is verified
    when its sample is read; keys are checked for repetition when a second sample is read; with a
    key rule other than ``first_dot``, all lines are verified when the index is opened.

    >>> ShardMap("train-{0000..0147}.tar")[31_000]["jpg"]  # doctest: +SKIP
    >>> large = ShardMap("train-{0000..0147}.tar", where="size(jpg) > 100000")  # doctest: +SKIP
    >>> odd = large.subset(range(1, len(large), 2))  # doctest: +SKIP

    Args:
        urls: a path, URL or shard spec, or several; each shard has an index beside it (``tarkit
            index``). A name that ends in ``.json`` is a manifest (``tarkit index --manifest``),
            which lists shards and their samples: then nothing else is read to open the data set;
            without a manifest, the first line of each index is read.
        rule: key rule: ``first-dot``, ``last-dot``, a regular expression with two groups, or a
            function.
        held: number of shards whose indexes are kept in memory. None: those of two million samples,
            256 to 4096 of them, which is what the blocks of an order need. Fewer local shards stay
            open: a quarter of the descriptors that a process may have, 1024 at most.
        cache: folder of this machine where parts of remote shards are kept, those of compressed
            ones with their content; None: each sample of a remote shard is a request.
        cache_size: largest size in bytes of this folder; see :class:`tarkit.store.cache.PartCache`.
        run: number of consecutive samples of a remote shard that are fetched at once into the
            cache.
        keep_unpacked: True to keep content of compressed shards on this machine in the cache, too;
            False: their frames are decoded for each sample.
        options: ``keys``, ``where``, ``split`` and such, which choose samples; see
            :class:`tarkit.trainers.choice.SubsetOptions`. Samples that are not chosen have no
            number here.

    Raises:
        UsageError: a shard has no index, no shard is named, or an argument has a wrong value.
        DataError: a manifest, or an index, is damaged, or no sample is chosen.
        MissingInputError, StreamError, TemporaryStreamError: a manifest or index cannot be read.
    """

    @keywords_of(SubsetOptions)
    def __init__(
        self,
        urls: str | os.PathLike[str] | Iterable[str],
        *,
        rule: str | KeyRule = first_dot,
        held: int | None = None,
        cache: str | os.PathLike[str] | None = None,
        cache_size: int | None = None,
        run: int = 100,
        keep_unpacked: bool = True,
        **options: Unpack[SubsetOptions],
    ) -> None:
        choice = SampleChoice(**options)
        if run < 1:
            raise UsageError(f"run is {run}; it must be at least 1")
        self._rule = key_rule(rule)
        self._listed, self.sizes = listed_shards(urls)
        """``sizes``: number of shards that each of ``urls`` names."""
        self.urls = [shard.url for shard, _ in self._listed]
        if len(set(self.urls)) < len(self.urls):
            url, times = Counter(self.urls).most_common(1)[0]
            _log.warning("%s is listed %d times, and each time its samples count as others", display_name(url), times)
        for url in self.urls:
            index_url(url)  # a name that can have none is an error now, and not at its first sample
        kept = None if cache is None else PartCache(cache, cache_size)
        self.shards = OpenShards(self._listed, self._rule, held=held, cache=kept, run=run, keep_unpacked=keep_unpacked)
        """The shards that this process has open."""
        self.counts = [shard.nsamples for shard, _ in self._listed]
        """Number of samples of each shard, of the chosen ones in a subset."""
        self._ends = list(accumulate(self.counts))
        self.chosen: Subset | None = None
        """The chosen samples; None: all samples."""
        if choice.selects:
            self._choose(self._found(choice))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, wanted: int) -> Sample:
        """Return one sample.

        Raises:
            IndexError: the number is out of range.
            TypeError: it is not a number, such as a slice.
        """
        return self.sample(*self._place(wanted))

    def _place(self, wanted: int) -> tuple[int, int]:
        try:
            wanted = index(wanted)
        except TypeError:
            hint = "subset(slice) gives a part, and keys= chooses by key"
            raise TypeError(f"{printable(repr(wanted))} is not the number of a sample; {hint}") from None
        number = wanted + len(self) if wanted < 0 else wanted
        if not 0 <= number < len(self):
            raise IndexError(f"sample {wanted} of {counted(len(self), 'sample')}")
        shard = bisect_right(self._ends, number)
        return shard, number - self._ends[shard] + self.counts[shard]

    def open_field(self, wanted: int, field: str) -> io.BufferedReader:
        """Open a field of a sample as a seekable file, of which only what is needed is read.

        Parts of a long recording are read so: see :func:`tarkit.samples.audio.read_audio` and
        :func:`tarkit.samples.video.read_frames`. Of a local shard 16 KiB are read at a time, of a
        remote one 64 KiB are requested; the cache is not used.

        >>> with ShardMap("talks-{00..31}.tar").open_field(7, "flac") as file:  # doctest: +SKIP
        ...     samples, rate = read_audio(file, start=60.0, seconds=5.0)

        Args:
            wanted: number of the sample.
            field: name of the field.

        Raises:
            IndexError: the number is out of range.
            MissingFieldError: the sample has no such field.
            DataError, StreamError: see :meth:`IndexedShard.open_field`.
        """
        shard, number = self._place(wanted)
        return self.shards.get(shard).open_field(self._own(shard, number), field)

    def sample(self, shard: int, number: int) -> Sample:
        """Return a sample by the number of its shard and its number in the shard.

        See :meth:`IndexedShard.sample`.
        """
        return self.shards.sample(shard, self._own(shard, number))

    def _own(self, shard: int, number: int) -> int:
        """Return the number of a sample among all samples of its shard."""
        return number if self.chosen is None else self.chosen.own(shard, number)

    def keys_of(self, shard: int) -> Iterator[str]:
        """Yield the keys of a shard, by its number, from its index; in a subset, the chosen."""
        keys = self.shards.get(shard).keys()
        return keys if self.chosen is None else map(list(keys).__getitem__, self.chosen.numbers[shard])

    def key_of(self, shard: int, number: int) -> str | None:
        """Return the key of a sample by its shard's index; None if the index cannot be read."""
        with suppress(TarkitError, ValueError, IndexError):
            name = self.shards.get(shard).index[self._own(shard, number)][0].name
            if (split := self._rule(name)) is not None:
                return split[0]
        return None

    def subset(self, numbers: range | slice) -> ShardMap:
        """Return a subset by the numbers of its samples, such as ``range(1000, 2000)``.

        Raises:
            UsageError: the numbers do not ascend, are not all in the data set, or there are none.
        """
        found = copy.copy(self)
        found._choose((self.chosen or Subset(list(map(range, self.counts)))).part(numbers))
        return found

    def choose(self, texts: Sequence[str]) -> None:
        """Choose the samples of a :class:`Subset` by its texts.

        Raises:
            DataError: the texts are not those of samples of these shards.
        """
        self._choose(Subset.parsed(texts, self.all_counts))

    @property
    def all_counts(self) -> list[int]:
        """Number of samples of each shard, of which a subset may have only some."""
        return [shard.nsamples for shard, _ in self._listed]

    def _found(self, choice: SampleChoice) -> Subset:
        """Return the samples that are chosen, from all indexes."""
        most = self.shards.most_at_once
        with Workers(most, "tarkit-choice") as pool:
            opened = pool.ahead(self.shards.open, range(len(self.urls)), most)
            found = Subset(list(map(choice.numbers, opened)))
        choice.check()
        if not any(found.counts):
            raise DataError(f"keys=, where= and split= choose none of {counted(len(self), 'sample')}")
        return found

    def _choose(self, found: Subset) -> None:
        self.counts = found.counts
        self._ends = list(accumulate(self.counts))
        self.chosen = None if self.counts == self.all_counts else found

    def take(self, places: Sequence[tuple[int, int] | Place]) -> list[Sample]:
        """Return samples by the numbers of their shards and their numbers in them.

        Those of a local shard are read together.
        """
        pairs = [(place[0], place[1]) for place in places]
        return self.shards.take(pairs if self.chosen is None else self.chosen.places(pairs))

    def fetch(self, samples: Iterable[tuple[int, int]]) -> None:
        """Fetch the parts of these samples into the cache, if there is one, some at a time.

        A sample is given as the number of its shard and its number there. Errors are ignored here:
        the reading of the sample tries again, and raises them.
        """
        if self.shards.usable_cache is not None:
            self.shards.fetch(self.in_remote_shards(samples))

    def in_remote_shards(self, samples: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return those samples that are in remote shards, by their numbers in the whole shards."""
        wanted = [each for each in samples if each[0] in self.shards.remote]
        return wanted if self.chosen is None else self.chosen.places(wanted)
