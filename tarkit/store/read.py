"""Open a stream of bytes by URL, or read a range of bytes.

A URL is a local path or file://, ``-`` for stdin or stdout, ``pipe:COMMAND``, http(s)://, or any
that fsspec reaches (s3://, gs://, hdfs://, memory://, …).
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from numbers import Real
from types import SimpleNamespace
from typing import Any, BinaryIO, cast

from tarkit.errors import DataError, UsageError, printable
from tarkit.names.url import display_name, name_of_file
from tarkit.store.compression import SNIFF_BYTES, DecompressingReader, check_codec, sniff
from tarkit.store.inplace import InPlaceReader
from tarkit.store.local import FileReader, open_path
from tarkit.store.place import RawReader
from tarkit.store.readahead import READ_AHEAD, ReadAhead
from tarkit.store.registry import function_of
from tarkit.store.resume import ResumingReader, read_up_to
from tarkit.store.retry import DEFAULT_RETRY, Retry
from tarkit.store.waits import Workers
from tarkit.store.window import Window

_MEM = 1 << 30


class ReadStream:
    """A stream of decompressed bytes; ``read(n)`` returns at most n > 0 bytes.

    b"" only at the true end, after lengths, checksums, exit codes, and the identity of a local file
    were verified (OSErrors are those of the system).

    Args:
        raw: reader of the compressed bytes.
        read: function that returns decompressed bytes.
        name: URL for messages.
        size_hint: size in bytes of a local file without compression, or None.
        source: reader of the source, without a thread.
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
        """Return how much of the source was read, from 0.0 to 1.0; 0.0 if its size is not known.

        It is meant for progress only.
        """
        if self.read is _closed or not isinstance(self._source, (FileReader, ResumingReader)):
            return 0.0
        size = self._source.size
        return min(1.0, self._source.position / size) if size else 0.0

    def in_place(self) -> InPlaceReader | None:
        """Return a reader that can leave content in its file; None if it is not plain and local.

        Nothing else must read the stream then.
        """
        is_plain = isinstance(self._source, FileReader) and self.size_hint is not None
        return InPlaceReader(cast(FileReader, self._source)) if is_plain else None

    def close(self) -> None:
        """Close the source (a file object of the caller stays open), and stop a command.

        A second call does nothing.
        """
        self.read = _closed
        self._raw.close()

    def __enter__(self) -> ReadStream:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            # Apparent damage may be a mix of old and new content.
            if kind is not None and issubclass(kind, DataError) and isinstance(self._source, FileReader):
                self._source.check_unchanged()
        finally:
            self.close()

    def start(self) -> None:
        """Begin to read ahead now; a compressed local file is then decompressed in a thread."""
        if isinstance(self._source, FileReader) and self.size_hint is None and self._source.seekable:
            # A read of a local file returns soon: it need not be interrupted.
            unpacked: Any = SimpleNamespace(read=self.read, close=self._raw.close, interrupt=lambda: None)
            self._raw = ReadAhead(unpacked)
            self.read = self._raw.read
        if isinstance(self._raw, ReadAhead):
            self._raw.start()


def open_in_order(names: Iterable[str], parallel: int = 1) -> Iterator[ReadStream]:
    """Open streams in order; with ``parallel``, several are opened, read and decompressed at once.

    Each may read 16 MiB ahead.

    Args:
        names: paths or URLs.
        parallel: number of streams.

    Raises:
        TarkitError: errors of :func:`open_read`, when the turn of that stream comes.
    """
    if parallel == 1:
        yield from map(open_read, names)
        return
    waiting: set[ReadStream] = set()

    def started(name: str) -> ReadStream:
        stream = open_read(name)
        waiting.add(stream)
        stream.start()
        return stream

    try:
        with Workers(parallel, "tarkit-open") as workers:
            for stream in workers.ahead(started, names, parallel):
                waiting.discard(stream)
                yield stream
    finally:
        for stream in waiting:
            stream.close()


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
    opened again at the same byte; if the object has changed, that is an error. A thread reads
    ahead, from the first read on.

    Args:
        url: a path or URL (see the top of this file); or a binary file object, which is not closed.
        compression: gz, zst, bz2, xz, lz4 or zlib; None: none; "auto": by the first bytes (not for
            zlib).
        allow_pipe: True if ``pipe:`` URLs may run a command.
        retry: policy for retries of a read over a network.
        read_ahead: largest number of bytes that are read ahead over a network; 0: no thread.
        may_be_replaced: True if a different local file may take the name meanwhile; the old file is
            read then.
        mem: largest window of a compressed stream in bytes; at least 128 MiB for zst and 1 GiB for
            xz.

    Raises:
        MissingInputError: the file does not exist.
        StreamError: the source cannot be read, its size or checksum differs from the store's, or it
            changed while it was read.
        TemporaryStreamError: the last attempt failed, or (at its end) a local file was changed or
            replaced while it was read; a later retry may help.
        CompressionError: (from read) the stream is damaged or cut.
        TooLargeError: (from read) the stream needs more memory than ``mem``.
        UsageError: the protocol or codec is not known.
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
        """Do nothing: the caller closes it."""


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
    """Read bytes from ``start`` up to, not including, ``stop`` of a file of ``size`` bytes.

    The bytes before them are not read, if the place allows that.

    Args:
        url: path or URL of the file.
        start: first byte.
        stop: byte after the last one.
        size: size of the file in bytes.
        retry: policy for retries of a read over a network.

    Raises:
        DataError: the file has a different size.
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
    """
    if start >= stop:
        return b""
    data: bytes = function_of(url, "read_range")(url, display_name(url), start, stop, size, retry)
    return data


def first_bytes(url: str, count: int, *, compression: str | None = "auto") -> bytes:
    """Read the first ``count`` bytes of a file, fewer only if it is shorter.

    Args:
        url: path or URL of the file.
        count: number of bytes.
        compression: codec, as for :func:`open_read`.

    Raises:
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
        UsageError: the protocol or codec is not known.
    """
    with open_read(url, compression=compression, read_ahead=0, may_be_replaced=True) as stream:
        return Window(lambda _: stream.read(count)).peek(count)


def read_whole(url: str | os.PathLike[str], *, compression: str | None = "auto") -> bytes:
    """Read all of a file, of any size.

    If a local file is replaced meanwhile, the result is the old or the new content, not a mix.

    Args:
        url: path or URL of the file.
        compression: codec, as for :func:`open_read`.

    Raises:
        MissingInputError: the file does not exist.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
        UsageError: the protocol or codec is not known.
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
            # The source is read over a network. The thread starts with the first read.
            raw = ReadAhead(raw, read_ahead)
        read = Window(raw.read, buffer=head).read if head else raw.read
    if codec is not None:
        read = DecompressingReader(read, codec, name, mem).read
    return ReadStream(raw, read, name, raw.size if plain and codec is None else None, source)


def reading(blocks: Iterator[bytes]) -> Callable[[int], bytes]:
    """Return a function ``read(n)`` over pieces: 1 to n bytes, or b"" at their end."""
    pieces = filter(None, blocks)
    return Window(lambda _: next(pieces, b"")).read
