"""Read a part of a file at any place of the store as a file of its own, by few small requests.

Decoders of audio and video read the beginning of their file, seek, and read on from there.
"""

from __future__ import annotations

import io

from tarkit.errors import DataError, printable
from tarkit.names.url import display_name, local_path
from tarkit.store.entries import Identity
from tarkit.store.packedfile import PackedFile
from tarkit.store.rangedfile import RangedFile
from tarkit.store.seekablefile import SeekableFile

_LOCAL, _REMOTE = 16 << 10, 64 << 10
"""Smallest size of one read in bytes: of a local file, and of one request."""
_BUFFER = 8 << 10


class _FilePart(SeekableFile):
    """The bytes of a file between two offsets, as a file.

    Two blocks are kept: the one at the beginning, which has the header, and the last one.

    Args:
        file: the whole file.
        start: offset where the part begins, in bytes.
        size: size of the part in bytes.
        least: smallest size of one read in bytes.
        name: name of the part, for errors.
    """

    def __init__(self, file: RangedFile | PackedFile, start: int, size: int, least: int, name: str) -> None:
        super().__init__(size)
        self._file, self._start, self._least, self.name = file, start, least, name
        self._first = b""
        self._block, self._block_at = b"", 0

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if (at := offset + (0, self._at, self._stop)[whence]) < 0:
            raise ValueError(f"{at} is before the beginning")
        return super().seek(offset, whence)

    def bytes_between(self, begin: int, end: int) -> bytes:
        if data := self._first[begin:end]:
            return data
        at = begin - self._block_at
        if not 0 <= at < len(self._block):
            last = min(self._stop, max(end, begin + self._least))
            self._block = self._file.bytes_between(self._start + begin, self._start + last)
            self._block_at, at = begin, 0
            if not begin:
                self._first = self._block
        return self._block[at : at + end - begin]


def open_part(url: str, start: int, size: int, *, known: Identity, member: str = "") -> io.BufferedReader:
    """Open a part of a file as a seekable file; only the bytes that are needed are read.

    No descriptor stays open between reads.

    Args:
        url: path or URL of the file.
        start: offset where the part begins, in bytes.
        size: size of the part in bytes; it must be in the file.
        known: identity that the file must have. A file that is replaced later is an error of the
            read that detects it.
        member: name of the part, which the file's ``name`` has after the URL.

    Raises:
        DataError: the file has a different identity.
        MissingInputError: the file does not exist.
        UsageError: the place cannot read ranges.
        StreamError: the file cannot be read.
        TemporaryStreamError: the file cannot be read now.
    """
    file = RangedFile(url, start + size, least=0)
    if file.identity != known:
        raise DataError("was replaced since its identity was read", url=display_name(url))
    return part_of_file(file, start, size, member)


def part_of_file(file: RangedFile | PackedFile, start: int, size: int, member: str = "") -> io.BufferedReader:
    """Return a part of an open file as a seekable file; see :func:`open_part`.

    Args:
        file: the file, which other parts may use at the same time.
        start: offset where the part begins, in bytes; in a compressed file, of its content.
        size: size of the part in bytes; it must be in the file.
        member: name of the part.
    """
    least = _REMOTE if local_path(file.url) is None else _LOCAL
    shown = display_name(file.url)
    name = f"{shown}, member {printable(member)!r}" if member else shown
    return io.BufferedReader(_FilePart(file, start, size, least, name), _BUFFER)
