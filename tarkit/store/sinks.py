"""Write bytes on this machine: to files, descriptors, and file objects of the caller."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import re
import select
import stat
import termios
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO, NoReturn

from tarkit.errors import AlreadyPublishedError, OutputClosedError, StreamError, UsageError, printable
from tarkit.store.place import Sink
from tarkit.store.temporary import close_locked, create_temporary, raise_delayed

_DESCRIPTOR = re.compile(r"/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/(\d+)")
_LIKE_A_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]+:/(?!/)")
_NO_HARD_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)
_WRITE_BACK = 32 << 20
_PIECE = 1 << 20
_Bytes = bytes | bytearray | memoryview


def raise_write_error(error: OSError, name: str, what: str = "") -> NoReturn:
    """Raise the error of this package for an error of the system."""
    reason = (error.strerror or str(error)).lower()
    raise StreamError(f"{what}: {reason}" if what else reason, url=name) from None


class DescriptorSink:
    """A sink that writes directly: to standard output, a device, a named pipe.

    Written bytes cannot be withdrawn. Only the reader of standard output may close it early; all
    bytes of a named pipe must be read.
    """

    def __init__(self, fd: int, name: str, is_stdout: bool = False) -> None:
        self._fd = fd
        self._name = name
        self._is_stdout = is_stdout

    def write(self, data: _Bytes) -> None:
        try:
            write_all(self._fd, data)
        except BrokenPipeError:
            if self._is_stdout:
                raise OutputClosedError from None
            self._raise_closed()
        except OSError as error:
            raise_write_error(error, self._name)

    def commit(self) -> None:
        # Bytes that fit into the pipe are written even if they are never read.
        if not self._is_stdout and _is_read_by_others(self._fd) and wait_until_read(self._fd):
            self._raise_closed()
        fd, self._fd = self._fd, -1
        try:
            os.close(fd)
        except OSError as error:
            raise_write_error(error, self._name)

    def discard(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.close(fd)

    def _raise_closed(self) -> NoReturn:
        raise StreamError("its reader closed it before the end", url=self._name) from None


def _is_read_by_others(fd: int) -> bool:
    """Return True for a pipe with readers of its own.

    A pipe that is open to read and write keeps its bytes itself.
    """
    return stat.S_ISFIFO(os.fstat(fd).st_mode) and fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY


def wait_until_read(pipe: int) -> int:
    """Wait until a pipe is read empty, or all of its readers have closed it.

    Returns:
        Number of bytes that were not read.
    """
    poll = select.poll()
    poll.register(pipe, 0)
    pause = 1.0
    # Without a mask, poll reports only the error that the last reader has closed its end.
    while _bytes_in(pipe) and not poll.poll(pause):
        pause = min(100.0, pause * 2)
    # Counted again: a reader may read the rest and end during the poll.
    return _bytes_in(pipe)


def _bytes_in(pipe: int) -> int:
    """Return the number of bytes in a pipe that were not read; 0 if the system does not know it."""
    count = array.array("i", [0])
    try:
        fcntl.ioctl(pipe, termios.FIONREAD, count)
    except OSError:
        return 0
    return count[0]


def open_stdout(fd: int = 1, name: str = "-") -> DescriptorSink:
    """Open a copy of standard output, or of another descriptor.

    Raises:
        UsageError: the descriptor is a terminal.
        StreamError: the descriptor is closed.
    """
    try:
        copy = os.dup(fd)
    except OSError as error:
        raise_write_error(error, name, "standard output cannot be written")
    if os.isatty(copy):
        os.close(copy)
        raise UsageError("a tar is not written to a terminal; redirect the output, or name a file")
    return DescriptorSink(copy, name, is_stdout=fd == 1)


def open_file_sink(path: str, name: str, sync: bool, if_absent: bool) -> Sink:
    """Open a file that appears under ``path`` at commit; its folder is made if it is missing.

    A device or a named pipe is written to directly.

    Raises:
        StreamError: the folder cannot be made or written to, or ``path`` is a folder.
        AlreadyPublishedError: ``if_absent`` is True, and the file exists.
    """
    if match := _DESCRIPTOR.fullmatch(path):
        # Opened a second time, the file would have its own position, and overwrite earlier output.
        return open_stdout(int(match[2]) if match[2] else 1 if match[1] == "stdout" else 2, name)
    try:
        status = None
        with suppress(FileNotFoundError):
            status = os.stat(path)
        if path.endswith("/") or not path or (status and stat.S_ISDIR(status.st_mode)):
            raise StreamError("is a directory; the name of a file is needed", url=name)
        if status and not stat.S_ISREG(status.st_mode):
            return DescriptorSink(os.open(path, os.O_WRONLY), name)
        if status and if_absent:
            raise AlreadyPublishedError("already exists", url=name)
        target = os.path.realpath(path)
        make_folder(os.path.dirname(target), name)
        return FileSink(target, name, sync, stat.S_IMODE(status.st_mode) if status else None, if_absent)
    except (StreamError, AlreadyPublishedError):
        raise
    except OSError as error:
        raise_write_error(error, name)


def make_folder(folder: str, name: str) -> None:
    """Make a local folder and its parents, unless it exists, for an output named ``name``.

    Raises:
        StreamError: the folder cannot be created.
        UsageError: the name seems to be a mistyped URL.
    """
    if os.path.isdir(folder):
        # Checked here for each published file, because makedirs would try to make the folder each
        # time.
        return
    if _LIKE_A_URL.match(name):
        raise UsageError(
            f"{printable(name)} is a local path, and its folder is missing; a URL has two slashes behind the colon; "
            "for a folder of this name put ./ before it"
        )
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise_write_error(error, name, f"the folder {printable(folder)} cannot be made")


class FileSink:
    """A temporary file that gets its final name at commit.

    It is locked while it is open, so that every process can distinguish it from a file whose writer
    died.
    """

    def __init__(self, target: str, name: str, sync: bool, mode: int | None, if_absent: bool) -> None:
        self._if_absent = if_absent
        self._target = target
        self._name = name
        self._sync = sync
        self._folder, base = os.path.split(target)
        self._fd, self._temporary = create_temporary(self._folder, base)
        self._written = self._started = 0
        self._kernel_copies = hasattr(os, "copy_file_range")
        if mode is not None:
            os.fchmod(self._fd, mode)

    def write(self, data: _Bytes) -> None:
        try:
            write_all(self._fd, data)
            self._count(len(data))
        except OSError as error:
            raise_write_error(error, self._name)

    def copy(self, file: int, position: int, count: int) -> int:
        """Write bytes of an open file, which stay in the kernel if it can do that.

        Args:
            file: descriptor of the file.
            position: offset of the first byte.
            count: number of bytes.

        Returns:
            Number of bytes that were written, at least 1; 0 if the file has no more.

        Raises:
            StreamError: the disk is full, or the like.
            OSError: the file cannot be read.
        """
        done = 0
        if self._kernel_copies:
            try:
                done = os.copy_file_range(file, self._fd, min(count, _WRITE_BACK), position)
            except OSError:
                # Of two file systems, or a full disk: the write below reports that.
                self._kernel_copies = False
        if done:
            self._count(done)
            return done
        data = os.pread(file, min(count, _PIECE), position)
        self.write(data)
        return len(data)

    def _count(self, written: int) -> None:
        self._written += written
        if self._sync and self._written - self._started >= _WRITE_BACK:
            self._start_write_back()

    def _start_write_back(self) -> None:
        # The disk then works while the program does, and little is left for fsync: Linux answers
        # this advice by starting to write dirty pages. Pages that are not written yet stay in
        # memory for the next reader.
        if hasattr(os, "posix_fadvise"):
            length = self._written - self._started
            os.posix_fadvise(self._fd, self._started, length, os.POSIX_FADV_DONTNEED)
        self._started = self._written

    def commit(self) -> None:
        try:
            if self._sync:
                os.fsync(self._fd)
            raise_delayed(self._fd)
            if self._if_absent:
                self._link()
            else:
                os.replace(self._temporary, self._target)
            fd, self._fd = self._fd, -1
            close_locked(fd, self._temporary)
            if self._sync:
                self._sync_folder()
        except FileExistsError:
            raise AlreadyPublishedError("already exists", url=self._name) from None
        except OSError as error:
            raise_write_error(error, self._name)

    def _link(self) -> None:
        """Publish the file under its final name, unless the name exists.

        A hard link does so in one step.
        """
        try:
            os.link(self._temporary, self._target)
        except OSError as error:
            if error.errno not in _NO_HARD_LINKS:
                raise
            if os.path.lexists(self._target):
                raise FileExistsError from None
            os.replace(self._temporary, self._target)
        else:
            os.unlink(self._temporary)

    def _sync_folder(self) -> None:
        fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(fd)
        except OSError as error:
            # Some network file systems cannot do this for folders, and need not.
            if error.errno not in (errno.EINVAL, errno.ENOTSUP):
                raise
        finally:
            os.close(fd)

    def discard(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                os.unlink(self._temporary)
            close_locked(fd, self._temporary)


def write_all(fd: int, data: _Bytes) -> None:
    """Write all of ``data`` to a descriptor, in as many calls as it takes."""
    done = os.write(fd, data)
    if done < len(data) or isinstance(data, memoryview):
        view = memoryview(data).cast("B")
        while done < len(view):
            done += os.write(fd, view[done:])


class BorrowedSink:
    """A file object of the caller: written to and flushed, but not closed."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def write(self, data: _Bytes) -> None:
        rest = bytes(data)
        with self._errors():
            while rest:
                # An object that returns no number has written everything, like many that are only
                # similar to files.
                done = self._file.write(rest)
                rest = rest[done:] if isinstance(done, int) else b""

    def commit(self) -> None:
        with self._errors():
            if hasattr(self._file, "flush"):
                self._file.flush()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except TypeError as error:
            raise UsageError(f"{self._name}: the file object does not take bytes ({error})") from None
        except (BrokenPipeError, StreamError):
            raise
        except OSError as error:
            raise_write_error(error, self._name)

    def discard(self) -> None:
        """Do nothing: written bytes belong to the caller."""
