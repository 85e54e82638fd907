"""Where bytes come from: one small reader for each kind of source, all with read, close and size.

``read(n)`` gives at most n bytes, and b"" only when the source was read to its verified end.
Compression is not known here.
"""

from __future__ import annotations

import errno
import io
import os
import re
import stat
import urllib.parse
from typing import BinaryIO, NoReturn, Protocol

from tarkit.errors import MissingInputError, StreamError, UsageError, printable
from tarkit.redaction import redact

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*(://|::.*://)", re.DOTALL)


class RawReader(Protocol):
    """What every kind of source gives. ``size``: length in bytes, None if it is not known."""

    @property
    def size(self) -> int | None: ...
    def read(self, count: int, /) -> bytes: ...
    def close(self) -> None: ...


def is_url(text: str) -> bool:
    """Whether this is scheme://…, or fsspec's chain of such (scheme::scheme://…), and not a path."""
    return _URL.match(text) is not None


def display_name(url: str) -> str:
    """A URL as it may be shown, see :func:`tarkit.redaction.redact`."""
    return redact(url)


def local_path(url: str) -> str | None:
    """The path, if ``url`` is a path, file:// or local:// URL; None for every other URL.

    In file:// URLs %XX stands for a byte, unless a file has just this name.

    Raises:
        UsageError: file:// with a host.
    """
    if not is_url(url):
        if "\0" in url:
            raise UsageError(f"{printable(url)!r} is not a path: it has a zero byte")
        return url
    scheme, _, rest = url.partition("://")
    if scheme.lower() not in ("file", "local"):
        return None
    if rest.startswith("localhost/"):
        rest = rest[len("localhost") :]
    if not rest.startswith("/"):
        raise UsageError(f"{printable(url)!r} names a host; a local file is file:///path, with three slashes")
    if "%" in rest and not os.path.lexists(rest):
        rest = os.fsdecode(urllib.parse.unquote_to_bytes(os.fsencode(rest)))
    return rest


class FileReader:
    """A file descriptor: of a file, of stdin, of a named pipe."""

    def __init__(self, file: io.FileIO) -> None:
        self.file = file
        status = os.fstat(file.fileno())
        # Only what is a regular file can be read at an offset without being consumed.
        self.seekable = stat.S_ISREG(status.st_mode)
        self._start = file.tell() if self.seekable else 0
        self.size = max(0, status.st_size - self._start) if self.seekable else None

    @property
    def position(self) -> int:
        """Bytes that were read; only where the file is seekable."""
        return self.file.tell() - self._start if self.seekable else 0

    def read(self, count: int) -> bytes:
        return self.file.read(count) or b""

    def close(self) -> None:
        self.file.close()


def open_file(path: str, name: str) -> FileReader:
    """A local file.

    Raises:
        MissingInputError, StreamError: as the system says.
    """
    try:
        # An int, so that a "file" of /dev/fd is not opened twice.
        return FileReader(io.FileIO(path, "r"))
    except OSError as error:
        raise_os_error(error, name)


def open_stdin(name: str) -> FileReader:
    """A copy of standard input, so that closing it does no harm.

    Raises:
        StreamError: standard input is closed.
    """
    try:
        return FileReader(io.FileIO(os.dup(0), "r"))
    except OSError as error:
        raise StreamError(f"standard input can not be read: {error.strerror}", url=name) from None


def raise_os_error(error: OSError, name: str) -> NoReturn:
    """The error of this package for one of the system."""
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        raise MissingInputError("there is no such file", url=name) from None
    if error.errno == errno.EISDIR:
        raise StreamError("is a directory, not a file", url=name) from None
    raise StreamError((error.strerror or str(error)).lower(), url=name) from None


class BorrowedReader:
    """Someone else's file object: read, but not closed."""

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
        """Nothing: whoever opened it closes it."""
