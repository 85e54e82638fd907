"""Write to stores without uploads in parts, all or nothing: the bytes wait in a local file."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from tarkit.errors import AlreadyPublishedError, MissingInputError, StreamError, TemporaryStreamError
from tarkit.store import waits
from tarkit.store.objects.filesystem import ask
from tarkit.store.objects.sink import UNDER_WAY, seconds_to_send
from tarkit.store.retry import Dropped, Retry
from tarkit.store.sinks import raise_write_error
from tarkit.store.temporary import temporary_name

T = TypeVar("T")


class SpoolSink:
    """A sink that keeps its bytes in a local temporary file until commit uploads them.

    They are uploaded under a temporary name first. The file system decides if the move to the final
    name is one step; before it, all bytes are in the store.
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
        self._spool: Any = tempfile.NamedTemporaryFile(prefix="tarkit-")

    def _refuse_if_there(self) -> None:
        if self._if_absent and self._ask(self._fs.exists, self._path):
            raise AlreadyPublishedError("already exists", url=self._name)

    def _ask(self, function: Callable[..., T], *arguments: Any, seconds: float = 0.0) -> T:
        return ask(function, *arguments, url=self._url, name=self._name, retry=self._retry, seconds=seconds)

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
        temporary = f"{folder}{slash}{temporary_name(base)}"
        UNDER_WAY[self] = self._size
        try:
            # If a move is a copy within the store, it also takes longer for more bytes.
            self._ask(self._upload, temporary, seconds=seconds_to_send())
            self._ask(self._move, temporary, seconds=seconds_to_send())
        except MissingInputError:
            self._remove(temporary)
            raise StreamError("the bucket or folder does not exist", url=self._name) from None
        except BaseException:
            self._remove(temporary)
            raise
        finally:
            del UNDER_WAY[self]
        with suppress(OSError):
            self._spool.close()

    def _upload(self, temporary: str) -> None:
        self._fs.put_file(self._spool.name, temporary)
        self._check(temporary)

    def _move(self, temporary: str) -> None:
        try:
            self._fs.mv(temporary, self._path)
        except FileNotFoundError:
            # An earlier attempt may have moved it without an answer.
            if self._fs.exists(temporary):
                raise
        self._fs.invalidate_cache()
        self._check(self._path)

    def _check(self, path: str) -> None:
        try:
            size = self._fs.info(path).get("size")
        except FileNotFoundError:
            raise Dropped(f"{self._size} bytes were sent, but no file exists") from None
        if size is not None and size != self._size:
            raise TemporaryStreamError(f"{self._size} bytes were sent, but {size} arrived", url=self._name)

    def _remove(self, temporary: str) -> None:
        with waits.cleaning_up() as seconds, suppress(Exception):
            waits.call(self._fs.rm_file, temporary, seconds=seconds)

    def discard(self) -> None:
        with suppress(OSError):
            self._spool.close()
