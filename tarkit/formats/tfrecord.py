"""Read and write TFRecord files without TensorFlow.

The format with an example: docs/formats/tfrecord.md.

Source: ``tensorflow/core/lib/io/record_writer.cc`` and ``record_reader.cc`` of TensorFlow 2.21.
"""

from __future__ import annotations

import functools
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO, TypeVar

from tarkit.errors import CompressionError, CorruptRecordError, DataError, EncodeError, TooLargeError, TruncatedError
from tarkit.formats.tally import DAMAGE_POLICIES, DAMAGED_HINT, DEFAULT_MEM, LARGER_MEM, Tally, check_policy
from tarkit.store.allocator import keep_freed_memory
from tarkit.store.compression import ZLIB, DecompressingReader, begins_zlib, check_codec, sniff
from tarkit.store.publish import FileWriter
from tarkit.store.read import ReadStream, open_read

READ_SIZE = 256 * 1024
"""Size of one read in bytes, which fits the second-level cache."""

SUFFIXES = (".tfrecord", ".tfrecords")

_LENGTH = struct.Struct("<Q")
_SUM = struct.Struct("<I")
_HEAD = struct.Struct("<QI")
_HEAD_SIZE = _HEAD.size
_AROUND = _HEAD_SIZE + _SUM.size
_DELTA = 0xA282EAD8
_PIECE = 1024 * 1024
_MAX_HELD = 64 * 1024 * 1024
_MAX_REMEMBERED = 100_000
_GATHERED = 64 * 1024
"""Size in bytes of the records that are written together."""
_HIGH_BYTES = b"\0\0\0"
"""Bytes 5 to 7 of each length below 2**40, which a search looks for."""

_Error = TypeVar("_Error", bound=DataError)


def _crc32c() -> Callable[[bytes], int]:
    import google_crc32c

    value: Callable[[bytes], int] = google_crc32c.value
    return value


def _masked(crc: int) -> int:
    """Return a CRC32C in its stored form: its bits rotated right by 15, and a constant added."""
    return ((crc >> 15 | crc << 17) + _DELTA) & 0xFFFFFFFF


def _masked_all(crcs: list[int]) -> tuple[bytes, ...]:
    """Return many CRC32Cs in their stored form.

    Converting one by one takes six times as long as the checksums themselves; here all are rotated
    at once, as parts of 64 bits of one number.
    """
    count = len(crcs)
    ones = int.from_bytes(b"\1\0\0\0\0\0\0\0" * count, "little")
    every = int.from_bytes(struct.pack(f"<{count}Q", *crcs), "little")
    turned = (every >> 15 & ones * 0x1FFFF | every << 17 & ones * 0xFFFFFFFF) + ones * _DELTA
    return struct.unpack("<" + "4s4x" * count, turned.to_bytes(8 * count, "little"))


@functools.lru_cache(4096)
def _head_of(size: int) -> bytes:
    """Return the 12 bytes before a record of this size.

    Most records of a file have one of a few sizes, so they are cached.
    """
    length = _LENGTH.pack(size)
    return length + _SUM.pack(_masked(_crc32c()(length)))


def read_records(
    source: str | os.PathLike[str] | BinaryIO,
    *,
    compression: str | None = "auto",
    on_damage: str = "error",
    tally: Tally | None = None,
    mem: int = DEFAULT_MEM,
) -> Iterator[bytes]:
    """Read the records of a TFRecord file, in order.

    Both checksums of each record are verified.

    >>> from io import BytesIO
    >>> file = BytesIO()
    >>> with RecordWriter(file) as writer:
    ...     writer.write(b"one")
    >>> list(read_records(BytesIO(file.getvalue())))
    [b'one']

    Args:
        source: a path or URL; or a binary file object, which is not closed.
        compression: gz, zlib, or another codec of :func:`tarkit.store.read.open_read`; None: none;
            "auto": by the first bytes.
        on_damage: error; or skip: resume at the next record whose length has a correct checksum,
            and record the lost bytes in ``tally``.
        tally: filled while records are taken: ``members`` counts the delivered records, ``damage``
            has an entry for each stretch that was lost, with offsets in the decompressed stream.
        mem: largest size of one record in bytes.

    Raises:
        CorruptRecordError: a checksum is wrong.
        TruncatedError: the file ends inside a record.
        CompressionError: the compressed stream is damaged or cut.
        TooLargeError: a record has more than ``mem`` bytes.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
        UsageError: an argument is not valid.
    """
    check_policy("on_damage", on_damage, DAMAGE_POLICIES)
    keep_freed_memory()
    with open_read(source, compression=None) as stream:
        walk = _Walk(stream, Tally() if tally is None else tally, mem)
        walk.decompress(compression)
        while True:
            try:
                yield from walk.records()
                return
            except (CorruptRecordError, TruncatedError, CompressionError) as error:
                if on_damage == "error" or not walk.resynchronise(error):
                    raise
                if isinstance(error, CompressionError):
                    return


def looks_like(head: bytes) -> bool:
    """Return True if a file, or the zlib stream in it, begins with a length and its checksum.

    Files with any other compression must be decompressed first.
    """
    begins = len(head) >= _HEAD_SIZE and _masked(_crc32c()(head[:8])) == _SUM.unpack_from(head, 8)[0]
    if begins or not begins_zlib(head):
        return begins
    try:
        return looks_like(zlib.decompressobj().decompress(head, _HEAD_SIZE))
    except zlib.error:
        return False


class _Walk:
    """A position in a TFRecord file: bytes that are read but not used, and the reader's state."""

    def __init__(self, stream: ReadStream, tally: Tally, mem: int) -> None:
        self.read = stream.read
        self.url = stream.name
        self.tally = tally
        self.mem = mem
        self.crc32c = _crc32c()
        self.buffer = b""
        self.position = 0  # in buffer, of the current record
        self.base = 0  # offset in the stream of buffer[0]
        self.number = 0  # of the current record, from 0; the least one possible if not certain
        self.certain = True
        self.begun = False  # a length with a right checksum was seen
        self.lengths: dict[bytes, int] = {}  # the 12 bytes before a record's data, verified -> its length

    def decompress(self, compression: str | None) -> None:
        """Decompress from here on, with the given codec or by the first bytes.

        A correct checksum of the first length proves a plain file, whatever else its bytes look
        like.
        """
        codec = compression
        if compression == "auto":
            self.fill(_HEAD_SIZE)
            head = self.buffer
            # A plain file has zeros in bytes 4 to 7, unless a record has 4 GiB; a zlib stream
            # cannot have them.
            is_zlib = begins_zlib(head) and head[4:8].strip(b"\0")
            codec = None if self.length_of(head) >= 0 else ZLIB if is_zlib else sniff(head)
        if codec is not None:
            check_codec(codec)
            first, read = [self.buffer] * bool(self.buffer), self.read
            self.buffer = b""
            self.read = DecompressingReader(lambda n: first.pop() if first else read(n), codec, self.url, self.mem).read

    def records(self) -> Iterator[bytes]:
        """Yield the records; the speed of all reading depends on this loop.

        It yields the whole records in the buffer, then calls ``more``.

        Raises:
            CorruptRecordError: a checksum of the current record is wrong.
            TruncatedError: the file ends inside the current record.
            TooLargeError: the current record has more than ``mem`` bytes.
        """
        crc32c, lengths, sum_at = self.crc32c, self.lengths, _SUM.unpack_from
        while True:
            buffer, position, count, wrong = self.buffer, self.position, 0, False
            limit = len(buffer)
            try:
                while (body := position + _HEAD_SIZE) <= limit:
                    head = buffer[position:body]
                    length = lengths.get(head, -1)
                    if length < 0 and (length := self.remember(head)) < 0:
                        break
                    end = body + length
                    if end + 4 > limit:
                        break
                    data = buffer[body:end]
                    crc = crc32c(data)
                    if ((crc >> 15 | crc << 17) + _DELTA) & 0xFFFFFFFF != sum_at(buffer, end)[0]:
                        wrong = True
                        break
                    position = end + 4
                    count += 1
                    yield data
            finally:
                self.position = position
                self.number += count
                self.tally.members += count
            if wrong:
                raise self.error(CorruptRecordError, "wrong checksum of the data")
            if not self.more():
                return

    def more(self) -> bool:
        """Read more bytes: the rest of the current record, or the next bytes if there is none.

        False at the end of the file.

        Raises:
            CorruptRecordError: the checksum of the length is wrong.
            TruncatedError: the file ends inside the current record.
            TooLargeError: the current record has more than ``mem`` bytes.
        """
        if self.position == len(self.buffer):
            self.fill(0)
            self.buffer = self.read(READ_SIZE)
            return bool(self.buffer)
        if not self.fill(_HEAD_SIZE):
            there = len(self.buffer)
            raise self.error(TruncatedError, f"the file ends {there} bytes after its beginning, inside the length")
        length = self.length_of(self.buffer[:_HEAD_SIZE])
        if length < 0:
            what = "wrong checksum of the length"
            raise self.error(CorruptRecordError, what if self.begun else f"{what}, or this is not a TFRecord file")
        self.begun = True
        if length > self.mem:
            raise self.error(
                TooLargeError,
                f"{length} bytes, and mem allows {self.mem}",
                f"if the file is not damaged, read it with {LARGER_MEM}",
            )
        if not self.fill(length + _AROUND):
            there = len(self.buffer) - _HEAD_SIZE
            what = f"the file ends inside the data or its checksum: {there} of {length + 4} bytes are there"
            raise self.error(TruncatedError, what)
        return True

    def fill(self, want: int) -> bool:
        """Read until ``want`` bytes are in the buffer; return False if the stream ends before."""
        pieces = [self.buffer[self.position :]]
        missing = want - len(pieces[0])
        self.base += self.position
        self.position = 0
        try:
            while missing > 0 and (piece := self.read(min(missing, _PIECE))):
                pieces.append(piece)
                missing -= len(piece)
        finally:
            self.buffer = b"".join(pieces)
        return missing <= 0

    def length_of(self, head: bytes) -> int:
        """Return the length in the 12 bytes before a record's data.

        -1 if its checksum is wrong or bytes are missing.
        """
        if len(head) < _HEAD_SIZE:
            return -1
        length, stored = _HEAD.unpack(head)
        return int(length) if _masked(self.crc32c(head[:8])) == stored else -1

    def remember(self, head: bytes) -> int:
        """Return the length like ``length_of``, and remember it for the loop.

        -1 also if the record is too large.
        """
        length = self.length_of(head)
        if not 0 <= length <= self.mem:
            return -1
        if len(self.lengths) > _MAX_REMEMBERED:
            self.lengths.clear()
        self.begun = True
        self.lengths[head] = length
        return length

    def error(self, kind: type[_Error], what: str, hint: str = "") -> _Error:
        """Return an error about the current record."""
        hint = hint or DAMAGED_HINT
        return kind(f"{self.lost(True)}: {what}", url=self.url, offset=self.base + self.position, hint=hint)

    def lost(self, one: bool) -> str:
        """Return words for the current record alone, or for all records from it on."""
        return f"record {self.number}" if one and self.certain else f"records from {self.number} on"

    def resynchronise(self, error: DataError) -> bool:
        """Skip damage, and record the loss; False if no record was found so far."""
        what = error.reason.removeprefix(f"{self.lost(True)}: ")
        start = self.base + self.position
        if isinstance(error, CompressionError):
            one, self.position = False, len(self.buffer)
        else:
            one = self.skip_one() or self.search()
        if not self.begun:
            return False
        self.tally.damage.append((self.url, start, self.base + self.position, f"{self.lost(one)}: {what}"))
        self.certain &= one
        self.number += one
        return True

    def skip_one(self) -> bool:
        """Skip the current record, if its length is right and a record or the end follows."""
        length = self.length_of(self.buffer[self.position : self.position + _HEAD_SIZE])
        size = length + _AROUND
        if length < 0 or not self.try_fill(size):
            return False
        self.try_fill(size + _HEAD_SIZE)
        following = self.buffer[size : size + _HEAD_SIZE]
        if following and self.length_of(following) < 0:
            return False
        self.position = size
        return True

    def search(self) -> bool:
        """Search for the next length with a correct checksum; without one, go to the end.

        Returns:
            True if exactly one record was skipped: the last four bytes before the place are the
                checksum
            of the bytes before them. Distances above 64 MiB are not checked for that.
        """
        self.try_fill(0)
        at, one, ended = 1, True, False
        while (found := self.find_head(at)) < 0 and not ended:
            at = max(at, len(self.buffer) - _HEAD_SIZE + 1)
            if len(self.buffer) > _MAX_HELD:
                self.position, at, one = at, 0, False
            held = len(self.buffer) - self.position
            ended = not self.try_fill(held + max(held, READ_SIZE))
        self.position = len(self.buffer) if found < 0 else found
        data, stored = self.buffer[_HEAD_SIZE : self.position - 4], self.buffer[self.position - 4 : self.position]
        one = one and self.position >= _AROUND and _SUM.pack(_masked(self.crc32c(data))) == stored
        self.begun |= one or found >= 0
        return one

    def find_head(self, at: int) -> int:
        """Find the next length below 1 TiB with a correct checksum, from buffer index ``at``.

        -1 if there is none.
        """
        zeros = self.buffer.find(_HIGH_BYTES, at + 5)
        while zeros >= 0:
            head = self.buffer[zeros - 5 : zeros + 7]
            if self.length_of(head) >= 0:
                return zeros - 5
            # Twelve zeros are not a length with its checksum, so a length that begins in a long run
            # ends after it.
            run = b"" if head.strip(b"\0") else self.buffer[zeros : zeros + 4096]
            behind = zeros + len(run) - len(run.lstrip(b"\0"))
            zeros = self.buffer.find(_HIGH_BYTES, max(zeros + 1, behind - 6))
        return -1

    def try_fill(self, want: int) -> bool:
        """Read as ``fill`` does, but treat an error in a compressed stream as its end.

        The next read reports the error again.
        """
        try:
            return self.fill(want)
        except CompressionError:
            return False


class RecordWriter(FileWriter):
    """A writer of records to one TFRecord file.

    The same records give the same bytes.

    A context manager: on a clean exit the file is published whole under its name; on an exception
    nothing appears there. ``close()`` publishes, ``discard()`` leaves nothing.

    Args:
        target: a path, URL, ``-``, ``pipe:COMMAND``, or an open binary file, which stays open.
        compression: "auto": by the name (``.gz``); gz, zlib or another codec of
            :func:`tarkit.store.publish.open_publish`; None: none. TensorFlow reads gz and zlib
            only.

    Attributes:
        records: number of records written.

    Raises:
        StreamError: the file cannot be written.
        TemporaryStreamError: the file cannot be written now.
        UsageError: the protocol of the URL, or the codec, is not known.
    """

    def __init__(self, target: str | os.PathLike[str] | BinaryIO, *, compression: str | bool | None = "auto") -> None:
        self._crc32c = _crc32c()
        self._gathered: list[bytes] = []
        self._room = _GATHERED
        super().__init__(target, compression)

    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Write one record; it may be empty.

        Args:
            record: its bytes.

        Raises:
            EncodeError: the record is not bytes.
        """
        if record.__class__ is not bytes:
            if not isinstance(record, (bytes, bytearray, memoryview)):
                raise EncodeError(f"a record is bytes, not {type(record).__name__}", url=self.name)
            record = bytes(record)
        self._gathered.append(record)
        self._room -= len(record) + _AROUND
        if self._room < 0:
            self._write_rest()
        self._written.count += 1

    def _write_rest(self) -> None:
        records, self._gathered = self._gathered, []
        pieces = [b""] * (3 * len(records))
        pieces[0::3] = map(_head_of, map(len, records))
        pieces[1::3] = records
        pieces[2::3] = _masked_all([*map(self._crc32c, records)])
        self._out.write(b"".join(pieces))
        self._room = _GATHERED
