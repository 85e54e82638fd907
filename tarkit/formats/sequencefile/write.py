"""Write pairs to a SequenceFile of version 6."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

from tarkit.errors import EncodeError, UsageError
from tarkit.formats.sequencefile.codecs import codec_class, codec_of
from tarkit.formats.sequencefile.header import ESCAPE, SYNC_BYTES, Header
from tarkit.formats.sequencefile.vint import vint_bytes
from tarkit.formats.sequencefile.writables import SERIALIZED, full_name, writable_of
from tarkit.formats.tally import check_policy
from tarkit.store.publish import FileWriter

COMPRESSIONS = ("none", "record", "block")
_MOST = (1 << 31) - 1


class PairWriter(FileWriter):
    """A writer of one SequenceFile, which appears whole when it is closed, or not at all.

    The same pairs and arguments give the same bytes. A context manager: an exception discards the
    file.

    >>> with PairWriter("words.seq", "Text", "IntWritable") as writer:  # doctest: +SKIP
    ...     writer.write("one", 1)

    Args:
        target: a path, URL or binary file object, which stays open.
        key_class: class of the keys: a class of ``org.apache.hadoop.io`` without the package, or a
            class name with dots. Keys and values have the types of
            :func:`tarkit.formats.sequencefile.read_pairs`; for unknown classes, their serialized
            bytes.
        value_class: class of the values.
        compression: block: keys and values of many records together; record: each value by itself;
            none.
        codec: zlib, gzip, bzip2, snappy, lz4, zstd, or Hadoop's class.
        metadata: names and values in the header.
        sync: the sync mark, 16 bytes. None: the MD5 digest of the header. A file that holds other
            SequenceFiles of the same header as values needs a different mark; without it, a write
            fails.
        sync_interval: number of bytes after which a sync mark is written, without blocks.
        block_bytes: size of keys and values in bytes at which a block is written.

    Raises:
        UsageError: an argument is not valid.
        EncodeError: a class name or the metadata cannot be written, or is too long.
        StreamError: the file cannot be written.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | BinaryIO,
        key_class: str = "Text",
        value_class: str = "BytesWritable",
        *,
        compression: str = "block",
        codec: str = "zlib",
        metadata: Mapping[str, str] | None = None,
        sync: bytes | None = None,
        sync_interval: int = 102_400,
        block_bytes: int = 1_000_000,
    ) -> None:
        check_policy("compression", compression, COMPRESSIONS)
        if sync is not None and len(sync) != SYNC_BYTES:
            raise UsageError(f"a sync mark has {SYNC_BYTES} bytes, not {len(sync)}")
        if sync_interval < 1 or block_bytes < 1:
            raise UsageError(f"sync_interval={sync_interval}, block_bytes={block_bytes}: they must be positive")
        name = codec_class(codec) if compression != "none" else ""
        header = Header(full_name(key_class), full_name(value_class), compression, name, dict(metadata or {}))
        self._sync = hashlib.md5(header.encode(), usedforsecurity=False).digest() if sync is None else sync
        self._key = writable_of(header.key_class) or SERIALIZED
        self._value = writable_of(header.value_class) or SERIALIZED
        self._pack: Callable[[bytes], bytes] | None = codec_of(name, "").compress if name else None
        self._in_blocks = compression == "block"
        self._interval = sync_interval
        self._block_bytes = block_bytes
        self._keys: list[bytes] = []
        self._values: list[bytes] = []
        self._pending = 0
        self._last_mark = 0
        super().__init__(target, compression=None)
        self._write = self._out.write
        self._write(header.encode() + self._sync)

    def write(self, key: Any, value: Any) -> None:
        """Add one pair.

        Args:
            key: a value of the file's key class.
            value: a value of the file's value class.

        Raises:
            EncodeError: the pair is not of the classes of this file, or is too large.
            StreamError: the file cannot be written.
        """
        try:
            key_bytes = self._key.encode(key)
            value_bytes = self._value.encode(value)
        except (TypeError, ValueError, OverflowError, struct.error) as error:
            reason = f"record {self.records} cannot be written: {error}"
            raise EncodeError(reason, url=self.name) from None
        if self._room < 0:
            self._out.write(b"")
        if self._in_blocks:
            self._keys.append(key_bytes)
            self._values.append(value_bytes)
            self._pending += len(key_bytes) + len(value_bytes)
            if self._pending >= self._block_bytes:
                self._write_block()
        else:
            if self._pack is not None:
                value_bytes = self._pack(value_bytes)
            self._check(key_bytes, value_bytes)
            if self._out.bytes_written >= self._last_mark + self._interval:
                self._write(ESCAPE + self._sync)
                self._last_mark = self._out.bytes_written
            size = len(key_bytes) + len(value_bytes)
            self._write(struct.pack(">ii", size, len(key_bytes)) + key_bytes + value_bytes)
        self._written.count += 1

    def _check(self, *parts: bytes) -> None:
        """Reject the sync mark inside a record: a reader of a part would take it for a real one."""
        if sum(map(len, parts)) > _MOST:
            raise EncodeError(f"record {self.records} has more than {_MOST} bytes", url=self.name)
        if any(self._sync in part for part in parts):
            raise EncodeError(
                f"record {self.records} holds the sync mark of this file",
                url=self.name,
                hint="choose a different mark: sync=… (16 bytes)",
            )

    def _write_block(self) -> None:
        pack = self._pack or bytes
        parts = [ESCAPE, self._sync, vint_bytes(len(self._keys))]
        for items in (self._keys, self._values):
            for plain in (b"".join([vint_bytes(len(item)) for item in items]), b"".join(items)):
                packed = pack(plain)
                self._check(packed)
                parts += (vint_bytes(len(packed)), packed)
        self._write(b"".join(parts))
        self._keys, self._values, self._pending = [], [], 0

    def _write_rest(self) -> None:
        if self._keys:
            self._write_block()
