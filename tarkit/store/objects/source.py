"""Read objects by range requests, and compare each answer with its request.

It is used for stores that tarkit knows. A proxy, a cache or a faulty server may answer a GET with a
page of its own, other bytes, another object or a compressed body, even if its answer to HEAD was
right. Such an answer is a failed attempt. Flipped bits in an answer that fits are found at the end,
by the checksum of the whole object, if the store has one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from email.message import Message
from typing import Any

from tarkit.errors import StreamError, quoted
from tarkit.store.checksums import Checksum, from_info
from tarkit.store.faults import answered_status
from tarkit.store.http.answer import content_range, status_text
from tarkit.store.objects.filesystem import raise_dropped, translated
from tarkit.store.place import Identity
from tarkit.store.resume import Body, ReportedOrigin
from tarkit.store.retry import DEFAULT_RETRY, Dropped, Patience

_FIRST_REQUEST = 4 << 20
_LARGEST_REQUEST = 32 << 20


def message_of(headers: Mapping[str, str]) -> Message:
    """Return the headers of an answer, with names that ignore case."""
    message = Message()
    for name, value in headers.items():
        message[name] = value
    return message


class ObjectSource:
    """One object of a store that is read.

    Its coroutines run in the event loop of the file system.

    Attributes:
        library_has: an attribute of the file system of the supported library.
        mark: (header, value) that identifies the content in answers; known after ``describe``.
        marked: True if each answer must have that header.
        encoding: Content-Encoding with which the object was stored; its bytes are read as they are
            stored. Known after ``describe``.
        size: size in bytes; known after ``describe``.
    """

    library_has: str
    marked = True

    def __init__(self, fs: Any, path: str) -> None:
        self.fs = fs
        self.path = path
        self.bucket, self.key, self.version = fs.split_path(path)
        self.mark: tuple[str, str] = ("", "")
        self.encoding: str | None = None
        self.size = 0

    async def describe(self) -> dict[str, Any]:
        """Return the ``info()`` of the file, from the store."""
        info: dict[str, Any] = await self.fs._info(self.path)
        return info

    def checksum(self, info: Mapping[str, Any]) -> Checksum | None:
        """Return the checksum of the whole object, if the store has one.

        Args:
            info: result of ``describe``.
        """
        return from_info(info)

    async def fetch(self, start: int, stop: int) -> bytes:
        """Read bytes from ``start`` up to, not including, ``stop``.

        Raises:
            Dropped: an answer does not fit the request.
        """
        raise NotImplementedError

    def check(self, status: int, headers: Mapping[str, str], start: int, stop: int) -> None:
        """Compare the answer to a range request with the request.

        Raises:
            Dropped: the answer does not match the request.
        """
        answer = message_of(headers)
        if status != 206:
            raise Dropped(f"{status_text(status)} to a range request; expected 206")
        if content_range(answer) != (start, stop, self.size):
            asked = f"expected bytes {start}-{stop - 1}/{self.size}"
            raise Dropped(
                f"the store answers with the Content-Range {quoted(answer.get('Content-Range', ''))}; {asked}"
            )
        length = answer.get("Content-Length", str(stop - start)).strip()
        if length != str(stop - start):
            raise Dropped(f"the store answers with {quoted(length)} bytes, but {stop - start} were asked for")
        encoding = answer.get("Content-Encoding", "identity").strip().lower() or "identity"
        if encoding not in ("identity", (self.encoding or "identity").strip().lower()):
            raise Dropped(f"the store answers in a Content-Encoding that the object does not have, {quoted(encoding)}")
        name, value = self.mark
        found = answer.get(name, "" if self.marked else value).strip()
        if found.strip('"') != value.strip('"'):
            raise Dropped(f"the store answers about another object: its {name} is {quoted(found)}, not {quoted(value)}")


class SourceBody(Body):
    """An object from an offset on, read in pieces that grow up to 32 MiB."""

    def __init__(self, origin: SourceOrigin, offset: int, stop: int, step: int) -> None:
        self._origin = origin
        self._offset = offset
        self._stop = stop
        self._step = step
        self._fetched = memoryview(b"")

    def read(self, count: int) -> bytes:
        if not self._fetched and self._offset < self._stop:
            stop = min(self._stop, self._offset + self._step)
            self._fetched = memoryview(self._origin.fetch(self._offset, stop))
            self._step = min(2 * self._step, _LARGEST_REQUEST)
        data, self._fetched = bytes(self._fetched[:count]), self._fetched[count:]
        self._offset += len(data)
        return data


class SourceOrigin(ReportedOrigin):
    """One object of a store that tarkit knows.

    Args:
        name: URL for messages.
        stop: offset where the wanted part ends; None: all of it.
    """

    def __init__(self, source: ObjectSource, url: str, name: str, stop: int | None = None) -> None:
        super().__init__(name)
        self._source = source
        self._url = url
        self._stop = stop

    def _run(self, work: Any, *arguments: Any) -> Any:
        import fsspec.asyn

        return fsspec.asyn.sync(self._source.fs.loop, work, *arguments)

    def report(self) -> tuple[dict[str, Any], Checksum | None]:
        # The request goes to the store, not to a cache.
        self._source.fs.invalidate_cache(self._source.path)
        info = translated(self._url, self.name, self._run, self._source.describe)
        if info.get("type") == "directory":
            raise StreamError("is a directory, not a file", url=self.name)
        return info_marks(info), self._source.checksum(info)

    def open_at(self, offset: int) -> Body:
        if self._stop is None:
            return SourceBody(self, offset, self._source.size, _FIRST_REQUEST)
        return SourceBody(self, offset, min(self._stop, self._source.size), _LARGEST_REQUEST)

    def fetch(self, start: int, stop: int) -> bytes:
        """Read bytes of the object; its identity must be as reported.

        Raises:
            Dropped: a retry may help.
            StreamError: the object was changed or removed, or cannot be read.
        """
        try:
            data: bytes = self._run(self._source.fetch, start, stop)
        except Exception as error:
            gone = isinstance(error, FileNotFoundError) or answered_status(error) == 404
            if gone or answered_status(error) in (412, 416):
                self._changed("it was removed" if gone else "the store does not have it in that state", start)
            raise_dropped(error, self._url, self.name, start)
        if len(data) != stop - start:
            raise Dropped(f"{len(data)} bytes came, but {stop - start} were asked for")
        return data


class SourceRanges:
    """Ranges of an object of a store that tarkit knows, by one request each.

    Args:
        name: URL for messages.

    Raises:
        MissingInputError: the object does not exist.
        StreamError, TemporaryStreamError: the store does not say what it is.
    """

    def __init__(self, source: ObjectSource, url: str, name: str) -> None:
        self._origin = SourceOrigin(source, url, name)
        marks, _ = Patience(DEFAULT_RETRY, name).call(self._origin.report)
        self.identity = identity_of_info(marks)

    def read(self, start: int, stop: int) -> bytes | None:
        """Return bytes from ``start`` up to ``stop``; None if the answer is not of this object."""
        try:
            return self._origin.fetch(start, stop)
        except (Dropped, StreamError):
            return None


def identity_of_info(info: Mapping[str, Any]) -> Identity:
    """Return the size in the ``info()`` of a file, and a digest of the values that identify it.

    The digest is None if the store reports only the size.
    """
    marks, size = info_marks(info), info.get("size")
    text = json.dumps(marks, sort_keys=True, default=str)
    tag = hashlib.sha256(text.encode()).hexdigest()[:32] if marks.keys() - {"size"} else None
    return Identity(size if isinstance(size, int) else None, tag)


# Names in the results of file systems' info() whose values change with the content.
_MARKS = (
    *("size", "ETag", "etag", "VersionId", "version_id", "generation", "md5Hash", "crc32c", "content_md5"),
    *("mtime", "LastModified", "last_modified", "updated", "modified", "modificationTime", "modification_time"),
    *("created", "fileId", "file_id", "ino", "blob_id"),
)


def info_marks(info: Mapping[str, Any]) -> dict[str, Any]:
    """Select the values in the ``info()`` of a file that identify its content.

    They are size, ETag, version and times.
    """
    return {mark: info[mark] for mark in _MARKS if info.get(mark) is not None}
