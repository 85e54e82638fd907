"""Reading whatever fsspec reaches, resumed by opening the file anew at the place of the drop."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from tarkit.errors import StreamError
from tarkit.store.checksums import Checksum, from_info
from tarkit.store.objects.filesystem import raise_dropped, raise_foreign
from tarkit.store.resume import Body
from tarkit.store.retry import Dropped

# What the filesystems' info() calls that which is another when the content is another.
_MARKS = (
    "size",
    "ETag",
    "etag",
    "VersionId",
    "version_id",
    "generation",
    "md5Hash",
    "crc32c",
    "content_md5",
    "mtime",
    "LastModified",
    "last_modified",
    "updated",
    "modified",
    "modificationTime",
    "modification_time",
    "created",
    "fileId",
    "file_id",
    "ino",
)


def info_marks(info: Mapping[str, Any]) -> dict[str, Any]:
    """What in the ``info()`` of a file tells its content from another: size, ETag, version, times."""
    return {mark: info[mark] for mark in _MARKS if info.get(mark) is not None}


class FsspecBody:
    """An open file, from the place on at which it stands."""

    def __init__(self, file: Any, url: str, name: str, offset: int) -> None:
        self._file = file
        self._url = url
        self._name = name
        self._offset = offset

    def read(self, count: int) -> bytes:
        try:
            data = bytes(self._file.read(count))
        except Exception as error:
            self._raise(error)
        self._offset += len(data)
        return data

    def _raise(self, error: Exception) -> NoReturn:
        if type(error).__name__ == "FileExpired":
            # s3fs and fsspec: the file under this name is not the one that was opened.
            reason = "the object was changed while it was read"
            raise StreamError(reason, url=self._name, offset=self._offset) from None
        raise_dropped(error, self._url, self._name, self._offset)

    def interrupt(self) -> None:
        """Not possible: the call that is under way returns when its library gives up."""

    def close(self) -> None:
        with suppress(Exception):  # Nothing was written, so nothing can be lost.
            self._file.close()


class FsspecOrigin:
    """One file, told from its successors by the marks that its filesystem gives: size, ETag, version, times."""

    def __init__(self, fs: Any, path: str, url: str, name: str) -> None:
        self.size: int | None = None
        self._fs = fs
        self._path = path
        self._url = url
        self._name = name
        self._marks: dict[str, Any] | None = None
        self._checksum: Checksum | None = None

    def open(self, offset: int) -> Body:
        self._look(offset)
        file = None
        try:
            file = self._fs.open(self._path, "rb")
            if offset or file.tell():
                file.seek(offset)
        except Exception as error:
            if file is not None:
                with suppress(Exception):
                    file.close()
            raise_dropped(error, self._url, self._name, offset if offset else None)
        return FsspecBody(file, self._url, self._name, offset)

    def _look(self, offset: int) -> None:
        """Ask the store, not a cache, which object this is; the same one as at first?"""
        try:
            self._fs.invalidate_cache(self._path)
            info = self._fs.info(self._path)
        except FileNotFoundError as error:
            if self._marks is None:
                raise_foreign(error, self._url, self._name, None)
            self._changed("it is gone", offset)
        except Exception as error:
            raise_dropped(error, self._url, self._name, offset if self._marks is not None else None)
        if info.get("type") == "directory":
            raise StreamError("is a directory, not a file", url=self._name)
        marks = info_marks(info)
        if self._marks is None:
            self._marks = marks
            size = marks.get("size")
            self.size = size if isinstance(size, int) else None
            self._checksum = from_info(info)
        elif marks != self._marks:
            differing = [mark for mark in _MARKS if marks.get(mark) != self._marks.get(mark)]
            self._changed(f"its {' and '.join(differing[:2])} is another", offset)

    def _changed(self, how: str, offset: int) -> NoReturn:
        raise StreamError(f"the object was changed while it was read: {how}", url=self._name, offset=offset) from None

    def delivered(self, data: bytes) -> None:
        if self._checksum is not None:
            self._checksum.update(data)

    def at_end(self, body: Body, offset: int) -> bool:
        self._look(offset)
        if self.size is not None and offset < self.size:
            raise Dropped(f"{offset} bytes came, but the object has {self.size}")
        problem = self._checksum.problem() if self._checksum is not None else None
        if self.size is not None and offset > self.size:
            problem = f"{offset} bytes came, but the object has {self.size}"
        if problem:
            raise StreamError(problem, url=self._name, offset=offset)
        return True
