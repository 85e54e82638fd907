"""Write RecordIO files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import BinaryIO

from tarkit.errors import EncodeError, UsageError
from tarkit.formats.recordio.chunk import GO, LENGTH, MOST, go_header, payload_compressor
from tarkit.store.publish import FileWriter

MAX_CHUNK_SIZE = 32 << 20
_GATHERED = 1 << 19
"""Size in bytes of the records that are compressed together."""
_MOST_RECORDS = 1 << 26
"""Largest number of records in a chunk; without it, empty records would be collected forever."""


class RecordWriter(FileWriter):
    r"""A writer of a RecordIO file, with the same bytes as Go's library for the same records.

    The file appears whole when it is closed, or at the end of a ``with`` block without an
    exception; otherwise it does not appear.

    >>> import io
    >>> file = io.BytesIO()
    >>> with RecordWriter(file, compression="none") as writer:
    ...     writer.write(b"Hello")
    >>> file.getvalue()[20:]
    b'\x05\x00\x00\x00Hello'

    Args:
        target: a path, a URL of any place of the store, or a binary file object, which is not
            closed.
        compression: snappy (the framing format), none, or gzip. Newer versions of Go's library hang
            forever when they read gzip; the other two are read by all versions.
        max_chunk_size: largest size in bytes of the records in a chunk, before compression and
            without their lengths. A record that is larger becomes a chunk of its own.
        if_absent: True to keep an existing target and raise AlreadyPublishedError; see
            :func:`tarkit.store.publish.open_publish`.

    Attributes:
        records: number of records written.

    Raises:
        UsageError: an argument is not valid.
        AlreadyPublishedError: the target exists, with ``if_absent``.
        StreamError: the target cannot be written.
        TemporaryStreamError: the target cannot be written now.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | BinaryIO,
        *,
        compression: str = "snappy",
        max_chunk_size: int = MAX_CHUNK_SIZE,
        if_absent: bool = False,
    ) -> None:
        if compression not in GO.codes:
            raise UsageError(f"no compression {compression!r} in RecordIO; use {', '.join(GO.codes)}")
        if not 0 < max_chunk_size <= MOST:
            raise UsageError(f"max_chunk_size is {max_chunk_size}; it must be from 1 to {MOST}")
        self._compression = compression
        self._max_chunk_size = max_chunk_size
        super().__init__(target, if_absent=if_absent)
        self._begin_chunk()

    def write(self, record: bytes | bytearray | memoryview) -> None:
        """Add a record, which may be empty.

        Args:
            record: its bytes.

        Raises:
            EncodeError: the record is not bytes, or too large for the format.
            StreamError: the target cannot be written.
        """
        if record.__class__ is not bytes:
            record = self._as_bytes(record)
        size = len(record)
        if size > self._room:
            self._make_room(size)
        self._gathered += LENGTH.pack(size), record
        self._room -= size + 4
        self._written.count += 1

    def write_batch(self, records: Iterable[bytes | bytearray | memoryview]) -> None:
        """Add many records.

        Args:
            records: bytes of each record.

        Raises:
            EncodeError: a record is not bytes, or too large for the format.
            StreamError: the target cannot be written.
        """
        write = self.write
        for record in records:
            write(record)

    def _begin_chunk(self) -> None:
        self._compressor = payload_compressor(self._compression)
        self._payload: list[bytes] = []
        self._chunk_records = 0
        self._gathered: list[bytes] = []
        # The bytes that the chunk can still take. The room is never more: it is less where
        # compression is due.
        self._left = self._max_chunk_size
        self._room = min(self._left, _GATHERED)

    def _make_room(self, size: int) -> None:
        self._out.write(b"")
        if size > MOST:
            raise EncodeError(f"a record has {size} bytes; RecordIO takes {MOST}", url=self.name)
        self._compress()
        if size > self._left or self._chunk_records >= _MOST_RECORDS:
            self._write_chunk()
        self._room = min(self._left, _GATHERED)

    def _compress(self) -> None:
        content, records = b"".join(self._gathered), len(self._gathered) // 2
        self._payload.append(self._compressor.compress(content))
        self._chunk_records += records
        self._left -= len(content) - 4 * records
        self._gathered = []

    def _write_rest(self) -> None:
        self._write_chunk()

    def _write_chunk(self) -> None:
        """Write the current chunk, if it has a record."""
        self._compress()
        if self._chunk_records:
            payload = b"".join((*self._payload, self._compressor.flush()))
            if len(payload) > MOST:
                raise EncodeError(f"a chunk has {len(payload)} bytes; RecordIO takes {MOST}", url=self.name)
            self._out.write(go_header(self._compression, payload, self._chunk_records))
            self._out.write(payload)
        self._begin_chunk()

    def _as_bytes(self, record: object) -> bytes:
        if isinstance(record, (bytes, bytearray, memoryview)):
            return bytes(record)
        raise EncodeError(f"a record is bytes, not {type(record).__name__}", url=self.name)
