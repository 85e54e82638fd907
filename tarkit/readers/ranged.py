"""Bytes of a file from an offset on, wherever it is, without what is before it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tarkit.errors import LocatedError
from tarkit.store.compression import SNIFF_BYTES, sniff
from tarkit.store.rangedfile import BLOCK, RangedFile
from tarkit.store.read import open_read


def is_compressed(url: str) -> bool:
    """Whether its first bytes are those of a compression, so that its records have no offsets of their own."""
    with open_read(url, compression=None) as stream:
        return sniff(stream.read(SNIFF_BYTES)) is not None


@contextmanager
def offsets_from(base: int, url: str) -> Iterator[None]:
    """Errors within it tell offsets in the whole file, of which what is read begins at ``base``."""
    try:
        yield
    except LocatedError as error:
        error.url = url
        if error.offset is not None:
            error.offset += base
        raise


def blocks_from(url: str, offset: int) -> Iterator[bytes]:
    """What a file has from an offset on, decompressed, in pieces. offset: of a file that is not compressed, or 0."""
    if offset:
        file = RangedFile(url)
        file.seek(offset)
        yield from iter(lambda: file.read(BLOCK), b"")
    else:
        with open_read(url) as stream:
            yield from iter(lambda: stream.read(1 << 20), b"")
