"""Some bytes out of the middle of a file or object, without reading what is before them."""

from __future__ import annotations

import os

from tarkit.errors import DataError
from tarkit.store.hdfs.files import HdfsOrigin, connect, is_hdfs
from tarkit.store.http.read import HttpOrigin
from tarkit.store.objects.filesystem import ask, filesystem
from tarkit.store.resume import Body, Origin, ResumingReader
from tarkit.store.retry import DEFAULT_RETRY, Dropped, Retry
from tarkit.store.sources import RawReader, display_name, local_path, open_file

_SKIP = 1 << 20


def read_range(url: str, start: int, stop: int, *, size: int, retry: Retry = DEFAULT_RETRY) -> bytes:
    """Bytes ``start`` to ``stop``, not counting the latter, of what has ``size`` bytes in all.

    Raises:
        DataError: it has another length. MissingInputError: there is no such file.
        StreamError, TemporaryStreamError: it can not be read.
    """
    if start >= stop:
        return b""
    name = display_name(url)
    path = local_path(url)
    if path is not None:
        return _of_file(path, name, start, stop, size)
    if is_hdfs(url):
        cluster, inner = connect(url, retry)
        return _part_of(HdfsOrigin(cluster.client, inner), name, start, stop, size, retry)
    if url.lower().startswith(("http://", "https://")):
        return _of_http(url, name, start, stop, size, retry)
    return _of_fsspec(url, name, start, stop, size, retry)


def _check(found: int | None, size: int, name: str) -> None:
    if found is not None and found != size:
        raise DataError(f"has {found} bytes, but had {size} when its parts were planned", url=name)


def _of_file(path: str, name: str, start: int, stop: int, size: int) -> bytes:
    reader = open_file(path, name)
    try:
        _check(os.fstat(reader.file.fileno()).st_size, size, name)
        reader.file.seek(start)
        return _all_of(reader, stop - start)
    finally:
        reader.close()


def _of_http(url: str, name: str, start: int, stop: int, size: int, retry: Retry) -> bytes:
    origin = HttpOrigin(url, name, retry)
    # The first answer, whose body is not waited for, says which object this is.
    whole = ResumingReader(origin, name, retry)
    try:
        _check(origin.size, size, name)
        if origin.tag is None:
            # Nothing could tell that a second answer is about the same object: it is read from its beginning.
            while start > 0 and (data := whole.read(min(start, _SKIP))):
                start, stop = start - len(data), stop - len(data)
            return _all_of(whole, stop - start)
    finally:
        whole.close()
    return _part_of(origin, name, start, stop, size, retry)


def _of_fsspec(url: str, name: str, start: int, stop: int, size: int, retry: Retry) -> bytes:
    fs, inner = filesystem(url, name)

    def some() -> bytes:
        # Opened files of fsspec read far ahead; this asks for these bytes and no more.
        fs.invalidate_cache(inner)
        _check(fs.info(inner).get("size"), size, name)
        data = bytes(fs.cat_file(inner, start=start, end=stop))
        if len(data) != stop - start:
            raise Dropped(f"{len(data)} bytes came, but {stop - start} were asked for")
        return data

    return ask(some, url=url, name=name, retry=retry)


def _part_of(origin: Origin, name: str, start: int, stop: int, size: int, retry: Retry) -> bytes:
    reader = ResumingReader(_Part(origin, name, start, stop, size), name, retry)
    try:
        return _all_of(reader, stop - start)
    finally:
        reader.close()


def _all_of(reader: RawReader, count: int) -> bytes:
    """``count`` bytes, fewer only at the end."""
    pieces = []
    while count > 0 and (data := reader.read(min(count, _SKIP))):
        pieces.append(data)
        count -= len(data)
    return b"".join(pieces)


class _Part:
    """A part of an object, as if it were one: a :class:`tarkit.store.resume.Origin` over another."""

    def __init__(self, origin: Origin, name: str, start: int, stop: int, size: int) -> None:
        self.size = stop - start
        self._origin = origin
        self._name = name
        self._start = start
        self._whole = size

    def open(self, offset: int) -> Body:
        body = self._origin.open(self._start + offset)
        try:
            _check(self._origin.size, self._whole, self._name)
        except BaseException:
            body.close()
            raise
        return body

    def delivered(self, data: bytes) -> None:
        """A checksum would be of the whole object."""

    def at_end(self, body: Body, offset: int) -> bool:
        if offset < self.size:
            raise Dropped(f"{offset} bytes came, but {self.size} were asked for")
        return True
