"""Keep the content of a field that is too large for memory in a file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from tarkit.errors import StreamError, TemporaryStreamError

LARGE = 32 * 1024 * 1024
"""Size in bytes above which fields of whole samples are kept in files."""

PIECE = 1024 * 1024
TOO_MANY_FILES = (errno.EMFILE, errno.ENFILE)
"""Errors of the system that do not depend on a disk or a file."""
_ZEROS = bytes(PIECE)


class _Descriptor:
    """An open file, closed with the last field that is in it.

    Attributes:
        number: its descriptor.
        end: offset where the next field may be written, in bytes.
    """

    __slots__ = ("end", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.end = 0

    def __del__(self) -> None:
        # The file is removed with this, so an error of its disk loses nothing.
        with suppress(OSError):
            os.close(self.number)


class FieldFile:
    """A stand-in for a field's bytes in a sample; its ``len()`` is their number.

    The file has no name, or may lose it: it exists as long as this object does. Several fields can
    share one file.

    Args:
        size: size of the content in bytes.
        start: offset of the content in the file, in bytes.
        url: source of the content, for errors.
        member: member in that source, for errors.
    """

    __slots__ = ("_file", "_mtime", "_size", "_start", "member", "url")

    def __init__(
        self, file: _Descriptor, size: int, *, start: int = 0, url: str | None = None, member: str | None = None
    ) -> None:
        self._file = file
        self._start = start
        self._size = size
        self._mtime: int | None = None
        self.url = url
        self.member = member

    @classmethod
    def keep(
        cls,
        pieces: Iterable[bytes],
        folder: str | None = None,
        *,
        after: FieldFile | None = None,
        url: str | None = None,
        member: str | None = None,
    ) -> FieldFile:
        """Write pieces to a file without a name.

        Args:
            folder: folder for the file; None: that of the system (``$TMPDIR``).
            after: the last kept field of the same sample; its file is used, because the number of
                open files of a process is limited.
            url: source of the content, for errors.
            member: member in that source, for errors.

        Raises:
            StreamError: the file cannot be written.
        """
        # Loaded only here: with all it loads, it would be a tenth of the start of a program.
        import tempfile

        folder = folder or tempfile.gettempdir()
        if after is not None:
            file = after._file
        else:
            try:
                with tempfile.TemporaryFile(dir=folder, buffering=0) as unnamed:
                    file = _Descriptor(os.dup(unnamed.fileno()))
            except OSError as error:
                raise _write_error(error, folder, url, member) from None
        start = file.end
        for piece in pieces:
            try:
                file.end += write_piece(file.number, piece, file.end)
            except OSError as error:
                raise _write_error(error, folder, url, member) from None
        os.ftruncate(file.number, file.end)
        return cls(file, file.end - start, start=start, url=url, member=member)

    @classmethod
    def at(cls, path: str) -> FieldFile:
        """Use a file of the user, which must not change until all of it was read."""
        return cls.opened(os.open(path, os.O_RDONLY | os.O_CLOEXEC), path, watched=True)

    @classmethod
    def opened(cls, descriptor: int, name: str, *, start: int = 0, watched: bool = False) -> FieldFile:
        """Use the content of an open file, of its present length.

        The file is closed with the last field in it.

        Args:
            name: path or URL for errors.
            start: offset of the content in the file, in bytes.
            watched: True if the file must not change until all of it was read.
        """
        file, status = _Descriptor(descriptor), os.fstat(descriptor)
        found = cls(file, max(0, status.st_size - start), start=start, url=name)
        found._mtime = status.st_mtime_ns if watched else None
        return found

    def part(self, start: int, size: int, member: str | None = None) -> FieldFile:
        """Return a part of the content, in the same file.

        Args:
            start: offset of its first byte in the content.
            size: size in bytes.
            member: name of the member that it is, for errors.
        """
        part = FieldFile(self._file, size, start=self._start + start, url=self.url, member=member)
        part._mtime = self._mtime
        return part

    @property
    def is_kept(self) -> bool:
        """True if the content was written to its file by :meth:`keep`, so that more fits there."""
        return self._file.end > 0

    def __len__(self) -> int:
        return self._size

    def pieces(self) -> Iterator[bytes]:
        """Yield the content in pieces of at most 1 MiB.

        It can be read again.

        Raises:
            StreamError: the file cannot be read, or is shorter than it was.
            TemporaryStreamError: the file was written to since it was opened with :meth:`at`.
        """
        piece = b""

        def read(file: int, position: int, count: int) -> int:
            nonlocal piece
            piece = os.pread(file, min(PIECE, count), position)
            return len(piece)

        for _ in self._taken(read):
            yield piece

    def copy_to(self, copy: Callable[[int, int, int], int]) -> None:
        """Have the content copied without reading it here.

        Args:
            copy: function of the open file, an offset in it and a number of bytes, which returns
                how many of them it copied.

        Raises:
            StreamError: the file is shorter than it was; and errors of :meth:`pieces`.
        """
        for _ in self._taken(copy):
            pass

    def _taken(self, take: Callable[[int, int, int], int]) -> Iterator[None]:
        """Call a function for the content from front to back; it returns the bytes that it took."""
        position, end = self._start, self._start + self._size
        while position < end:
            try:
                taken = take(self._file.number, position, end - position)
            except StreamError:
                raise
            except OSError as error:
                raise StreamError(f"cannot be read: {error.strerror}", url=self.url, member=self.member) from None
            if not taken:
                reason = f"the file was cut while it was read: {end - position} of {self._size} bytes are missing"
                raise StreamError(reason, url=self.url, member=self.member)
            position += taken
            yield
        if self._mtime not in (None, os.fstat(self._file.number).st_mtime_ns):
            raise TemporaryStreamError("the file was changed while it was read", url=self.url, member=self.member)

    def read(self) -> bytes:
        """Read the content as a whole."""
        return b"".join(self.pieces())

    def write_to(self, file: int) -> None:
        """Write the content to an open file that is empty."""
        position = 0
        for piece in self.pieces():
            position += write_piece(file, piece, position)
        os.ftruncate(file, position)


class SampleRoom:
    """The memory of one sample: decides which fields are kept in memory, and which in a file.

    Args:
        limit: total size in bytes of the fields in memory.
        folder: folder for the file; None: that of the system (``$TMPDIR``).
    """

    def __init__(self, limit: int = 2 * LARGE, folder: str | None = None) -> None:
        self._room = limit
        self._folder = folder
        self._file: FieldFile | None = None

    def hold(self, content: bytes | FieldFile) -> bytes | FieldFile:
        """Return the content itself, or a file of it if the limit of the sample is reached."""
        if isinstance(content, FieldFile):
            return content
        self._room -= len(content)
        if self._room >= 0:
            return content
        self._file = FieldFile.keep([content], self._folder, after=self._file)
        return self._file


def write_piece(file: int, piece: bytes, position: int) -> int:
    """Write all of a piece to an open file, and return its length.

    The caller sets the file's length at the end. 1 MiB of zeros becomes a hole: a few bytes of a
    compressed shard can stand for gigabytes of zeros.
    """
    # A comparison with zeros ends at the first difference; nothing else in Python is as fast.
    is_hole = len(piece) <= PIECE and piece == (_ZEROS if len(piece) == PIECE else _ZEROS[: len(piece)])
    written = len(piece) if is_hole else 0
    while written < len(piece):
        written += os.pwrite(file, memoryview(piece)[written:], position + written)
    return len(piece)


def _write_error(error: OSError, place: str, url: str | None, member: str | None) -> StreamError:
    reason = f"content too large for memory cannot be kept in {place}: {error.strerror}"
    return StreamError(reason, url=url, member=member, hint=scratch_hint(error))


def scratch_hint(error: OSError) -> str:
    """Return a hint for a temporary file that cannot be written."""
    if error.errno in TOO_MANY_FILES:
        return "raise the limit of open files (ulimit -n)"
    return "set TMPDIR to a folder on a disk with room"
