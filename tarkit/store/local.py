"""Read, publish, list and remove files of this machine; read file objects of the caller."""

from __future__ import annotations

import errno
import glob as patterns
import io
import os
import stat as modes
from collections.abc import Iterator
from contextlib import suppress
from typing import NoReturn

from tarkit.errors import MissingInputError, StreamError, TemporaryStreamError, printable
from tarkit.names.url import is_url, local_path
from tarkit.store.forks import Owner
from tarkit.store.place import Entry, Identity, Sink
from tarkit.store.resume import check_size, read_up_to
from tarkit.store.retry import Retry
from tarkit.store.sinks import open_file_sink
from tarkit.store.trees import remove_tree

_READ_AGAIN = "read it again when nothing writes to it"


class FileReader:
    """A reader of a file descriptor: of a file, of stdin, of a named pipe.

    Args:
        path: path of a regular file, which must be the same at its end as when it was opened, also
            under this path. None: it must not become shorter; another program may still append to
            it.
        name: path or URL for messages.

    Attributes:
        position: number of bytes that were read; a seekable file is read from there on.
    """

    def __init__(self, file: io.FileIO, path: str | None = None, name: str = "") -> None:
        self.file = file
        self.name = name
        status = os.fstat(file.fileno())
        # Only a regular file can be read at an offset without being consumed.
        self.seekable = modes.S_ISREG(status.st_mode)
        self._start = file.tell() if self.seekable else 0
        self.size = max(0, status.st_size - self._start) if self.seekable else None
        # Absolute, because the program may change its folder meanwhile.
        self._path = os.path.abspath(path) if path is not None and self.seekable else None
        self._content = _content_of(status)
        self.may_be_replaced = False
        self.position = 0
        self._descriptor = file.fileno()
        self._owner = Owner()

    def read(self, count: int) -> bytes:
        # This process and those forked from it would read the same.
        self._owner.check(self.name)
        if self.seekable:
            data = os.pread(self._descriptor, count, self._start + self.position)
        else:
            data = self.file.read(count) or b""
        self.position += len(data)
        if not data:
            self.check_unchanged()
        return data

    def read_exactly(self, held: int, count: int) -> bytes | None:
        """Read ``count`` bytes of a seekable file into an object of their own, and go to their end.

        None if the file has fewer; the position stays then.

        Args:
            held: number of these bytes that are before the position.
            count: number of bytes.
        """
        begin = self.position - held
        data = os.pread(self._descriptor, count, self._start + begin)
        if len(data) < count:
            return None
        self.position = begin + count
        return data

    @property
    def watched(self) -> bool:
        """True if the file must not change until it is read."""
        return self._path is not None

    def check_unchanged(self) -> None:
        """Check that the file is still as it was when it was opened.

        A file that was removed counts as unchanged.

        Raises:
            TemporaryStreamError: the file was written to; or its path is that of another file now,
                unless ``may_be_replaced``.
        """
        if not self.seekable:
            return
        now = _content_of(os.fstat(self.file.fileno()))
        if now[0] < self._content[0] or (self._path is not None and now != self._content):
            reason = "the file was changed while it was read"
            if now[0] != self._content[0]:
                reason += f": it had {self._content[0]} bytes, and has {now[0]} now"
            raise TemporaryStreamError(reason, url=self.name, hint=_READ_AGAIN)
        if self._path is not None and not self.may_be_replaced:
            with suppress(OSError):
                now = _content_of(os.stat(self._path))
            if now != self._content:
                raise TemporaryStreamError("the file was replaced while it was read", url=self.name, hint=_READ_AGAIN)

    def close(self) -> None:
        if self.seekable and self._path is None and not self.file.closed and self._owner.is_here():
            # The next program of a script shares the open file, and continues here.
            self.file.seek(self._start + self.position)
        self.file.close()
        self._descriptor = -1


def _content_of(status: os.stat_result) -> tuple[int, int]:
    """Return values that change when the content of a file does.

    The inode is not one of them, because some network file systems invent a new one.
    """
    return status.st_size, status.st_mtime_ns


def _path(url: str) -> str:
    return local_path(url) or ""


def open_read(url: str, name: str, retry: Retry) -> FileReader:
    """Open a file to read.

    Raises:
        MissingInputError: the file does not exist.
        StreamError: the file cannot be opened.
    """
    return open_path(_path(url), name)


def open_path(path: str, name: str) -> FileReader:
    """Open a path to read, even if it looks like a URL."""
    try:
        # An int, so that a "file" of /dev/fd is not opened twice.
        return FileReader(io.FileIO(path, "r"), path, name)
    except OSError as error:
        _raise_os_error(error, name)


def _raise_os_error(error: OSError, name: str) -> NoReturn:
    """Raise the error of this package for an error of the system."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        raise MissingInputError("no such file", url=name) from None
    if error.errno == errno.EISDIR:
        raise StreamError("is a directory, not a file", url=name) from None
    raise StreamError((error.strerror or str(error)).lower(), url=name) from None


def open_sink(url: str, name: str, *, if_absent: bool, sync: bool) -> Sink:
    """Open a file to write; see :func:`tarkit.store.sinks.open_file_sink`."""
    return open_file_sink(_path(url), name, sync, if_absent)


def stat(url: str) -> Entry:
    """Return the entry of a file or folder; links are followed."""
    return _entry(_path(url), url.rstrip("/").rpartition("/")[2])


def _status(path: str) -> os.stat_result:
    try:
        return os.stat(path)
    except OSError as error:
        _raise_os_error(error, path)


def _entry(path: str, name: str) -> Entry:
    status = _status(path)
    folder = modes.S_ISDIR(status.st_mode)
    return Entry(path, name, folder, None if folder else status.st_size, status.st_mtime, None)


def entries(url: str, recursive: bool) -> Iterator[Entry]:
    """Yield the entries of a folder.

    A link to a folder is an entry, and is not followed.
    """
    return _entries(_path(url), "", recursive)


def _entries(folder: str, below: str, recursive: bool) -> Iterator[Entry]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        _raise_os_error(error, folder)
    for name in names:
        path, relative = os.path.join(folder, name), os.path.join(below, name)
        try:
            entry = _entry(path, relative)
        except MissingInputError:
            # A link to a missing file is an entry as well; opening it is an error.
            entry = Entry(path, relative, False, None, None, None)
        if recursive and entry.is_folder and not os.path.islink(path):
            yield from _entries(path, relative, True)
        else:
            yield entry


def remove(url: str, name: str, is_folder: bool) -> None:
    """Remove a file, a link or a folder.

    Raises:
        MissingInputError: the path does not exist.
        StreamError: the path cannot be removed, or has a mount point in it; mounted files stay.
    """
    path = _path(url)
    try:
        remove_tree(path) if is_folder else os.unlink(path)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise StreamError(f"{printable(error.filename)} is a mount point; unmount it first", url=name) from None
        _raise_os_error(error, name)


def identify(url: str) -> Identity:
    """Return the size and time of change of a file."""
    path = _path(url)
    status = _status(path)
    if modes.S_ISDIR(status.st_mode):
        raise StreamError("is a directory, not a shard", url=path)
    return identity_of_status(status)


def identity_of_status(status: os.stat_result) -> Identity:
    """Return the identity of a file with this status."""
    return Identity(status.st_size, f"mtime-{status.st_mtime_ns}")


def glob(url: str) -> list[str]:
    """Return the files that a pattern matches, sorted."""
    found = sorted(patterns.glob(_path(url), recursive=True))
    return [f"file://{path}" for path in found] if is_url(url) else found


def read_range(url: str, name: str, start: int, stop: int, size: int, retry: Retry) -> bytes:
    """Read a range of a file."""
    reader = open_path(_path(url), name)
    try:
        check_size(os.fstat(reader.file.fileno()).st_size, size, name)
        reader.position = start
        return read_up_to(reader, stop - start)
    finally:
        reader.close()
