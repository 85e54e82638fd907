"""Bytes to the stores that fsspec reaches, all or nothing."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from typing import Any

from tarkit.errors import StreamError, TemporaryStreamError
from tarkit.remote import filesystem, raise_foreign
from tarkit.sinks import raise_write_error

_ATOMIC = ("s3", "s3a", "gs", "gcs")


class UploadSink:
    """A file of an fsspec filesystem.

    S3 and GCS upload in parts and finish at commit. The other filesystems have no such thing, or
    one that publishes at once, so there the bytes wait in a local temporary file.
    """

    def __init__(self, url: str, name: str) -> None:
        self._url = url
        self._name = name
        self._fs, self._path = filesystem(url, name)
        self._parts: Any = None
        self._spool: Any = None
        self._size = 0
        if url.split("://", 1)[0] in _ATOMIC:
            self._parts = self._foreign(self._fs.open, self._path, "wb", autocommit=False)
        else:
            self._spool = tempfile.NamedTemporaryFile(prefix="tarkit-")  # noqa: SIM115

    def _foreign(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            if isinstance(error, FileNotFoundError):
                raise StreamError("the bucket or folder does not exist", url=self._name) from None
            raise_foreign(error, self._url, self._name, None)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._size += len(data)
        if self._parts is not None:
            self._foreign(self._parts.write, data)
            return
        try:
            self._spool.write(data)
        except OSError as error:
            raise_write_error(error, self._name, f"temporary file {self._spool.name}")

    def commit(self) -> None:
        if self._parts is not None:
            self._foreign(self._parts.close)
            self._foreign(self._parts.commit)
            return
        try:
            self._spool.flush()
        except OSError as error:
            raise_write_error(error, self._name, f"temporary file {self._spool.name}")
        self._foreign(self._fs.put_file, self._spool.name, self._path)
        self._verify()
        self._spool.close()

    def _verify(self) -> None:
        size = self._foreign(self._fs.info, self._path).get("size")
        if size is not None and size != self._size:
            raise TemporaryStreamError(f"{self._size} bytes were sent, but {size} arrived", url=self._name)

    def discard(self) -> None:
        if self._parts is not None:
            # An upload that can not be aborted is not published either.
            with suppress(Exception):
                self._parts.discard()
        else:
            with suppress(OSError):
                self._spool.close()
