"""Read samples of a shard by their numbers; only their bytes are read, even over a network.

An index does not name the shard that it was made from, so it may be stale. When an index is opened,
the end of the shard is compared with it; whenever samples are read, their headers are. A sample
that is not in the index is never returned.
"""

from __future__ import annotations

import io
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from time import perf_counter_ns
from typing import Any, TypeVar
from zlib import adler32

from tarkit.errors import (
    CompressionError,
    DataError,
    MissingFieldError,
    MissingInputError,
    StaleIndexError,
    StreamError,
    TemporaryStreamError,
    UsageError,
    printable,
)
from tarkit.formats.tally import Tally
from tarkit.formats.tar.headers import BLOCK, END_OF_ARCHIVE, expected_adler
from tarkit.formats.tar.walk import READ_SIZE, VARYING, Archive
from tarkit.names.outputnames import has_index_name, index_command, index_url, is_packed_name
from tarkit.names.url import display_name, local_path
from tarkit.samples.index import IndexedMember, ShardIndex, as_text, unchecked_index
from tarkit.samples.read import read_members
from tarkit.samples.sample import (
    KeyRule,
    Sample,
    first_dot,
    group_by_keys,
    in_sample,
    key_rule,
    skip_reason,
)
from tarkit.samples.transforms import field_list
from tarkit.store.cachedparts import CachedParts
from tarkit.store.entries import Identity, identify
from tarkit.store.filepart import open_part, part_of_file
from tarkit.store.packedfile import PackedFile, open_packed
from tarkit.store.rangedfile import OpenFile, RangedFile, offsets_from, open_local, open_range
from tarkit.store.read import read_whole, reading

_PIECE = 1 << 18
"""Size in bytes of one read of a shard, unless a sample is longer.

So much fits into the processor's cache.
"""
_REGULAR = ord("0")
_HEADER = struct.Struct(f"{VARYING.format}356x")
_NAME, _TYPE, _PREFIX = 100, VARYING.size, 345
"""Of a header: size of the name, and offsets of the type and of the name's first half."""
_MOST_REMEMBERED = 10_000
_T = TypeVar("_T")


class ReadCounts:
    """Counts of the reads of several shards, by one thread.

    Attributes:
        bytes: bytes of the samples that were read, with their headers and padding.
        fetching: nanoseconds that the reader has waited for the network.
    """

    __slots__ = "bytes", "fetching"

    def __init__(self) -> None:
        self.bytes = self.fetching = 0

    def fetched(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """Return the result of a call that waits for the network, and count its time."""
        began = perf_counter_ns()
        try:
            return call(*arguments)
        finally:
            self.fetching += perf_counter_ns() - began


class IndexedShard:
    """A shard with its index.

    ``len()`` is the number of samples.

    Args:
        url: path or URL of the shard.
        index: its index.
        identity: size and tag of the shard when it was compared with the index.
        rule: key rule.
        packed: its content, if it is compressed; the index has the offsets there.
        parts: its content in parts that a cache keeps; None: it is read without a cache.
    """

    def __init__(
        self,
        url: str,
        index: ShardIndex,
        identity: Identity,
        rule: KeyRule = first_dot,
        packed: PackedFile | None = None,
        parts: CachedParts | None = None,
    ) -> None:
        self.url = url
        self.index = index
        self.identity = identity
        self.reads = ReadCounts()
        self.packed, self.parts = packed, parts
        self._content = packed if parts is None else parts
        self._rule, self._by_first_dot = rule, rule is first_dot
        self._name = display_name(url)
        self._file: OpenFile | None = None
        self._asked = False

    def __len__(self) -> int:
        return len(self.index)

    def keys(self) -> Iterator[str]:
        """Yield the keys of all samples, in their order."""
        self.index.check()
        for number in range(len(self)):
            if (key := self._key(number)) is not None:  # so they were when the index was read
                yield key

    def sample(self, number: int) -> Sample:
        """Read one sample.

        Args:
            number: number of the sample, from 0.

        Raises:
            IndexError: the shard has no sample of this number.
            StaleIndexError: the sample differs from the index.
            DataError: the shard is damaged, or was replaced since the index was opened.
            MissingInputError: the shard does not exist.
            StreamError: the shard cannot be read.
            TemporaryStreamError: the shard cannot be read now.
        """
        if not 0 <= number < len(self):
            raise IndexError(number)
        if (data := self._local_bytes(number)) is not None:
            self.reads.bytes += len(data)
            return self.sample_of(data, number)
        (found,) = self._read_range(number, number + 1)
        return found

    def take(self, numbers: Sequence[int]) -> list[Sample]:
        """Read samples by their numbers, with the errors of :meth:`samples`.

        They must be in the shard. A local file that was moved since it was opened can still be
        read.

        Args:
            numbers: numbers of the samples, from 0; neighbours that follow each other are read at
                once.
        """
        found: list[Sample] = []
        while (at := len(found)) < len(numbers):
            if some := self._plain_samples(numbers[at:]):
                found += some
            elif self._content is not None or (end := _end_of_run(numbers, at)) == at + 1:
                found.append(self.sample(numbers[at]))  # so that an error of compressed content names it
            else:
                found += self._read_range(numbers[at], numbers[end - 1] + 1)
        return found

    def _plain_samples(self, numbers: Sequence[int]) -> list[Sample]:
        """Read samples of a shard that is local, compressed or cached.

        It stops before the first sample whose members have other than plain headers, or differ from
        the index: the reader decides about that sample. It returns none of them if the shard is
        none of these, or is not the shard of the index any more.
        """
        self._check_keys(numbers[0] if len(numbers) == 1 else None)
        found: list[Sample] = []
        file = self._open_file()
        while (at := len(found)) < len(numbers):
            start = numbers[at]
            end = self._end_of_piece(start, start + _end_of_run(numbers, at) - at)
            begin, stop = self.index.span(start, end)
            data = self._between(file, begin, stop)
            if data is None or not (some := self._parse_plain(range(start, end), data, begin)):
                break
            found += some
            self.reads.bytes += len(data)
        if file is not None and file.is_changed():  # asked after the reads: so before them and during them
            return []
        return found

    def _between(self, file: OpenFile | None, begin: int, end: int, number: int | None = None) -> bytes | None:
        """Return bytes of an open local shard, or a compressed or cached one; None if it has fewer.

        Args:
            number: number of the sample that has them. Without it, damaged content returns None,
                too, because perhaps only some of the samples are damaged.

        Raises:
            CompressionError: the compressed content is damaged.
        """
        # A wrong line of the index could ask for any amount of memory.
        if file is not None:
            return file.bytes_between(begin, end) if begin < end <= file.size else None
        content = self._content
        if content is None or not begin < end <= content.size:
            return None
        if self.parts is not None and (data := self.parts.kept(begin, end)) is not None:
            return data
        try:
            if self.parts is not None and local_path(self.url) is None:
                return self.reads.fetched(content.bytes_between, begin, end)
            return content.bytes_between(begin, end)
        except CompressionError as error:
            if number is None:
                return None
            error.key = self._key(number)
            raise

    def _end_of_piece(self, start: int, end: int) -> int:
        """Return the end of the samples from ``start`` up to ``end`` that fit into one read."""
        if end - start < 2:
            return end
        begin, stop = self.index.span(start, end)
        if stop - begin > _PIECE:
            ends = range(start + 1, end)
            end = start + max(1, bisect_right(ends, begin + _PIECE, key=lambda number: self.index.span(0, number)[1]))
        return end

    def _local_bytes(self, number: int) -> bytes | None:
        """Return the bytes of a sample of a shard that is local, compressed or cached.

        None if the shard is none of these, is too short, or is not the shard of the index any more.
        """
        self._check_keys(number)
        file = self._open_file()
        data = self._between(file, *self.index.span(number, number + 1), number)
        # Asked after the read: so before it and during it.
        return None if file is not None and file.is_changed() else data

    def _check_keys(self, near: int | None) -> None:
        """Check the keys of the index; see :meth:`ShardIndex.check_keys`.

        Args:
            near: number of the wanted sample, used if this is the first one.
        """
        self.index.check_keys(None if self._asked else near)
        self._asked = True

    def _key(self, number: int) -> str | None:
        split = self._rule(as_text(self.index.words(number)[3]))
        return None if split is None else split[0]

    def _parse_plain(self, numbers: Sequence[int], data: bytes, base: int) -> list[Sample]:
        """Parse samples from bytes of the shard.

        It returns none if one of them differs from the index, or has other than plain headers.

        Args:
            numbers: numbers of samples that follow each other.
            data: their bytes.
            base: offset in the shard of the first of these bytes.
        """
        found: list[Sample] = []
        at, end, words_of, unpack = 0, len(data), self.index.words, _HEADER.unpack
        try:
            for number in numbers:
                words = words_of(number)
                stem = words[3][: -len(words[0])]
                key = as_text(stem[:-1])
                # As in group_by_keys(): most names need no function call.
                simple = self._by_first_dot and "/" not in key and "." not in key and key[0] != "_"
                sample: Sample = {"__key__": key, "__url__": self._name}
                each = iter(words)
                for field_word, _, size_word, raw in zip(each, each, each, each, strict=True):
                    body = at + BLOCK
                    header = data[at:body]
                    name_field, size_field, checksum = unpack(header)
                    field, plain, size = _member(field_word, size_word, size_field)
                    if (
                        raw != stem + field_word
                        or name_field != raw.ljust(_NAME, b"\0")
                        or adler32(header) & 0xFFFF != _sum(checksum)
                        or header[_TYPE] != _REGULAR
                        or header[_PREFIX]
                        or field in sample
                        or not ((simple and plain) or self._is_field(as_text(raw), key, field))
                    ):
                        return []
                    at = body + size
                    sample[field] = data[body:at]
                    at += -size & 511
                if base + body != int(words[-3]) or at > end:
                    return []
                found.append(sample)
        except (ValueError, IndexError, struct.error):  # a number or a header is not valid
            return []
        return found

    def _is_field(self, name: str, key: str, field: str) -> bool:
        return self._rule(name) == (key, field) and skip_reason(name, self._rule) is None

    def _open_file(self) -> OpenFile | None:
        """Return a local shard that is still the shard of the index.

        None if the shard was replaced before it was opened, is not local, or is compressed.
        """
        if self._file is None and self._content is None and (file := open_local(self.url)) is not None:
            if file.identity == self.identity:
                self._file = file
            else:
                file.close()
        return self._file

    def release(self) -> None:
        """Close a local shard's descriptor; it is opened again for the next sample."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def open_field(self, number: int, field: str) -> io.BufferedReader:
        """Open a field of a sample as a seekable file, of which only what is needed is read.

        The header of the field's member is read and compared with the index. No descriptor stays
        open. A read raises TemporaryStreamError if the shard was replaced meanwhile.

        Args:
            number: number of the sample, from 0.
            field: name of the field.

        Raises:
            IndexError: the shard has no sample of this number.
            MissingFieldError: the sample has no such field.
            StaleIndexError: the member differs from the index.
            DataError: the shard was replaced since the index was opened.
            MissingInputError: the shard does not exist.
            StreamError: the shard cannot be read.
            TemporaryStreamError: the shard cannot be read now.
        """
        if not 0 <= number < len(self):
            raise IndexError(number)
        self._check_keys(number)
        begin, members = self.index.span(number, number + 1)[0], self.index[number]
        for member in members:
            if member.field == field:
                break
            begin = member.offset + member.size + (-member.size & 511)
        else:
            split = self._rule(members[0].name)
            reason = (
                f"the sample has no field {printable(field)!r}; it has {field_list(each.field for each in members)}"
            )
            raise MissingFieldError(reason, url=self._name, key=split and split[0])
        if not self._begins(begin, member):
            raise _stale(self.url, f"field {printable(field)!r} of sample {number} differs from its index")
        return self._part(member.offset, member.size, member.name)

    def _part(self, start: int, size: int, member: str = "") -> io.BufferedReader:
        if self.packed is not None:
            return part_of_file(self.packed, start, size, member)
        return open_part(self.url, start, size, known=self.identity, member=member)

    def _begins(self, begin: int, member: IndexedMember) -> bool:
        """Return True if the headers between ``begin`` and the content are those of this member.

        Members that belong to no sample may be between them, too.
        """
        size = self.packed.size if self.packed is not None else self.identity.size or 0
        if not begin < member.offset <= member.offset + member.size <= size:
            return False
        headers = self._part(begin, member.offset - begin).read()
        archive = Archive(reading(iter([headers])), self._name, Tally(), in_sample(self._rule))
        try:
            while (found := archive.next_member()) is not None:
                at = archive.base + archive.position
                if at >= len(headers):
                    return at == len(headers) and found[:2] == (
                        member.name.encode("utf-8", "surrogateescape"),
                        member.size,
                    )
                archive.position += found[1] + (-found[1] & 511)
        except DataError:
            pass
        return False

    def samples(self, start: int, end: int) -> Iterator[Sample]:
        """Read the samples from number ``start`` up to, not including, ``end``.

        One request is made for each 16 MiB.

        Args:
            start: number of the first sample, from 0.
            end: number after the last sample.

        Raises:
            UsageError: the shard has no such samples.
            StaleIndexError: a sample differs from the index.
            DataError: the shard is damaged, or was replaced since the index was opened.
            MissingInputError: the shard does not exist.
            StreamError: the shard cannot be read.
            TemporaryStreamError: the shard cannot be read now.
        """
        if not 0 <= start <= end <= len(self):
            shown = f"{display_name(self.url)} has {len(self)} samples"
            raise UsageError(f"samples {start} to {end} are not a range: {shown}, and 0 <= start <= end")
        # A local file that was removed or replaced has no plain samples.
        plain = start < end and local_path(self.url) is not None and identify(self.url) == self.identity
        while plain and start < end and (found := self._plain_samples(range(start, self._end_of_piece(start, end)))):
            yield from found
            start += len(found)
        if start < end:
            yield from self._read_range(start, end)

    def _read_range(self, number: int, end: int) -> Iterator[Sample]:
        self.index.check()
        begin, stop = self.index.span(number, end)
        self.reads.bytes += stop - begin
        if self._content is not None:
            with offsets_from(begin, self.url):
                yield from self._compared(self._content.pieces(begin, stop), number, end)
            return
        with open_range(self.url, begin, stop, known=self.identity) as read, offsets_from(begin, self.url):
            yield from self._compared(iter(lambda: read(READ_SIZE), b""), number, end)

    def sample_of(self, data: bytes, number: int) -> Sample:
        """Parse a sample from the bytes that the shard has for it.

        Args:
            data: the bytes of its span in the index.
            number: number of the sample, from 0.

        Raises:
            StaleIndexError: the sample differs from the index.
            DataError: the bytes are damaged.
        """
        begin, end = self.index.span(number, number + 1)
        if len(data) == end - begin and (found := self._parse_plain([number], data, begin)):
            return found[0]
        self.index.check()
        with offsets_from(begin, self.url):
            (sample,) = self._compared(iter([data]), number, number + 1)
        return sample

    def _compared(self, pieces: Iterator[bytes], number: int, end: int) -> Iterator[Sample]:
        """Yield the samples in pieces of the shard, each compared with the index."""
        # With an end mark behind them, these samples are an archive of their own.
        try:
            for sample in self._grouped(reading(chain(pieces, [END_OF_ARCHIVE]))):
                if number == end or not self._is_as_indexed(number, sample):
                    raise _stale(self.url, f"sample {number} differs from its index")
                yield sample
                number += 1
        except CompressionError as error:
            error.key = self._key(number)
            raise
        if number != end:
            raise _stale(self.url, f"samples {number} to {end - 1} of its index do not exist")

    def _grouped(self, read: Callable[[int], bytes]) -> Iterator[Sample]:
        name = display_name(self.url)
        try:
            yield from group_by_keys(read_members(read, url=name, rule=self._rule), url=name, rule=self._rule)
        except DataError as error:
            stale = f"{display_name(index_url(self.url))} is stale: tarkit index --force makes a new one"
            error.hint = f"{error.hint}; or {stale}" if error.hint else f"the shard is damaged, or {stale}"
            raise

    def _is_as_indexed(self, number: int, sample: Sample) -> bool:
        words, (_, _, *fields) = self.index.words(number), sample
        if [*map(int, words[2::4])] != [len(sample[field]) for field in fields]:
            return False
        if [*map(as_text, words[::4])] != fields:
            return False
        key, name = sample["__key__"], as_text(words[3])
        return name == f"{key}.{fields[0]}" or self._rule(name) == (key, fields[0])


def _end_of_run(numbers: Sequence[int], at: int) -> int:
    """Return the end, in a list, of the numbers from ``at`` on that follow each other."""
    first, end = numbers[at] - at, at + 1
    while end < len(numbers) and numbers[end] - end == first:
        end += 1
    return end


_sum = lru_cache(maxsize=_MOST_REMEMBERED)(expected_adler)


@lru_cache(maxsize=_MOST_REMEMBERED)
def _member(field_word: bytes, size_word: bytes, size_field: bytes) -> tuple[str, bool, int]:
    """Return a member's field, True if it can follow any key without dots, and its size.

    Raises:
        ValueError: the size of the index is not that of the header.
    """
    size = int(size_field[:11], 8)
    if not 0 <= size == int(size_word):
        raise ValueError(size_field)
    field = as_text(field_word)
    return field, field[0] not in "._", size


def _stale(url: str, reason: str) -> StaleIndexError:
    index = display_name(index_url(url))
    hint = f"make a new one: {index_command(url, force=True)}"
    return StaleIndexError(f"{reason}, so {index} is stale", url=url, hint=hint)


def open_indexed(
    url: str,
    rule: str | KeyRule = first_dot,
    *,
    check: bool = True,
    unpack: Callable[[str], PackedFile] = open_packed,
) -> IndexedShard | None:
    """Open a shard with the index beside it; None if it has no index.

    None also if the length of the shard is not known.

    Args:
        url: path or URL of the shard.
        rule: key rule: ``first-dot``, ``last-dot`` or a regular expression of two groups.
        check: True to verify all lines of the index now. False: for a local shard with the key rule
            ``first-dot``, verify a line when its sample is read, and look for repeated keys when a
            second sample is read; and open a compressed shard also if its last sample is damaged,
            so that its end cannot be compared with the index.
        unpack: function that opens a compressed shard.

    Raises:
        StaleIndexError: the end of the shard differs from the index, or the shard is compressed and
            has no table of frames.
        DataError: the file beside the shard is not an index by this key rule.
        MissingInputError: the shard does not exist.
        StreamError: the shard cannot be read.
        TemporaryStreamError: the shard cannot be read now.
    """
    if not has_index_name(url):
        return None
    rule = key_rule(rule)
    try:
        text = _whole(index_url(url))
    except MissingInputError:
        return None
    except StreamError as error:
        if isinstance(error, TemporaryStreamError):
            raise
        # Some stores answer "forbidden" for a missing object, so the index may not exist.
        return None
    index = unchecked_index(text, display_name(index_url(url)), rule)
    if check or rule is not first_dot or local_path(url) is None:
        index.check()
    try:
        packed = unpack(url) if is_packed_name(url) else None
        file = packed or open_local(url) or RangedFile(url)
    except StreamError as error:
        if isinstance(error, TemporaryStreamError):
            raise
        return None
    try:
        check_end(file, index, rule)
    except CompressionError:
        if check or packed is None or not is_last_damaged(packed, index):
            raise
    if isinstance(file, OpenFile):
        file.close()  # many shards may be open, of which no sample is read yet
    return IndexedShard(url, index, file.identity, rule, packed)


def is_last_damaged(packed: PackedFile, index: ShardIndex) -> bool:
    """Return True if the last sample of a compressed shard is damaged, which its reading reports.

    Damage behind it would be reported by no sample, and hide those that the index does not have.
    """
    try:
        for _ in packed.pieces(*index.span(max(0, len(index) - 1), len(index))):
            pass
    except CompressionError:
        return True
    return False


def _whole(url: str) -> bytes:
    """Return all of a file; of a local one, by one read of just its size."""
    if (file := open_local(url)) is not None:
        with file:
            data = file.read()
            if not file.is_changed():
                return data
    return read_whole(url, compression=None)


def check_end(file: RangedFile | OpenFile | PackedFile, index: ShardIndex, rule: KeyRule) -> None:
    """Compare the end of a shard with its index.

    Raises:
        StaleIndexError: they differ.
        CompressionError: the end of the shard is damaged.
        StreamError: the shard cannot be read.
    """
    if (reason := _why_stale(file, index, rule)) is not None:
        raise _stale(file.url, reason)


def _why_stale(file: RangedFile | OpenFile | PackedFile, index: ShardIndex, rule: KeyRule) -> str | None:
    """Compare the end of the shard with the index; return the difference, or None."""
    _, end = index.span(0, len(index))
    if file.size < end + BLOCK:
        return f"it has {file.size} bytes, and by its index the last sample ends at {end}"
    if len(index):
        last = index[len(index) - 1][-1]
        if _ends_plainly(file, last.offset - BLOCK, end):
            return None
        header = file.read_at(last.offset - BLOCK, BLOCK)
        try:
            Archive(file.read, "", Tally(), in_sample(rule)).verified(header)
        except DataError:
            return f"no header is at {last.offset - BLOCK}, where its index has that of the last member"
    file.seek(end)
    try:
        for name, _, offset in read_members(reading(iter(lambda: file.read(_PIECE), b"")), rule=rule):
            if name and skip_reason(name, rule) is None:
                return f"a member is at {end + offset}, behind the last sample of its index"
    except CompressionError:
        raise
    except DataError:
        return f"the bytes after {end}, where its index ends, are not the end of an archive"
    return None


def _ends_plainly(file: RangedFile | OpenFile | PackedFile, header: int, end: int) -> bool:
    """Return True if the shard ends with a plain header, its content, an end mark and zeros.

    If it is False, the reader decides. Most shards end plainly, and the reader takes longer than
    all other steps of opening a shard.

    Args:
        file: the shard.
        header: offset of the last header.
        end: offset after the last sample.
    """
    if file.size - end > _PIECE:
        return False
    block, rest = file.read_at(header, BLOCK), file.read_at(end, _PIECE)
    return _is_regular(block) and len(rest) == file.size - end >= len(END_OF_ARCHIVE) and rest == bytes(len(rest))


def _is_regular(header: bytes) -> bool:
    """Return True if a header is that of a regular file, with a correct checksum."""
    try:
        return header[156] == _REGULAR and adler32(header) & 0xFFFF == expected_adler(header[148:_TYPE])
    except (ValueError, IndexError):  # a number or a header is not valid
        return False
