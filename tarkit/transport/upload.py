"""Bytes to the stores that fsspec reaches, all or nothing."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from typing import Any

from tarkit.errors import AlreadyPublishedError, StreamError, TemporaryStreamError
from tarkit.transport.gcsstore import GcsStore
from tarkit.transport.objectsink import ObjectSink, ObjectStore
from tarkit.transport.parts import Backoff
from tarkit.transport.remote import filesystem, raise_foreign
from tarkit.transport.s3store import S3Store
from tarkit.transport.sinks import Sink, raise_write_error

_S3 = ("s3", "s3a")
_GCS = ("gs", "gcs")


def open_upload(url: str, name: str, if_absent: bool = False, backoff: Backoff | None = None) -> Sink:
    """A file of an fsspec filesystem that appears at commit.

    S3 and GCS upload in parts while the writer goes on. The other filesystems have no such thing, or
    one that publishes at once, so there the bytes wait in a local temporary file.

    Args:
        if_absent: publish only where nothing is. S3 and GCS decide that themselves at commit. For
            other filesystems we look when opening and right before the upload, so two writers that
            finish at the same moment may both believe that they were first; the file is whole.

    Raises:
        AlreadyPublishedError: ``if_absent``, and something is there. StreamError,
        TemporaryStreamError, UsageError, MissingExtraError: it can not be written.
    """
    fs, path = filesystem(url, name)
    scheme = url.split("://", 1)[0].lower()
    # Chained URLs (simplecache::s3://…) give other filesystems, which know no parts.
    if (scheme in _S3 and hasattr(fs, "_call_s3")) or (scheme in _GCS and hasattr(fs, "_call")):
        kind = S3Store if scheme in _S3 else GcsStore
        store: ObjectStore = kind(fs, path, os.urandom(16).hex(), if_absent)
        return ObjectSink(store, fs.loop, url, name, if_absent, backoff or Backoff())
    return SpoolSink(fs, path, url, name, if_absent)


class SpoolSink:
    """Bytes that wait in a local temporary file until commit uploads them, under another name first.

    Whether the move to the final name is one step is the filesystem's affair; before it, all bytes are there.
    """

    def __init__(self, fs: Any, path: str, url: str, name: str, if_absent: bool) -> None:
        self._fs = fs
        self._path = path
        self._url = url
        self._name = name
        self._if_absent = if_absent
        self._size = 0
        self._refuse_if_there()
        self._spool: Any = tempfile.NamedTemporaryFile(prefix="tarkit-")  # noqa: SIM115

    def _refuse_if_there(self) -> None:
        if self._if_absent and self._foreign(self._fs.exists, self._path):
            raise AlreadyPublishedError("is there already", url=self._name)

    def _foreign(self, function: Any, *args: Any) -> Any:
        try:
            return function(*args)
        except Exception as error:
            if isinstance(error, FileNotFoundError):
                raise StreamError("the bucket or folder does not exist", url=self._name) from None
            raise_foreign(error, self._url, self._name, None)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._size += len(data)
        try:
            self._spool.write(data)
        except OSError as error:
            raise_write_error(error, self._name, f"temporary file {self._spool.name}")

    def commit(self) -> None:
        try:
            self._spool.flush()
        except OSError as error:
            raise_write_error(error, self._name, f"temporary file {self._spool.name}")
        self._refuse_if_there()
        folder, slash, base = self._path.rpartition("/")
        temporary = f"{folder}{slash}.{base}.tarkit-{os.urandom(4).hex()}"
        try:
            self._foreign(self._fs.put_file, self._spool.name, temporary)
            size = self._foreign(self._fs.info, temporary).get("size")
            if size is not None and size != self._size:
                raise TemporaryStreamError(f"{self._size} bytes were sent, but {size} arrived", url=self._name)
            self._foreign(self._fs.mv, temporary, self._path)
        except BaseException:
            with suppress(Exception):
                self._fs.rm_file(temporary)
            raise
        self._spool.close()

    def discard(self) -> None:
        with suppress(OSError):
            self._spool.close()
