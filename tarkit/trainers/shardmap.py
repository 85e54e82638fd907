"""Read samples of a data set by number, through the indexes beside its shards."""

from __future__ import annotations

import copy
import io
import json
import logging
import os
import resource
from bisect import bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache, partial
from hashlib import blake2b
from itertools import accumulate, chain
from operator import index
from typing import Any, TypeVar

from tarkit.errors import (
    DataError,
    MissingInputError,
    StreamError,
    TarkitError,
    TemporaryStreamError,
    UsageError,
    counted,
    printable,
)
from tarkit.names.keywords import Unpack, keywords_of
from tarkit.names.outputnames import index_url, is_packed_name
from tarkit.names.url import display_name, is_stream, local_path, name_of_shard
from tarkit.samples.cachedshard import CachedShard, open_cached
from tarkit.samples.index import count_of_index
from tarkit.samples.indexedshard import IndexedShard, ReadCounts, open_indexed
from tarkit.samples.sample import KeyRule, Sample, first_dot, key_rule
from tarkit.specs.manifest import ManifestShard, is_manifest, read_manifest
from tarkit.specs.shardspec import expand, spec_texts
from tarkit.store.cache import PartCache
from tarkit.store.entries import identify
from tarkit.store.frames import DecodedFrames
from tarkit.store.packedfile import PackedFile, open_packed
from tarkit.store.waits import Workers
from tarkit.trainers.choice import SampleChoice, SubsetOptions
from tarkit.trainers.order import Place
from tarkit.trainers.subset import Subset

_log = logging.getLogger(__name__)
_T = TypeVar("_T")
_AT_A_TIME = 8
_SAMPLES_HELD = 2_000_000
_LEAST_HELD, _MOST_HELD = 256, 4096


class NoIndexError(UsageError):
    """A shard has no index, or does not exist in a store that does not report missing files."""


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
        self.reads = ReadCounts()
        """Counts of this process's reads."""
        self._rule = key_rule(rule)
        self._run = run
        self.cache = None if cache is None else PartCache(cache, cache_size)
        self._fetched: set[tuple[int, int]] = set()
        """Shard and first sample of the parts that this process knows to have been in the cache in
        this epoch.
        """
        self._again = self._read = 0
        """Bytes of parts that were fetched again, and of samples that were read, in this epoch."""
        self._open: OrderedDict[int, IndexedShard] = OrderedDict()
        groups = [list(_listed(spec)) for spec in spec_texts(urls)]
        if not groups:
            raise UsageError("a data set names no shards")
        self.sizes = list(map(len, groups))
        """Number of shards that each of ``urls`` names."""
        self._listed = _all_counted(list(chain(*groups)))
        self.urls = [shard.url for shard, _ in self._listed]
        if len(set(self.urls)) < len(self.urls):
            url, times = Counter(self.urls).most_common(1)[0]
            _log.warning("%s is listed %d times, and each time its samples count as others", display_name(url), times)
        self.remote = {number for number, url in enumerate(self.urls) if local_path(url) is None and not is_stream(url)}
        """Numbers of shards that are read over a network."""
        self.fetched_elsewhere = False
        """True if another object fetches the parts of each batch; :meth:`fetch` then does so only
        for compressed shards.
        """
        for url in self.urls:
            index_url(url)
        self._has_packed = any(map(is_packed_name, self.urls))
        self._keep_unpacked = keep_unpacked
        self._decoded = DecodedFrames()
        self.counts = [shard.nsamples for shard, _ in self._listed]
        """Number of samples of each shard, of the chosen ones in a subset."""
        self._ends = list(accumulate(self.counts))
        mean = max(1, len(self) // max(1, len(self.urls)))
        self.most_held = held or min(max(_LEAST_HELD, _SAMPLES_HELD // mean), _MOST_HELD)
        """Number of shards whose indexes are kept in memory."""
        self._files: OrderedDict[int, IndexedShard] = OrderedDict()
        """Shards that may have an open descriptor, the last used one at the end."""
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
        own = number if self.chosen is None else self.chosen.own(shard, number)
        return self._shard(shard).open_field(own, field)

    def sample(self, shard: int, number: int) -> Sample:
        """Return a sample by the number of its shard and its number in the shard.

        See :meth:`IndexedShard.sample`.
        """
        if self.chosen is not None:
            number = self.chosen.own(shard, number)
        found = self._shard(shard)
        if isinstance(found, CachedShard):
            return self._cached(shard, found, number)
        return self.reads.fetched(found.sample, number) if shard in self.remote else found.sample(number)

    def _cached(self, shard: int, found: CachedShard, number: int) -> Sample:
        first = found.first_of_part(number)
        if (shard, first) not in self._fetched:
            self.reads.fetched(self._fetch, shard, found, first)
        sample = found.kept(number)
        if sample is None and self._again + found.bytes_of_part(first) <= self._read:
            self._again += found.bytes_of_part(first)
            self.reads.fetched(found.fetch, first)
            sample = found.kept(number)
        if sample is None:
            if self.cache is not None and not self.cache.closed:
                gone = "parts are removed from it before their samples are read, which are then read one by one"
                self.cache.warn_small(f"{gone} from the remote shards")
            sample = self.reads.fetched(found.sample, number)
        begin, end = found.index.span(number, number + 1)
        self._read += end - begin
        return sample

    def keys_of(self, shard: int) -> Iterator[str]:
        """Yield the keys of a shard, by its number, from its index; in a subset, the chosen."""
        keys = self._shard(shard).keys()
        return keys if self.chosen is None else map(list(keys).__getitem__, self.chosen.numbers[shard])

    def key_of(self, shard: int, number: int) -> str | None:
        """Return the key of a sample by its shard's index; None if the index cannot be read."""
        with suppress(TarkitError, ValueError, IndexError):
            name = self._shard(shard).index[number if self.chosen is None else self.chosen.own(shard, number)][0].name
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

    @property
    def digest(self) -> str:
        """Digest of the shards with all samples, equal for a copy at a different place."""
        shards = [[name_of_shard(url) for url in self.urls], self.all_counts]
        return blake2b(json.dumps(shards).encode(), digest_size=8).hexdigest()

    def _found(self, choice: SampleChoice) -> Subset:
        """Return the samples that are chosen, from all indexes."""
        mean = max(1, len(self) // max(1, len(self.urls)))
        most = max(1, min(_AT_A_TIME, _SAMPLES_HELD // mean))  # so long indexes do not fill the memory
        with Workers(most, "tarkit-choice") as pool:
            opened = pool.ahead(self.open, range(len(self.urls)), most)
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
        own = pairs if self.chosen is None else self.chosen.places(pairs)
        of_shard: dict[int, list[int]] = {}
        for at, (shard, _) in enumerate(pairs):
            of_shard.setdefault(shard, []).append(at)
        found: list[Sample] = [{}] * len(pairs)
        for shard, some in of_shard.items():
            if shard in self.remote:
                taken = [self.sample(*pairs[at]) for at in some]
            else:
                taken = self._shard(shard).take([own[at][1] for at in some])
            for at, sample in zip(some, taken, strict=True):
                found[at] = sample
        return found

    def begin_epoch(self) -> None:
        """Allow each part to be fetched once more if it is not in the cache.

        Within an epoch, parts that were removed from the cache are fetched again only as long as
        this does not more than double the bytes fetched; their other samples are read one by one.
        """
        self._fetched.clear()
        for packed in filter(None, (shard.packed for shard in self._open.values())):
            packed.begin_epoch()
        self._again = self._read = 0

    def fetch(self, samples: Iterable[tuple[int, int]]) -> None:
        """Fetch the parts of these samples into the cache, if there is one, some at a time.

        A sample is given as the number of its shard and its number there. Errors are ignored here:
        the reading of the sample tries again, and raises them.
        """
        if self.remote and self.cache is not None and not self.cache.closed:
            wanted = list(samples)
            if not self.fetched_elsewhere:
                self.reads.fetched(self._fetch_parts, wanted)
            if self._has_packed:
                self.reads.fetched(self._fetch_unpacked, wanted)

    def _fetch_parts(self, samples: Sequence[tuple[int, int]]) -> None:
        wanted = self.in_remote_shards(samples)
        closed = {shard for shard, _ in wanted if shard not in self._open}
        for number, shard in _attempted(self.open, [(number,) for number in closed]):
            self.hold(number[0], shard)
        parts = {
            (shard, found, first): None
            for shard, number in wanted
            if isinstance(found := self._open.get(shard), CachedShard)
            and (shard, first := found.first_of_part(number)) not in self._fetched
        }
        _attempted(self._fetch, list(parts))

    def _fetch_unpacked(self, samples: Sequence[tuple[int, int]]) -> None:
        unpacked = {
            (found.packed, part): None
            for shard, number in self.in_remote_shards(samples)
            if (found := self._open.get(shard)) is not None and found.packed is not None
            for part in found.packed.parts(*found.index.span(number, number + 1))
        }
        _attempted(PackedFile.keep, list(unpacked))

    def in_remote_shards(self, samples: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Return those samples that are in remote shards, by their numbers in the whole shards."""
        wanted = [each for each in samples if each[0] in self.remote]
        return wanted if self.chosen is None else self.chosen.places(wanted)

    def note_fetched(self, number: int, first: int) -> None:
        """Record that the part of a shard that begins with sample ``first`` is in the cache."""
        self._fetched.add((number, first))

    def held(self, number: int) -> IndexedShard | None:
        """Return a shard that is open, or None."""
        return self._open.get(number)

    def _fetch(self, number: int, shard: CachedShard, first: int) -> None:
        """Fetch a part into the cache, unless this was done in this epoch.

        Raises:
            StreamError: the part cannot be read.
        """
        if (number, first) not in self._fetched:
            shard.fetch(first)
            self._fetched.add((number, first))

    def _shard(self, number: int) -> IndexedShard:
        found = self._open.get(number)
        if found is None:
            opened = self.reads.fetched(self.open, number) if number in self.remote else self.open(number)
            found = self.hold(number, opened)
        else:
            self._open.move_to_end(number)
        self._files[number] = found
        self._files.move_to_end(number)
        if len(self._files) > _most_files():
            self._files.popitem(last=False)[1].release()
        return found

    def hold(self, number: int, shard: IndexedShard) -> IndexedShard:
        """Keep a shard open, which :meth:`open` returned."""
        self._open[number] = shard
        shard.reads = self.reads
        while len(self._open) > self.most_held:
            self._files.pop(self._open.popitem(last=False)[0], None)
        return shard

    def open(self, number: int) -> IndexedShard:
        """Open a shard; any thread may call it.

        Raises:
            UsageError: the shard has no index.
            DataError: it has other samples or bytes than were listed or counted.
            StreamError: it cannot be read.
        """
        url = self.urls[number]
        if is_packed_name(url):
            keeps = number in self.remote or self._keep_unpacked
            unpack = partial(open_packed, decoded=self._decoded, cache=self.cache if keeps else None)
            found = open_indexed(url, self._rule, check=False, unpack=unpack)
        elif self.cache is not None and number in self.remote:
            found = open_cached(url, self._rule, self._run, self.cache)
        else:
            found = open_indexed(url, self._rule, check=False)
        if found is None:
            raise _without_index(url)
        _check(found, *self._listed[number])
        return found

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {
            "_open": OrderedDict(),
            "_files": OrderedDict(),
            "_fetched": set(),
            "_decoded": DecodedFrames(),
            "fetched_elsewhere": False,
        }


@cache
def _most_files() -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1024 if soft == resource.RLIM_INFINITY else min(1024, max(1, soft // 4))


def _attempted(call: Callable[..., _T], arguments: list[tuple[Any, ...]]) -> list[tuple[tuple[Any, ...], _T]]:
    """Yield the results of the calls that raise no error of tarkit, with their arguments.

    Several calls run at a time.
    """

    def attempt(each: tuple[Any, ...]) -> list[tuple[tuple[Any, ...], _T]]:
        with suppress(TarkitError):
            return [(each, call(*each))]
        return []

    if len(arguments) < 2:
        return [found for each in arguments for found in attempt(each)]
    with Workers(min(_AT_A_TIME, len(arguments)), "tarkit-fetch") as pool:
        return [found for each in pool.map(attempt, arguments) for found in each]


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
    with Workers(_AT_A_TIME, "tarkit-counts") as pool:
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
        with suppress(StreamError):
            identify(shard)  # the shard itself may be missing
        raise _without_index(shard) from None


def _without_index(url: str) -> NoIndexError:
    make = f"tarkit index {display_name(url)}"
    return NoIndexError(f"{display_name(url)} has no index {display_name(index_url(url))}: make it by {make}")


def _check(shard: IndexedShard, listed: ManifestShard, source: str) -> None:
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
