"""Read SequenceFiles as pairs: whole files, parts of them between two bytes, and folders."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator
from operator import length_hint
from typing import Any, BinaryIO, Literal, NamedTuple

from tarkit.errors import DataError, DecodeError, TooLargeError, TruncatedError, UsageError, printable
from tarkit.formats.datafolder import data_files, is_folder
from tarkit.formats.sequencefile.codecs import codec_of
from tarkit.formats.sequencefile.header import ESCAPE, SYNC_BYTES, Header, read_header
from tarkit.formats.sequencefile.vint import vint_at, vint_size, vints
from tarkit.formats.sequencefile.writables import CONTENT_CLASSES, SERIALIZED, Writable, writable_of
from tarkit.formats.tally import CUT_HINT, DAMAGE_POLICIES, DAMAGED_HINT, DEFAULT_MEM, LARGER_MEM, Tally, check_policy
from tarkit.names.url import is_stream
from tarkit.store.allocator import keep_freed_memory
from tarkit.store.rangedfile import RangedFile
from tarkit.store.read import open_read
from tarkit.store.window import Window

Source = str | os.PathLike[str] | BinaryIO
Raw = bool | Literal["all", "content"]
Pair = tuple[Any, Any]
Batch = tuple[list[Any], list[Any]]
"""(keys, values): two lists of the same length.

Pairs are passed in batches, so that each of them passes through only one generator.
"""

_LENGTHS = struct.Struct(">ii").unpack_from
_MARK = len(ESCAPE) + SYNC_BYTES


def read_pairs(
    source: Source,
    *,
    raw: Raw = False,
    start: int = 0,
    stop: int | None = None,
    on_damage: str = "error",
    tally: Tally | None = None,
    mem: int = DEFAULT_MEM,
) -> Iterator[Pair]:
    """Read the pairs of a SequenceFile, or of all files in a folder, in order.

    Text is str; BytesWritable bytes; IntWritable, LongWritable, VIntWritable, VLongWritable,
    ShortWritable and ByteWritable int; FloatWritable and DoubleWritable float; BooleanWritable
    bool; NullWritable None; MD5Hash bytes.

    >>> list(read_pairs("words.seq"))  # doctest: +SKIP
    [('one', 1), ('two', 2)]

    Args:
        source: a path, a URL, a binary file object; or a folder, whose files are read in the order
            of their names (:func:`tarkit.formats.datafolder.data_files`: files that are not data
            are skipped, and counted in ``tally``).
        raw: True to return keys and values of unknown classes as their serialized bytes; False
            makes them an error. "all": serialized bytes for all classes. "content": serialized
            bytes for values of all classes but Text and BytesWritable.
        start: first byte of the part of the file to read. The records between two sync marks belong
            to the part in which they begin, so that adjacent parts give each record once. Only the
            part is read, and numbers of records count from its beginning. Not with a folder.
        stop: byte after the part; None: up to the end.
        on_damage: error, or skip: resume at the next sync mark, and record the lost bytes in
            ``tally``.
        tally: filled while pairs are taken: number of pairs in members, lost bytes in damage,
            skipped files of a folder.
        mem: largest size in bytes of a record, or of a buffer of a block, compressed or not; a
            larger one is an error.

    Raises:
        DecodeError: the codec is not known, or a class is not known and ``raw`` is False.
        DataError: the file is damaged.
        TruncatedError: the file is cut.
        TooLargeError: a record or buffer has more than ``mem`` bytes.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
        UsageError: an argument is not valid.
    """
    check_policy("on_damage", on_damage, DAMAGE_POLICIES)
    if start < 0 or (stop is not None and stop < start):
        raise UsageError(f"start={start}, stop={stop}: they must be 0 <= start <= stop")
    tally = Tally() if tally is None else tally
    keep_freed_memory()
    if not is_folder(source):
        files: Iterable[Source] = [source]
    elif start or stop is not None:
        raise UsageError("start and stop are bytes of one file; they cannot be given for a folder")
    else:
        files = data_files(source, tally)
    for file in files:
        for keys, values in _batches(file, raw, start, stop, on_damage, tally, mem):
            rest = iter(keys)
            try:
                yield from zip(rest, values, strict=True)
            finally:
                tally.members += len(keys) - length_hint(rest)


def header_of(source: Source) -> Header:
    """Read the header of a file: its classes, compression and metadata.

    Args:
        source: a path, a URL, or a binary file object.

    Raises:
        DataError: the file is not a SequenceFile.
        TruncatedError: the file ends in its header.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
    """
    with open_read(source, compression="auto", read_ahead=0) as stream:
        return read_header(Window(stream.read), stream.name)


class PairIndex(NamedTuple):
    """The places in a file where parts of it can begin.

    Attributes:
        records: number of records in the file.
        offsets: offsets in bytes where a part can begin, so that nothing before them is needed.
        firsts: number of the first record of each part.
    """

    records: int
    offsets: list[int]
    firsts: list[int]


def read_index(source: Source, *, mem: int = DEFAULT_MEM) -> PairIndex:
    """Find the places of the records of a file, in one pass without decoding.

    For a file that is compressed as a whole (``x.seq.gz``), the offsets are those of the
    decompressed content.

    Args:
        source: a path, a URL, or a binary file object.
        mem: largest size in bytes of a record, or of a buffer of a block.

    Raises:
        DecodeError: the codec is not known.
        DataError: the file is damaged.
        TruncatedError: the file is cut.
        TooLargeError: a record or buffer has more than ``mem`` bytes.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
    """
    records, offsets, firsts = 0, list[int](), list[int]()
    with open_read(source) as stream:
        window = Window(stream.read)
        header = read_header(window, stream.name)
        reader = _Reader(window, header, stream.name, "all", None, "error", Tally(), mem)
        for keys, _ in reader.batches(0):
            if not offsets or reader.stretch != offsets[-1]:
                offsets.append(reader.stretch)
                firsts.append(records)
            records += len(keys)
    return PairIndex(records, offsets, firsts)


def _batches(
    source: Source, raw: Raw, start: int, stop: int | None, on_damage: str, tally: Tally, mem: int
) -> Iterator[Batch]:
    part = bool(start) or stop is not None
    # Offsets of a part are those in the file as stored.
    with open_read(source, compression=None if part else "auto", mem=mem) as stream:
        window = Window(stream.read)
        header = read_header(window, stream.name)
        # A new stream reads the part only: the bytes before it need not be transferred.
        far = start > header.size and isinstance(source, (str, os.PathLike)) and not is_stream(os.fspath(source))
        if not far:
            tally.part_read = stream.part_read
            reader = _Reader(window, header, stream.name, raw, stop, on_damage, tally, mem)
            yield from reader.batches(start)
            tally.part_read = None
    if far and isinstance(source, (str, os.PathLike)):
        with RangedFile(os.fspath(source)) as file:
            file.seek(start)
            window = Window(file.read, base=start)
            yield from _Reader(window, header, stream.name, raw, stop, on_damage, tally, mem).batches(start)
    tally.shards += 1


class _BadRecordError(Exception):
    """An error at the current place in the file.

    Args:
        reason: what is wrong.
        records: number of lost records, None if it is not known.
        kind: class of the error that is raised for it.
    """

    def __init__(self, reason: str, records: int | None = None, kind: type[DataError] = DataError) -> None:
        super().__init__(reason)
        self.reason = reason
        self.records = records
        self.kind = kind


def _cut(what: str, records: int | None = None) -> _BadRecordError:
    return _BadRecordError(f"the file ends in {what}", records, TruncatedError)


class _Reader:
    """A reader of one file after its header, or of a part of it.

    The window stays at the beginning of a record or block until all of it was read.

    Attributes:
        stretch: offset of the sync mark before the last delivered records, or of the first record.
    """

    def __init__(
        self,
        window: Window,
        header: Header,
        url: str,
        raw: Raw,
        stop: int | None,
        on_damage: str,
        tally: Tally,
        mem: int,
    ) -> None:
        self._window = window
        self._header = header
        self._url = url
        self._stop = stop
        self._skip = on_damage == "skip"
        self._tally = tally
        self._mem = mem
        self._number = 0
        self.stretch = header.size
        self._mark = ESCAPE + header.sync
        self._key = self._writable("key", header.key_class, raw)
        self._value = self._writable("value", header.value_class, raw)
        self._unpack: Callable[[bytes, int], bytes] | None = None
        if header.codec:
            self._unpack = codec_of(header.codec, url).decompress

    def _writable(self, what: str, class_name: str, raw: Raw) -> Writable:
        is_content = what == "key" or class_name in CONTENT_CLASSES
        found = SERIALIZED if raw == "all" or (raw == "content" and not is_content) else writable_of(class_name)
        if found is None and raw:
            found = SERIALIZED
        if found is None:
            raise DecodeError(
                f"its {what}s are of {printable(class_name)}, which tarkit does not decode",
                url=self._url,
                hint="raw=True gives them as bytes",
            )
        return found

    def batches(self, start: int) -> Iterator[Batch]:
        """Yield the pairs of the part that begins at byte ``start`` of the file."""
        if start > self._header.size:
            self._window.skip_to(start)
            # Without a mark, all bytes that follow belong to a record before this part.
            if not self._header.sync or not self._window.go_to(self._mark):
                return
        if self._stop is not None and self._window.offset >= self._stop:
            return
        step = self._blocks if self._header.compression == "block" else self._records
        while True:
            try:
                yield from step()
                return
            except _BadRecordError as bad:
                if not self._skip:
                    raise self._error(bad) from None
                if not self._resynchronise(bad):
                    return

    def _error(self, bad: _BadRecordError) -> DataError:
        if bad.kind is TruncatedError:
            hint = CUT_HINT
        elif bad.kind is TooLargeError:
            hint = f"if that is right, read it with {LARGER_MEM}"
        else:
            hint = DAMAGED_HINT
        return bad.kind(f"record {self._number}: {bad.reason}", url=self._url, offset=self._window.offset, hint=hint)

    def _resynchronise(self, bad: _BadRecordError) -> bool:
        """Skip to the next sync mark, and record the loss; return False if there is none."""
        window = self._window
        start = window.offset
        # One byte further: the mark that begins here may be part of the damage.
        window.at += window.have(1)
        found = bool(self._header.sync) and window.go_to(self._mark)
        if not found:
            window.skip_to(1 << 63)
        first, known = self._number, bad.records
        if not known:
            lost = f"records from {first} on"
        else:
            lost = f"record {first}" if known == 1 else f"records {first} to {first + known - 1}"
            self._number += known
        self._tally.damage.append((self._url, start, window.offset, f"{lost}: {bad.reason}"))
        return found and (self._stop is None or window.offset < self._stop)

    def _records(self) -> Iterator[Batch]:
        """Yield records up to the end of the part.

        The layout of each: int32 length of key and value, int32 length of the key, both.
        """
        while self._record_is_next():
            keys: list[Any] = []
            values: list[Any] = []
            bad = self._take_records(keys, values)
            self._number += len(keys)
            yield keys, values
            if bad is not None:
                raise bad

    def _take_records(self, keys: list[Any], values: list[Any]) -> _BadRecordError | None:
        """Read the records in the buffer, up to a mark or damage; the first one must be in it."""
        window, unpack, limit = self._window, self._unpack, self._mem
        decode_key, decode_value = self._key.decode, self._value.decode
        buffer, at = window.buffer, window.at
        last = len(buffer) - 8
        while at <= last:
            length, key_length = _LENGTHS(buffer, at)
            middle, end = at + 8 + key_length, at + 8 + length
            if not 0 <= length <= limit or end > len(buffer):
                break
            window.at = at
            if not 0 <= key_length <= length:
                return _BadRecordError(f"the length of its key is {key_length}, in a record of {length} bytes")
            try:
                value = buffer[middle:end]
                value = decode_value(value if unpack is None else unpack(value, limit))
                keys.append(decode_key(buffer[at + 8 : middle]))
            except MemoryError:
                raise
            except Exception as error:
                # Each library raises a different class for damaged bytes.
                return _BadRecordError(f"it cannot be decoded: {error}")
            values.append(value)
            at = end
        window.at = at
        return None

    def _record_is_next(self) -> bool:
        """Read the next record into the buffer and skip its mark; False at the part's end."""
        window = self._window
        # Until the record is read, the window stays before its mark: both are lost together.
        at = 0
        while True:
            if not window.have(at + 4):
                if window.have(at + 1):
                    raise _cut("the length of a record")
                # Also behind a mark, which Hadoop's writer adds where sync() is called, and so
                # before its close().
                return False
            place = window.at + at
            length = int.from_bytes(window.buffer[place : place + 4], "big", signed=True)
            if length != -1 or not self._header.sync:
                break
            if at:
                raise _BadRecordError("two sync marks follow each other")
            if self._stop is not None and window.offset >= self._stop:
                return False
            self._check_mark()
            at = _MARK
        if length < 0:
            raise _BadRecordError(f"its length is {length}")
        if length > self._mem:
            raise _BadRecordError(f"it has {length} bytes; at most {self._mem} are read", kind=TooLargeError)
        if not window.have(at + 8 + length):
            raise _cut(f"a record of {length} bytes")
        if at:
            self.stretch = window.offset
            window.at += at
        return True

    def _check_mark(self) -> None:
        window = self._window
        if not window.have(_MARK):
            raise _cut("a sync mark")
        if not window.buffer.startswith(self._mark, window.at):
            raise _BadRecordError("the sync mark is not that of the header")

    def _blocks(self) -> Iterator[Batch]:
        """Yield the records of blocks up to the end of the part.

        The layout of each: a sync mark, a count, and four buffers: lengths of keys, keys, lengths
        of values, values.
        """
        window = self._window
        while window.have(1) and (self._stop is None or window.offset < self._stop):
            keys, values, size = self._block()
            self.stretch = window.offset
            window.at += size
            self._number += len(keys)
            yield keys, values

    def _block(self) -> tuple[list[Any], list[Any], int]:
        """Read a block: (keys, values, size of the block in bytes)."""
        self._check_mark()
        count, at = self._vint(_MARK, "the count of a block")
        if count < 0:
            raise _BadRecordError(f"a block has {count} records")
        # Keys, then values; for each, first the lengths, then the bytes.
        keys, at = self._items(self._key, count, at, "key", None)
        values, at = self._items(self._value, count, at, "value", count)
        return keys, values, at

    def _items(self, kind: Writable, count: int, at: int, what: str, known: int | None) -> tuple[list[Any], int]:
        """Read all keys or values of a block; return them and the position of the next byte.

        Args:
            kind: class of the keys or values.
            count: their number, as the block states it.
            at: position of the first byte, from the position of the window.
            what: key or value, for errors.
            known: the count, if it is proven already.
        """
        packed, at = self._buffer(at, f"the lengths of {what}s", known)
        try:
            lengths = vints(self._unpacked(packed), count)
            packed, at = self._buffer(at, f"{what}s", count)
            # The number of lengths is as the block states, so the count is right.
            known = count
            return kind.decode_many(self._unpacked(packed), lengths), at
        except (MemoryError, _BadRecordError):
            raise
        except Exception as error:
            # Each library raises a different class for damaged bytes.
            raise _BadRecordError(f"the {what}s of a block cannot be decoded: {error}", known) from None

    def _buffer(self, at: int, what: str, known: int | None) -> tuple[bytes, int]:
        """Read a buffer, still compressed; return it and the position of the next byte.

        Args:
            at: position of the size of the buffer, from the position of the window.
            what: contents of the buffer, for errors.
            known: number of records that are lost if it is damaged, if known.
        """
        size, at = self._vint(at, f"the size of {what}")
        if size < 0:
            raise _BadRecordError(f"the size of {what} is {size}", known)
        if size > self._mem:
            raise _BadRecordError(f"{what} have {size} bytes; at most {self._mem} are read", known, TooLargeError)
        if not self._window.have(at + size):
            raise _cut(what, known)
        begin = self._window.at + at
        return self._window.buffer[begin : begin + size], at + size

    def _unpacked(self, data: bytes) -> bytes:
        return data if self._unpack is None else self._unpack(data, self._mem)

    def _vint(self, at: int, what: str) -> tuple[int, int]:
        """Read the number ``at`` bytes after the window; return it and the next position."""
        window = self._window
        if not window.have(at + 1) or not window.have(at + vint_size(window.buffer[window.at + at])):
            raise _cut(what)
        number, end = vint_at(window.buffer, window.at + at)
        return number, end - window.at
