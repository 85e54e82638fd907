"""Files on HDFS that are published all or nothing."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from tarkit.errors import AlreadyPublishedError, LocatedError, MissingInputError, StreamError, TemporaryStreamError
from tarkit.store import waits
from tarkit.store.hdfs.client import Hdfs, Status, Writer
from tarkit.store.retry import Dropped, Patience
from tarkit.store.temporary import temporary_name


class HdfsSink:
    """A file under a temporary name, ``.NAME.tarkit-RANDOM``, that is renamed at commit, over an older one."""

    def __init__(self, cluster: Hdfs, path: str, if_absent: bool) -> None:
        self._cluster = cluster
        self._client = cluster.client
        self._path = path
        self._name = self._client.shown(path)
        self._if_absent = if_absent
        self._written = 0
        folder, base = posixpath.split(path)
        there = cluster.status(path)
        if not base or (there and there.is_folder):
            raise StreamError("is a directory; the name of a file is needed", url=self._name)
        if there and if_absent:
            raise AlreadyPublishedError("is there already", url=self._name)
        self._temporary = posixpath.join(folder, temporary_name(base))
        self._file: Writer | None = None
        try:
            self._file = cluster.patiently(path, lambda: self._client.create(self._temporary))
        except BaseException as error:
            self.discard()
            if isinstance(error, LocatedError):
                error.url = self._name
            raise

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._written += memoryview(data).nbytes
        self._once(lambda file: file.write(data))

    def _once(self, call: Callable[[Writer], None]) -> None:
        # What was sent is gone from memory, so it cannot be sent again from here.
        if self._file is None:
            raise StreamError("writing this file has failed already", url=self._name)
        try:
            waits.call(call, self._file)
        except Dropped as drop:
            reason = f"{drop.reason}; nothing was published"
            raise TemporaryStreamError(reason, url=self._name, offset=self._written) from None
        except LocatedError as error:
            error.url = self._name
            raise

    def commit(self) -> None:
        self._once(lambda file: file.close())
        done = self._cluster.status(self._temporary)
        size = None if done is None else done.size
        if done is None or size != self._written:
            found = "nothing is there" if done is None else f"{size} arrived"
            raise TemporaryStreamError(f"{self._written} bytes were sent, but {found}", url=self._name)
        self._cluster.patiently(self._path, lambda: self._rename(done))
        self._cluster.patiently(self._path, lambda: self._verify(done))

    def _verify(self, done: Status) -> None:
        """The file has its name. Another one may have replaced it since; it was whole all the same."""
        there: Status | None = None
        with suppress(MissingInputError):
            there = self._client.status(self._path)
            if _content_of(there) == _content_of(done):
                return
        try:
            self._client.status(self._temporary)
        except MissingInputError:
            if there is None:
                raise Dropped("the server renamed the finished file, but nothing is under this name") from None
        else:
            raise StreamError("the server did not rename the finished file to this name", url=self._name)

    def _rename(self, done: Status) -> None:
        try:
            self._client.rename(self._temporary, self._path, not self._if_absent)
        except MissingInputError:
            # An earlier attempt may have succeeded though its answer was lost.
            with suppress(MissingInputError):
                there = self._client.status(self._path)
                if _content_of(there) == _content_of(done):
                    return
            raise StreamError("the finished file is gone, before it got this name", url=self._name) from None
        except AlreadyPublishedError:
            if self._if_absent:
                raise
            raise StreamError("something is in the way of the finished file's name", url=self._name) from None

    def discard(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.abort()
        # The earlier error is the one that counts; the name of what is left shows what it is.
        with waits.cleaning_up() as seconds, suppress(LocatedError):
            brief = Patience(replace(self._cluster.retry, deadline=seconds), self._name)
            brief.call(self._client.delete, self._temporary, False)


def _content_of(status: Status) -> tuple[int, int, int]:
    return status.number, status.size, status.mtime
