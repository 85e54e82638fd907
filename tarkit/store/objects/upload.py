"""Bytes to the stores that fsspec reaches, all or nothing."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from tarkit.errors import AlreadyPublishedError, MissingInputError, StreamError, TemporaryStreamError
from tarkit.store import waits
from tarkit.store.objects.filesystem import ask, filesystem
from tarkit.store.objects.gcs import GcsStore
from tarkit.store.objects.s3 import S3Store
from tarkit.store.objects.sink import ObjectSink, ObjectStore
from tarkit.store.retry import DEFAULT_RETRY, Dropped, Retry
from tarkit.store.sinks import Sink, raise_write_error

T = TypeVar("T")
_S3 = ("s3", "s3a")
_GCS = ("gs", "gcs")


def open_upload(url: str, name: str, if_absent: bool = False, retry: Retry = DEFAULT_RETRY) -> Sink:
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
        return ObjectSink(store, fs.loop, url, name, if_absent, retry)
    return SpoolSink(fs, path, url, name, if_absent, retry)


class SpoolSink:
    """Bytes that wait in a local temporary file until commit uploads them, under another name first.

    Whether the move to the final name is one step is the filesystem's affair; before it, all bytes are there.
    """

    def __init__(self, fs: Any, path: str, url: str, name: str, if_absent: bool, retry: Retry) -> None:
        self._fs = fs
        self._path = path
        self._url = url
        self._name = name
        self._if_absent = if_absent
        self._retry = retry
        self._size = 0
        self._refuse_if_there()
        self._spool: Any = tempfile.NamedTemporaryFile(prefix="tarkit-")  # noqa: SIM115

    def _refuse_if_there(self) -> None:
        if self._if_absent and self._ask(self._fs.exists, self._path):
            raise AlreadyPublishedError("is there already", url=self._name)

    def _ask(self, function: Callable[..., T], *arguments: Any) -> T:
        return ask(function, *arguments, url=self._url, name=self._name, retry=self._retry)

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
            self._ask(self._upload, temporary)
            self._ask(self._move, temporary)
        except MissingInputError:
            self._remove(temporary)
            raise StreamError("the bucket or folder does not exist", url=self._name) from None
        except BaseException:
            self._remove(temporary)
            raise
        self._spool.close()

    def _upload(self, temporary: str) -> None:
        self._fs.put_file(self._spool.name, temporary)
        self._check(temporary)

    def _move(self, temporary: str) -> None:
        try:
            self._fs.mv(temporary, self._path)
        except FileNotFoundError:
            # An earlier attempt may have moved it, and its answer be lost.
            if self._fs.exists(temporary):
                raise
        self._fs.invalidate_cache()
        self._check(self._path)

    def _check(self, path: str) -> None:
        try:
            size = self._fs.info(path).get("size")
        except FileNotFoundError:
            raise Dropped(f"{self._size} bytes were sent, but nothing is there") from None
        if size is not None and size != self._size:
            raise TemporaryStreamError(f"{self._size} bytes were sent, but {size} arrived", url=self._name)

    def _remove(self, temporary: str) -> None:
        with waits.cleaning_up() as seconds, suppress(Exception):
            waits.call(self._fs.rm_file, temporary, seconds=seconds)

    def discard(self) -> None:
        with suppress(OSError):
            self._spool.close()
