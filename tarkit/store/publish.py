"""Streams to write that are published all or nothing."""

from __future__ import annotations

import hashlib
import os
import sys
import warnings
import weakref
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from tarkit.errors import StreamError, UsageError, counted, printable
from tarkit.names.url import display_name, is_stream, local_path, name_of_file
from tarkit.store.compression import new_compressor, write_compression
from tarkit.store.forks import Owner
from tarkit.store.place import Sink
from tarkit.store.registry import function_of, offered
from tarkit.store.sinks import BorrowedSink, open_file_sink

if TYPE_CHECKING:
    from typing_extensions import Self

_BUFFER = 1 << 20


class WholeOutput(ABC):
    """What is published whole or not at all: on a clean exit from a ``with`` block, not after an
    exception in it.
    """

    @abstractmethod
    def close(self) -> None:
        """Publish it.

        Again: nothing.

        Raises:
            StreamError, TemporaryStreamError, OutputClosedError, AlreadyPublishedError: it is not
                published.
        """

    @abstractmethod
    def discard(self) -> None:
        """Publish nothing.

        After close, or again: nothing.
        """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            try:
                self.close()
                return
            except BaseException:
                self.discard()
                raise
        self.discard()


class Unpublished:
    """What will not be published if a stream is forgotten.

    Args:
        name: of the stream.

    Attributes:
        count: of what was written so far, unit: such as sample; for the line that reports it.
    """

    __slots__ = ("count", "name", "unit")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.unit: str | None = None

    def report(self) -> None:
        """A line on stderr, and a warning, which Python shows only if it is asked to."""
        what = "it" if self.unit is None else counted(self.count, self.unit)
        are = "is" if self.unit is None or self.count == 1 else "are"
        message = f"{printable(self.name)}: its writer was never closed, so {what} {are} not published"
        if sys.stderr is not None:
            with suppress(OSError, ValueError):
                sys.stderr.write(f"tarkit: {message}; call close() or discard(), or write in a with block\n")
        warnings.warn(message, ResourceWarning, stacklevel=2)


class PublishStream(WholeOutput):
    """Bytes to write.

    Nothing is under the final name before ``commit``, and nothing ever after ``discard``. If it is
    forgotten, it discards, and reports that. A process that was forked meanwhile can neither write
    to it nor publish it, and its discard does nothing.

    Args:
        name: the URL as it may be shown.

    Attributes:
        bytes_written: before compression.
        bytes_sent: after it.
        digest: if the caller puts a hash here before the first write, all bytes that are sent go
            through it.
        unpublished: what a writer counts.
    """

    def __init__(self, sink: Sink, name: str, codec: str | None) -> None:
        self.name = name
        self.bytes_written = 0
        self.bytes_sent = 0
        self.digest: hashlib._Hash | None = None
        self._sink = sink
        self._compressor = None if codec is None else new_compressor(codec)
        self._buffer = bytearray()
        self._outcome: str | BaseException | None = None
        self.unpublished = Unpublished(name)
        self._owner = Owner()
        self._finalizer = weakref.finalize(self, _abandon, sink, self._owner, self.unpublished)

    @property
    def closed(self) -> bool:
        """Whether it was committed, discarded, or has failed."""
        return self._outcome is not None

    def write(self, data: bytes | bytearray | memoryview) -> int:
        """Take all of ``data``; its length in bytes.

        Raises:
            StreamError: the disk is full, the command ended, and so on; the stream is discarded
                then.
            OutputClosedError: the reader of standard output has closed it.
            BrokenPipeError: that of a file object.
        """
        if self._outcome is not None:
            self._refuse("written to")
        if not isinstance(data, (bytes, bytearray)):
            view = memoryview(data)
            data = view.cast("B") if view.c_contiguous else view.tobytes()
        size = len(data)
        self.bytes_written += size
        if self._compressor is not None:
            data = self._compressor.compress(data if isinstance(data, bytes) else bytes(data))
        # Small pieces are gathered; a large one goes out as it is, without a copy.
        if len(data) < _BUFFER:
            self._buffer += data
            if len(self._buffer) >= _BUFFER:
                self._send(b"")
        else:
            self._send(data)
        return size

    def commit(self) -> None:
        """Publish what was written.

        Again: nothing.

        Raises:
            StreamError, TemporaryStreamError, OutputClosedError: it is not published, and nothing
                is left of it.
        """
        if self._outcome == "committed":
            return
        if self._outcome is not None:
            self._refuse("published")
        self._send(self._compressor.flush() if self._compressor else b"")
        try:
            self._sink.commit()
        except BaseException as error:
            self.fail(error)
            raise
        self._end("committed")

    def discard(self) -> None:
        """Give up what was written.

        After commit, or again: nothing.
        """
        if self._outcome is None:
            self._end("discarded")
            self._discard_own()

    def fail(self, error: BaseException) -> None:
        """Give up what was written, because of an error that every later call raises again.

        After the end: nothing.
        """
        if self._outcome is None:
            self._end(error)
            self._discard_own()

    def close(self) -> None:
        """Commit, unless that or discard was done.

        An earlier failure is raised again.
        """
        if self._outcome != "discarded":
            self.commit()

    def _send(self, last: bytes | bytearray | memoryview) -> None:
        try:
            self._owner.check(self.name)
            for data in (self._buffer, last):
                if data:
                    self._sink.write(data)
                    self.bytes_sent += len(data)
                    if self.digest is not None:
                        self.digest.update(data)
            self._buffer = bytearray()
        except BaseException as error:
            self.fail(error)
            raise

    def _end(self, outcome: str | BaseException) -> None:
        self._outcome = outcome
        self._buffer = bytearray()
        self._finalizer.detach()

    def _discard_own(self) -> None:
        # A forked child has a copy of the stream; the file and the command are its parent's.
        if self._owner.is_here():
            self._sink.discard()

    def _refuse(self, what: str) -> None:
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        raise StreamError(f"the stream was {self._outcome}, so it cannot be {what}", url=self.name)


def _abandon(sink: Sink, owner: Owner, unpublished: Unpublished) -> None:
    """A stream is collected, or the program ends, and it was neither published nor discarded."""
    if owner.is_here():
        sink.discard()
        unpublished.report()


def check_target(url: str) -> None:
    """Refuse a URL that can never be written to.

    Nothing is opened, and no store is asked.

    Raises:
        UsageError: http, or no such protocol.
        MissingExtraError: a library is not installed.
    """
    function_of(url, "open_sink")
    check = offered(url, "check")
    if check is not None:
        check(url)


def open_publish(
    url: str | os.PathLike[str] | BinaryIO,
    *,
    compression: str | bool | None = "auto",
    sync: bool = True,
    if_absent: bool = False,
) -> PublishStream:
    """Open a stream that is published all or nothing.

    A local file is written under a temporary name beside the final one, ``.NAME.tarkit-RANDOM``,
    which is locked meanwhile; those of runs that were killed are removed. Its folder is made if
    there is none. Standard output, devices and named pipes are written to as they are. A command is
    killed on discard. S3 and GCS are uploaded in parts, a few at a time, and finish at commit; for
    other filesystems the bytes wait in a local temporary file.

    Args:
        url: a local path or file://, ``-``, ``pipe:COMMAND``, or whatever fsspec writes to; or a
            binary file object, which is flushed at commit and not closed.
        compression: gz, zst, bz2, xz, lz4 or zlib; True is gz; None and False are none; "auto" goes
            by the name (none for ``-``, commands and file objects).
        sync: whether commit waits until a local file and its name are on the disk.
        if_absent: publish only if nothing is under the name, now and at commit. Of several writers
            one wins; the others get the error, and change nothing. Local disks, S3 and GCS decide
            it in one step; filesystems without hard links and other stores are looked at right
            before.

    Raises:
        AlreadyPublishedError: with ``if_absent``, something is there (also raised by commit).
        StreamError: it cannot be written.
        UsageError: no such protocol or codec, http, a.
        terminal. MissingExtraError: a library is not installed.
    """
    if if_absent and (not isinstance(url, (str, os.PathLike)) or is_stream(str(url))):
        raise UsageError("a stream has no name that could be absent: if_absent is for files and objects")
    if isinstance(url, str):
        name = display_name(url)
        path = local_path(url)
        codec = write_compression(compression, "" if is_stream(url) else path or url.partition("?")[0])
        sink: Sink = function_of(url, "open_sink")(url, name, if_absent=if_absent, sync=sync)
    elif isinstance(url, os.PathLike):
        name = os.fspath(url)
        codec = write_compression(compression, name)
        sink = open_file_sink(name, name, sync, if_absent)
    else:
        name = name_of_file(url)
        codec = write_compression(compression, "")
        sink = BorrowedSink(url, name)
    return PublishStream(sink, name, codec)


class FileWriter(WholeOutput):
    """A writer of one file, of whatever format.

    Arguments: those of :func:`open_publish`.
    """

    _unit = "record"
    """What is counted, for the line that reports a writer that was never closed."""
    _room = 0
    """Bytes that a writer still gathers before it writes. Below 0, as when the file has ended: it
    writes at once, which a stream that has ended refuses.
    """

    def __init__(
        self,
        target: str | os.PathLike[str] | BinaryIO,
        compression: str | bool | None = "auto",
        *,
        if_absent: bool = False,
    ) -> None:
        self._out = open_publish(target, compression=compression, if_absent=if_absent)
        self._written = self._out.unpublished
        self._written.unit = self._unit

    @property
    def name(self) -> str:
        """The target as it may be shown."""
        return self._out.name

    @property
    def records(self) -> int:
        """How many were written."""
        return self._written.count

    @property
    def closed(self) -> bool:
        """Whether the file was published or discarded, or writing it has failed."""
        return self._out.closed

    def close(self) -> None:
        """Write what was gathered, and publish the file.

        Again: nothing.
        """
        try:
            if not self._out.closed:
                self._write_rest()
            self._out.close()
        finally:
            self._room = -1

    def discard(self) -> None:
        """Publish nothing.

        After close, or again: nothing.
        """
        self._out.discard()
        self._room = -1

    def _write_rest(self) -> None:
        """What the format has at its end, and what was gathered before."""
