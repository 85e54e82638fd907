"""Streams of bytes by URL: open one to read, or read some bytes out of the middle.

A URL is a local path or file://, ``-`` for stdin or stdout, ``pipe:COMMAND``, http(s)://, or
whatever fsspec reaches (s3://, gs://, hdfs://, memory://, …).
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from numbers import Real
from typing import BinaryIO

from tarkit.errors import DataError, UsageError, printable
from tarkit.names.url import display_name, name_of_file
from tarkit.store.compression import SNIFF_BYTES, DecompressingReader, check_codec, sniff
from tarkit.store.local import FileReader, open_path
from tarkit.store.place import RawReader
from tarkit.store.readahead import READ_AHEAD, ReadAhead
from tarkit.store.registry import function_of
from tarkit.store.resume import ResumingReader, read_up_to
from tarkit.store.retry import DEFAULT_RETRY, Retry
from tarkit.store.window import Window

_MEM = 1 << 30


class ReadStream:
    """Bytes to read, decompressed. read(n): at most n > 0 bytes.

    b"" only at the true end, when lengths, checksums and exit codes were verified, and that a local
    file is as it was (OSErrors are those of the system).

    Args:
        name: the URL as it may be shown.
        size_hint: length in bytes of a plain local file, else None.
    """

    __slots__ = ("__weakref__", "_raw", "_source", "name", "read", "size_hint")

    read: Callable[[int], bytes]

    def __init__(
        self, raw: RawReader, read: Callable[[int], bytes], name: str, size_hint: int | None, source: RawReader
    ) -> None:
        self._raw = raw
        self._source = source
        self.read = read
        self.name = name
        self.size_hint = size_hint

    def part_read(self) -> float:
        """How much of the source was read, from 0.0 to 1.0; 0.0 while its length is not known.

        For people only.
        """
        if self.read is _closed or not isinstance(self._source, (FileReader, ResumingReader)):
            return 0.0
        size = self._source.size
        return min(1.0, self._source.position / size) if size else 0.0

    def close(self) -> None:
        """Close the source (a file object that was handed in stays open).

        A command is stopped. Again: nothing.
        """
        self.read = _closed
        self._raw.close()

    def __enter__(self) -> ReadStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            # What seems damaged may be half of one content and half of the next.
            if kind is not None and issubclass(kind, DataError) and isinstance(self._source, FileReader):
                self._source.check_unchanged()
        finally:
            self.close()


def _closed(count: int) -> bytes:
    raise ValueError("read of a closed stream")


def open_read(
    url: str | os.PathLike[str] | BinaryIO,
    *,
    compression: str | None = "auto",
    allow_pipe: bool = True,
    retry: Retry = DEFAULT_RETRY,
    read_ahead: int = READ_AHEAD,
    may_be_replaced: bool = False,
    mem: int = _MEM,
) -> ReadStream:
    """Open a stream of bytes.

    Over a network it is read to its verified end: when the connection drops, the same object is
    opened again at the same byte; if it is not the same any more, that is an error. A thread reads
    ahead, from the first read on.

    Args:
        url: see the head of this file; or a binary file object, which is not closed.
        compression: gz, zst, bz2, xz, lz4 or zlib; None for none; "auto" looks at the first bytes
            (not for zlib).
        allow_pipe: whether ``pipe:`` URLs may run a command.
        retry: how often, and how patiently, a read over a network is tried again.
        read_ahead: bytes of a read over a network that are held at most; 0: no thread.
        may_be_replaced: whether another local file may take the name meanwhile; what is read is the
            old one then.
        mem: bytes that the window of a compressed stream may have; at least 128 MiB of zst and 1
            GiB of xz.

    Raises:
        MissingInputError: no such file.
        StreamError: it cannot be read, has not the.
        length or checksum that its store gives, or was changed while it was read.
        TemporaryStreamError: the last attempt failed, or (at its end) a local file was changed or
            replaced while it.
        was read; a later try may help.
        CompressionError (by read): damaged or cut. TooLargeError (by read): it needs more memory
            than ``mem``.
        UsageError: no such protocol or codec.
        MissingExtraError: a library is not installed.
    """
    if compression not in ("auto", None):
        check_codec(compression)
    if not isinstance(mem, Real):
        raise UsageError(f"mem is {mem!r}; it must be a number of bytes, such as 2 * 2**30")
    raw, name = _open_raw(url, allow_pipe, retry)
    if isinstance(raw, FileReader):
        raw.may_be_replaced = may_be_replaced
    try:
        return _decompressed(raw, name, compression, read_ahead, mem)
    except BaseException:
        raw.close()
        raise


class _BorrowedReader:
    """A file object of the caller: read, but not closed."""

    size = None

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def read(self, count: int) -> bytes:
        data = self._file.read(count)
        if not isinstance(data, bytes):
            got = "text" if isinstance(data, str) else type(data).__name__
            raise UsageError(f"{printable(self._name)}: read() of the file object gave {got}; it must give bytes")
        return data

    def close(self) -> None:
        """Nothing: the caller closes it."""


def _open_raw(url: str | os.PathLike[str] | BinaryIO, allow_pipe: bool, retry: Retry) -> tuple[RawReader, str]:
    if isinstance(url, str):
        name = display_name(url)
        if url.startswith("pipe:") and not allow_pipe:
            raise UsageError(f"{name}: commands are not allowed here")
        raw: RawReader = function_of(url, "open_read")(url, name, retry)
        return raw, name
    if isinstance(url, os.PathLike):
        return open_path(os.fspath(url), os.fspath(url)), os.fspath(url)
    name = name_of_file(url)
    if isinstance(url, io.TextIOBase) or not hasattr(url, "read"):
        kind = type(url).__name__
        raise UsageError(f"{printable(name)} is of type {kind}; it must be a path, a URL or a file open to read bytes")
    return _BorrowedReader(url, name), name


def read_range(url: str, start: int, stop: int, *, size: int, retry: Retry = DEFAULT_RETRY) -> bytes:
    """Bytes ``start`` to ``stop``, not counting the latter, of what has ``size`` bytes in all.

    What is before them is not read, where the place allows that.

    Raises:
        DataError: it has another length.
        MissingInputError: no such file.
        StreamError, TemporaryStreamError: it cannot be read.
    """
    if start >= stop:
        return b""
    data: bytes = function_of(url, "read_range")(url, display_name(url), start, stop, size, retry)
    return data


def first_bytes(url: str, count: int, *, compression: str | None = "auto") -> bytes:
    """The first ``count`` bytes of a file, fewer only if it has not so many.

    Raises: as :func:`open_read`.
    """
    with open_read(url, compression=compression, read_ahead=0, may_be_replaced=True) as stream:
        return Window(lambda _: stream.read(count)).peek(count)


def read_whole(url: str | os.PathLike[str], *, compression: str | None = "auto") -> bytes:
    """The content of a file, whatever its size: the old or the new one of a local file that is
    replaced meanwhile.

    Raises: as :func:`open_read`.
    """
    with open_read(url, compression=compression, may_be_replaced=True) as stream:
        return b"".join(iter(lambda: stream.read(1 << 20), b""))


def _decompressed(raw: RawReader, name: str, compression: str | None, read_ahead: int, mem: int) -> ReadStream:
    source = raw
    plain = raw.file if isinstance(raw, FileReader) and raw.seekable else None
    codec = compression
    read: Callable[[int], bytes]
    if plain:
        read = raw.read
        if compression == "auto":
            codec = sniff(os.pread(plain.fileno(), SNIFF_BYTES, plain.tell()))
    else:
        head = b""
        if compression == "auto":
            head = read_up_to(raw, SNIFF_BYTES)
            codec = sniff(head)
        if read_ahead > 0 and isinstance(raw, ResumingReader):
            # It comes over a network. The thread starts with the first read.
            raw = ReadAhead(raw, read_ahead)
        read = Window(raw.read, buffer=head).read if head else raw.read
    if codec is not None:
        read = DecompressingReader(read, codec, name, mem).read
    return ReadStream(raw, read, name, raw.size if plain and codec is None else None, source)


def reading(blocks: Iterator[bytes]) -> Callable[[int], bytes]:
    """``read(n)`` over pieces: it gives 1 to n bytes, or b"" at their end."""
    pieces = filter(None, blocks)
    return Window(lambda _: next(pieces, b"")).read
