"""Open streams for writing that are published all or nothing."""

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
from tarkit.store.fieldfile import FieldFile
from tarkit.store.forks import Owner
from tarkit.store.place import Sink
from tarkit.store.registry import function_of, offered
from tarkit.store.sinks import BorrowedSink, FileSink, open_file_sink

if TYPE_CHECKING:
    from typing_extensions import Self

_BUFFER = 1 << 19


class WholeOutput(ABC):
    """An output that is published whole or not at all.

    It is published on a clean exit from a ``with`` block, and not after an exception in it.
    """

    @abstractmethod
    def close(self) -> None:
        """Publish the output.

        A second call does nothing.

        Raises:
            StreamError: the output was not published.
            TemporaryStreamError: the output was not published, and a retry may help.
            OutputClosedError: the reader of standard output has closed it.
            AlreadyPublishedError: the name exists already.
        """

    @abstractmethod
    def discard(self) -> None:
        """Publish nothing.

        After close, or a second time, it does nothing.
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
    """The part of a forgotten stream that is not published.

    Attributes:
        count: number of records written so far.
        unit: name of a record, such as sample; for the message.
    """

    __slots__ = ("count", "name", "unit")

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.unit: str | None = None

    def report(self) -> None:
        """Write a line to stderr, and issue a warning, which Python shows only if it is enabled."""
        what = "it" if self.unit is None else counted(self.count, self.unit)
        are = "is" if self.unit is None or self.count == 1 else "are"
        message = f"{printable(self.name)}: its writer was never closed, so {what} {are} not published"
        if sys.stderr is not None:
            with suppress(OSError, ValueError):
                sys.stderr.write(f"tarkit: {message}; call close() or discard(), or write in a with block\n")
        warnings.warn(message, ResourceWarning, stacklevel=2)


class PublishStream(WholeOutput):
    """A stream of bytes to write.

    The final name does not exist before ``commit``, and never after ``discard``. A stream that is
    garbage-collected before is discarded, with a warning. A process that was forked meanwhile can
    neither write to it nor publish it, and its discard does nothing.

    Args:
        sink: the sink that publishes.
        name: URL for messages.
        codec: name of the compression, or None.

    Attributes:
        bytes_written: number of bytes before compression.
        bytes_sent: number of bytes after compression.
        digest: a hash that the caller sets before the first write; it is updated with all bytes
            that are sent.
        unpublished: count of records, for writers of formats.
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
        """True if the stream was committed or discarded, or has failed."""
        return self._outcome is not None

    def write(self, data: bytes | bytearray | memoryview | FieldFile) -> int:
        """Write all of ``data``, and return its length in bytes.

        Args:
            data: the bytes, or those of a file, which stay in the kernel if a local file is written
                without compression and digest.

        Raises:
            StreamError: the disk is full, the command ended, and so on; the stream is discarded.
            OutputClosedError: the reader of standard output has closed it.
            BrokenPipeError: the reader of a file object has closed it.
        """
        if self._outcome is not None:
            self._refuse("written to")
        if isinstance(data, FieldFile):
            return self._write_file(data)
        if not isinstance(data, (bytes, bytearray)):
            view = memoryview(data)
            data = view.cast("B") if view.c_contiguous else view.tobytes()
        size = len(data)
        self.bytes_written += size
        if self._compressor is not None:
            data = self._compressor.compress(data if isinstance(data, bytes) else bytes(data))
        # Small pieces are collected; a large one is sent without a copy.
        if len(data) < _BUFFER:
            self._buffer += data
            if len(self._buffer) >= _BUFFER:
                self._send(b"")
        else:
            self._send(data)
        return size

    def _write_file(self, content: FieldFile) -> int:
        if self._compressor is not None or self.digest is not None or not isinstance(self._sink, FileSink):
            return sum(map(self.write, content.pieces()))
        self._send(b"")
        try:
            content.copy_to(self._sink.copy)
        except BaseException as error:
            self.fail(error)
            raise
        self.bytes_written += len(content)
        self.bytes_sent += len(content)
        return len(content)

    def commit(self) -> None:
        """Publish the data.

        A second call does nothing.

        Raises:
            StreamError: the data was not published, and no part of it is left.
            TemporaryStreamError: the data was not published, and a retry may help.
            OutputClosedError: the reader of standard output has closed it.
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
        """Discard the data.

        After commit, or a second time, it does nothing.
        """
        if self._outcome is None:
            self._end("discarded")
            self._discard_own()

    def fail(self, error: BaseException) -> None:
        """Discard the data because of an error, which every later call raises again.

        After commit or discard it does nothing.
        """
        if self._outcome is None:
            self._end(error)
            self._discard_own()

    def close(self) -> None:
        """Commit, unless the stream was committed or discarded.

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
        # A forked child has a copy of the stream; the file and the command belong to its parent.
        if self._owner.is_here():
            self._sink.discard()

    def _refuse(self, what: str) -> None:
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        raise StreamError(f"the stream was {self._outcome}, so it cannot be {what}", url=self.name)


def _abandon(sink: Sink, owner: Owner, unpublished: Unpublished) -> None:
    """Discard and report a stream that is garbage-collected, or open at the end of the program."""
    if owner.is_here():
        sink.discard()
        unpublished.report()


def check_target(url: str) -> None:
    """Check that a URL can be written to.

    Nothing is opened, and no request is sent to a store.

    Args:
        url: path or URL of an output.

    Raises:
        UsageError: the URL is http, or its protocol is not known.
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
    which is locked meanwhile; those of killed runs are removed. Its folder is made if it is
    missing. Standard output, devices and named pipes are written to directly. A command is killed
    on discard. S3 and GCS are uploaded in parts, a few at a time, and finish at commit; for other
    file systems the bytes wait in a local temporary file.

    Args:
        url: a local path or file://, ``-``, ``pipe:COMMAND``, or any URL that fsspec can write to;
            or a binary file object, which is flushed at commit and not closed.
        compression: gz, zst, bz2, xz, lz4 or zlib; True is gz; None and False are none; "auto": by
            the name (none for ``-``, commands and file objects).
        sync: True if commit waits until a local file and its name are on the disk.
        if_absent: True to publish only if the name does not exist, now and at commit. Of several
            writers one succeeds; the other writers get the error, and change nothing. Local disks,
            S3 and GCS decide it in one step; file systems without hard links and other stores are
            checked right before.

    Raises:
        AlreadyPublishedError: with ``if_absent``, the name exists (also raised by commit).
        StreamError: the target cannot be written.
        UsageError: the protocol or codec is not known, the URL is http, or the output is a
            terminal.
        MissingExtraError: a library is not installed.
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
    """A writer of one file, of any format.

    Args:
        target: a path, a URL, or a binary file object, as for :func:`open_publish`.
        compression: codec, as for :func:`open_publish`.
        if_absent: True to publish only if the name does not exist.
    """

    _unit = "record"
    """The unit of ``records``, for the message about a writer that was never closed."""
    _room = 0
    """Number of bytes that a writer still collects before it writes.

    Below 0, also after the end of the file, it writes at once; a stream that has ended then raises
    an error.
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
        """Target for messages, without secrets."""
        return self._out.name

    @property
    def records(self) -> int:
        """Number of records written."""
        return self._written.count

    @property
    def closed(self) -> bool:
        """True if the file was published or discarded, or writing has failed."""
        return self._out.closed

    def close(self) -> None:
        """Write the rest, and publish the file.

        A second call does nothing.
        """
        try:
            if not self._out.closed:
                self._write_rest()
            self._out.close()
        finally:
            self._room = -1

    def discard(self) -> None:
        """Publish nothing.

        After close, or a second time, it does nothing.
        """
        self._out.discard()
        self._room = -1

    def _write_rest(self) -> None:
        """Write the collected records, and the end of the format."""
