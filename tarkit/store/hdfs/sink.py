"""Files on HDFS that are published all or nothing."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from tarkit.errors import AlreadyPublishedError, LocatedError, MissingInputError, StreamError, TemporaryStreamError
from tarkit.store import waits
from tarkit.store.hdfs.client import HdfsClient, Status, Writer
from tarkit.store.retry import Dropped, Patience
from tarkit.store.temporary import temporary_name


class HdfsSink:
    """A file under a temporary name, ``.NAME.tarkit-RANDOM``, that is renamed at commit, over an older one."""

    def __init__(self, client: HdfsClient, path: str, if_absent: bool) -> None:
        self._client = client
        self._path = path
        self._name = client.shown(path)
        self._if_absent = if_absent
        self._written = 0
        self._renamed = False
        folder, base = posixpath.split(path)
        there = client.patiently(client.found, path)
        if not base or (there and there.is_folder):
            raise StreamError("is a directory; the name of a file is needed", url=self._name)
        if there and if_absent:
            raise AlreadyPublishedError("is there already", url=self._name)
        self._temporary = posixpath.join(folder, temporary_name(base))
        self._file: Writer | None = None
        try:
            self._file = client.patiently(lambda _: client.create(self._temporary), path)
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
        done = self._client.patiently(self._client.found, self._temporary)
        if done is None or done.size != self._written:
            found = "nothing is there" if done is None else f"{done.size} arrived"
            raise TemporaryStreamError(f"{self._written} bytes were sent, but {found}", url=self._name)
        self._client.patiently(self._publish, self._path, done)

    def _publish(self, path: str, done: Status) -> None:
        """Rename the finished file, and look whether it has its name.

        Another writer may have replaced it since; it was whole all the same.
        """
        try:
            self._client.rename(self._temporary, path, not self._if_absent)
            self._renamed = True
        except MissingInputError:
            # An earlier attempt may have succeeded though its answer was lost: what is there decides.
            pass
        except AlreadyPublishedError:
            if self._if_absent:
                raise
            raise StreamError("something is in the way of the finished file's name", url=self._name) from None
        there = self._client.found(path)
        if there is not None and there[2:] == done[2:]:
            return
        if not self._renamed:
            raise StreamError("the finished file is gone, before it got this name", url=self._name)
        if self._client.found(self._temporary) is not None:
            raise StreamError("the server did not rename the finished file to this name", url=self._name)
        if there is None:
            raise Dropped("the server renamed the finished file, but nothing is under this name")

    def discard(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.abort()
        # The earlier error is the one that counts; the name of what is left shows what it is.
        with waits.cleaning_up() as seconds, suppress(LocatedError):
            brief = Patience(replace(self._client.retry, deadline=seconds), self._name)
            brief.call(self._client.delete, self._temporary, False)
