"""Reading whatever fsspec reaches, resumed by opening the file anew at the place of the drop."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from tarkit.errors import StreamError
from tarkit.store.checksums import Checksum, from_info
from tarkit.store.objects.filesystem import raise_dropped, translated
from tarkit.store.resume import Body, ReportedOrigin

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


class FsspecBody(Body):
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

    def close(self) -> None:
        with suppress(Exception):  # Nothing was written, so nothing can be lost.
            self._file.close()


class FsspecOrigin(ReportedOrigin):
    """One file, identified by the marks that its filesystem gives: size, ETag, version, times."""

    def __init__(self, fs: Any, path: str, url: str, name: str) -> None:
        super().__init__(name)
        self._fs = fs
        self._path = path
        self._url = url

    def open_at(self, offset: int) -> Body:
        file = None
        try:
            file = self._fs.open(self._path, "rb")
            if offset or file.tell():
                file.seek(offset)
        except Exception as error:
            if file is not None:
                with suppress(Exception):
                    file.close()
            raise_dropped(error, self._url, self.name, offset if offset else None)
        return FsspecBody(file, self._url, self.name, offset)

    def report(self) -> tuple[dict[str, Any], Checksum | None]:
        # The store is asked, not a cache.
        self._fs.invalidate_cache(self._path)
        info = translated(self._url, self.name, self._fs.info, self._path)
        if info.get("type") == "directory":
            raise StreamError("is a directory, not a file", url=self.name)
        return info_marks(info), from_info(info)
