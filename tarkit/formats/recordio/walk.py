"""Walk the chunks of a RecordIO stream from front to back, and resume after damage if requested."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from tarkit.errors import CorruptRecordError, DataError, TooLargeError, TruncatedError
from tarkit.formats.recordio.chunk import GO, HEADER_SIZE, LENGTH, MAGIC, PYRECORDIO, ChunkHeader, parse_header
from tarkit.formats.tally import CUT_HINT, DAMAGED_HINT, LARGER_MEM, Tally
from tarkit.store.window import Window

_ANOTHER_FORMAT = (
    "if it has another format, name the format (--from, reader_type=); if it is compressed as a whole, decompress it; "
    f"if it is damaged, {DAMAGED_HINT}"
)

_TRUSTED = 64 << 20
"""Size in bytes up to which a damaged header's size is used, and a chunk's end is searched."""
_IN_VAIN = 1 << 30
_IN_VAIN_RATIO = 16
"""Limits of a search after damage.

Number of bytes that may be checked without success, and how many more for each byte of the file
before them.
"""


class Chunk(NamedTuple):
    """A chunk with a correct checksum.

    Attributes:
        offset: offset of its header in the stream, in bytes.
        first: number of its first record in the file.
        header: fields of its header.
        payload: the bytes after the header.
    """

    offset: int
    first: int
    header: ChunkHeader
    payload: memoryview


class ChunkWalk:
    """A position in a stream of chunks, and the number of the next record.

    Args:
        read: function that returns some bytes, b"" at the end.
        url: URL of the file, for errors.
        skip: True to resume after damage, which is recorded in the tally.
        tally: filled with counts and damage.
        mem: largest size of a chunk in bytes.
        base: offset in the file at which the stream begins.
        number: number of the first record of the stream.

    Attributes:
        counted: False after damage with an unknown number of lost records.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        url: str,
        *,
        skip: bool,
        tally: Tally,
        mem: int,
        base: int = 0,
        number: int = 0,
    ) -> None:
        self.url = url
        self.skip = skip
        self.tally = tally
        self.mem = mem
        self.number = number
        self.counted = True
        self._window = Window(read, base)
        self._begun = False
        self._sought = 0  # bytes that were searched for the end of a damaged chunk
        self._checked = 0  # bytes of places that looked like chunks but are not

    @property
    def offset(self) -> int:
        """Offset of the next byte."""
        return self._window.offset

    def chunks(self) -> Iterator[Chunk]:
        """Yield the chunks from the position on.

        With ``skip``, damaged chunks are skipped.

        Raises:
            CorruptRecordError: a chunk is damaged.
            TruncatedError: the stream ends inside a chunk.
            TooLargeError: a chunk has more than ``mem`` bytes.
        """
        while head := self._window.peek(HEADER_SIZE):
            try:
                chunk = self._next(head)
            except DataError as error:
                if not self.skip:
                    raise
                self._pass_over(head, error)
            else:
                self._begun = True
                yield chunk

    def damaged(self, chunk: Chunk, lost: int, reason: str) -> None:
        """Report a chunk with a correct checksum whose content is not valid.

        Args:
            lost: number of lost records.
            reason: what is wrong with it.

        Raises:
            CorruptRecordError: ``skip`` is False.
        """
        if not self.skip:
            raise self._corrupt(chunk.offset, reason)
        self._report(chunk.offset, chunk.first, lost, reason)

    def too_large(self, offset: int, size: int) -> TooLargeError:
        """Return the error for a chunk that is too large.

        Args:
            offset: offset of the chunk in bytes.
            size: its size in bytes, or less.
        """
        return TooLargeError(
            f"a chunk has {size} bytes or more; at most {self.mem} are allowed",
            url=self.url,
            offset=offset,
            hint=f"if the file is not damaged, read it with {LARGER_MEM}",
        )

    def _report(self, start: int, first: int, lost: int | None, reason: str) -> None:
        self.number = first + (lost or 0)
        self.counted = self.counted and lost is not None
        records = f"records {first} to {self.number - 1}" if self.counted else f"records from {first} on"
        self.tally.damage.append((self.url, start, self.offset, f"{records}: {reason}"))

    def _corrupt(self, offset: int, reason: str) -> CorruptRecordError:
        return CorruptRecordError(reason, url=self.url, offset=offset, hint=DAMAGED_HINT)

    def _next(self, head: bytes) -> Chunk:
        window, offset = self._window, self.offset
        header = chunk_header(head, self.url, offset)
        if header.compression is None:
            reason = f"the number {header.compressor} is not that of a compression (dialect of {header.dialect.name})"
            raise self._corrupt(offset, reason)
        if header.records and header.size < LENGTH.size:
            raise self._corrupt(offset, f"a chunk of {header.size} bytes cannot hold {header.records} records")
        if header.size > self.mem:
            raise self.too_large(offset, header.size)
        size = HEADER_SIZE + header.size
        if not window.have(size):
            raise cut(f"a chunk: {window.held} of {size} bytes are there", self.url, offset)
        payload = memoryview(window.buffer)[window.at + HEADER_SIZE : window.at + size]
        if header.dialect.checksum(payload, 0) != header.checksum:
            raise self._corrupt(offset, f"checksum mismatch in a chunk of {header.records} records")
        window.at += size
        chunk = Chunk(offset, self.number, header, payload)
        self.number += header.records
        return chunk

    # ---- after damage

    def _pass_over(self, head: bytes, error: DataError) -> None:
        """Skip a damaged chunk, and report the loss."""
        start = self.offset
        lost = self._go_to_end(head) if len(head) == HEADER_SIZE else None
        large = isinstance(error, TooLargeError)
        if large and lost is not None and self.offset - start - HEADER_SIZE > self.mem:
            raise error
        if lost is None and not self._search(_TRUSTED if large else None):
            raise error
        if not self._begun and start == 0 and not MAGIC.startswith(head[:4]) and not self._window.have(1):
            raise error  # Not a RecordIO file at all.
        self._report(start, self.number, lost, error.reason)

    def _go_to_end(self, head: bytes) -> int | None:
        """Skip the rest of the current chunk if its end can be proven.

        One damaged field of a header leaves the other fields: the size leads to the next chunk, or
        the checksum finds the end. So a RecordIO file inside a damaged record is not taken for a
        part of this one.

        Returns:
            Number of records in its header; None if its end was not found.
        """
        window, own = self._window, parse_header(head)
        headers = [own, (PYRECORDIO if own.dialect is GO else GO).parse(head)]
        limit = max(_TRUSTED, window.held)
        size = HEADER_SIZE + own.size
        if size <= limit and window.have(size) and self._may_end(size):
            payload = window.buffer[window.at + HEADER_SIZE : window.at + size]
            proven = (header for header in headers if header.dialect.checksum(payload, 0) == header.checksum)
            window.at += size
            return next(proven, own).records
        for header in headers:
            found = self._find_end(header, limit) if self._may_try(self._sought) else None
            if found is not None:
                window.at += found
                return header.records
        return None

    def _may_end(self, size: int) -> bool:
        """Return True if a chunk follows these bytes, or nothing."""
        return not self._window.have(size + 1) or (
            self._window.have(size + 4) and self._window.find(MAGIC, size) == size
        )

    def _find_end(self, header: ChunkHeader, limit: int) -> int | None:
        """Find the end of the current chunk by its checksum; return its size in bytes, or None.

        The ends that are tried are the next magics, and the end of the stream.
        """
        window, checksum, done, sought = self._window, 0, HEADER_SIZE, HEADER_SIZE + 1
        while window.held <= limit or window.find(MAGIC, sought) >= 0:
            found = window.find(MAGIC, sought)
            if found < 0:
                held = window.held
                sought = max(sought, held - 3)
                window.have(2 * held)
                if window.held > held:
                    continue
                found = held
            piece = window.buffer[window.at + done : window.at + found]
            checksum = header.dialect.checksum(piece, checksum)
            if checksum == header.checksum and found > HEADER_SIZE:
                return found
            if found == window.held:
                break
            done, sought = found, found + 1
        self._sought += sought
        return None

    def _search(self, limit: int | None) -> bool:
        """Search for the next chunk with a correct checksum; without one, go to the end.

        Returns:
            False if neither is within ``limit`` bytes.
        """
        window = self._window
        window.at += 1
        stop = None if limit is None else window.offset + limit
        while window.go_to(MAGIC, stop):
            if self._is_good():
                return True
            if not self._may_try(self._checked):
                reason = "too many chunks that are damaged, or only look like chunks, to find the next good one"
                raise CorruptRecordError(reason, url=self.url, offset=window.offset, hint="fetch the file again")
            window.at += 1
        return stop is None or window.offset <= stop

    def _is_good(self) -> bool:
        head = self._window.peek(HEADER_SIZE)
        if len(head) < HEADER_SIZE:
            return False
        header = parse_header(head)
        size = HEADER_SIZE + header.size
        if header.compression is None or header.size > self.mem:
            return False
        is_there = self._window.have(size)
        self._checked += min(size, self._window.held)
        payload = self._window.buffer[self._window.at + HEADER_SIZE : self._window.at + size]
        return is_there and header.dialect.checksum(payload, 0) == header.checksum

    def _may_try(self, in_vain: int) -> bool:
        """Return True if a search may check more bytes at this position in the file."""
        return in_vain <= _IN_VAIN + _IN_VAIN_RATIO * self.offset


def chunk_header(head: bytes, url: str, offset: int) -> ChunkHeader:
    """Parse the header of a chunk from the bytes at an offset, 20 or fewer.

    Raises:
        CorruptRecordError: the bytes are not a header.
        TruncatedError: the bytes are the beginning of a header.
    """
    if not MAGIC.startswith(head[:4]):
        reason = f"a chunk begins with {MAGIC.hex(' ')}; found {head[:4].hex(' ')}"
        raise CorruptRecordError(reason, url=url, offset=offset, hint=DAMAGED_HINT if offset else _ANOTHER_FORMAT)
    if len(head) < HEADER_SIZE:
        raise cut(f"the header of a chunk: {len(head)} of {HEADER_SIZE} bytes are there", url, offset)
    return parse_header(head)


def cut(where: str, url: str, offset: int) -> TruncatedError:
    """Return the error for a stream that ends inside a chunk."""
    return TruncatedError(f"the stream ends inside {where}", url=url, offset=offset, hint=CUT_HINT)
