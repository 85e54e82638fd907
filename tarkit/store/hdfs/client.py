"""The common base of hdfs:// and webhdfs://: a file's status, a client's calls, Java's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, NoReturn, Protocol, TypeVar

from tarkit.errors import AlreadyPublishedError, MissingInputError, StreamError, printable
from tarkit.store.faults import is_temporary_java
from tarkit.store.foreign import without_secrets
from tarkit.store.resume import Body
from tarkit.store.retry import Dropped, Patience, Retry

T = TypeVar("T")

_TOKEN = ("InvalidToken", "AuthenticationException", "SecurityException")


class Status(NamedTuple):
    """The status that a NameNode reports for a file or folder.

    Attributes:
        name: last part of the path.
        is_folder: True for a folder.
        size: size in bytes.
        mtime: time of change in milliseconds since 1970.
        number: number of the inode, 0 if it is not known; a new file under an old name has a new
            one.
    """

    name: str
    is_folder: bool
    size: int
    mtime: int
    number: int


class HdfsWriter(Protocol):
    """A file that is being written.

    Attributes:
        close: finishes the file, after which it is complete.
        abort: ends the writing; the caller deletes the file.
    """

    def write(self, data: bytes | bytearray | memoryview, /) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class HdfsClient(Protocol):
    """A client of one cluster, for one operation.

    ``open`` remembers the DataNodes that failed, and avoids them. Each call raises Dropped if a
    retry may help, or else a LocatedError with the URL.

    Attributes:
        retry: policy for retries.
        open: returns the bytes from ``offset``, which is below the size, up to ``stop``, the size
            of the file.
        checksum: returns the cluster's checksum; None if the cluster has none.
        on_loss: text to report if a DataNode ends a write and the write is not resumed; "" if it is
            resumed in a copy.
    """

    retry: Retry
    on_loss: str = ""

    def shown(self, path: str, /) -> str: ...
    def status(self, path: str, /) -> Status: ...
    def listing(self, path: str, /) -> list[Status]: ...
    def checksum(self, path: str, /) -> str | None: ...
    def open(self, path: str, offset: int, stop: int, /) -> Body: ...
    def create(self, path: str, /) -> HdfsWriter: ...
    def rename(self, source: str, target: str, overwrite: bool, /) -> None: ...
    def delete(self, path: str, recursive: bool, /) -> bool: ...

    def found(self, path: str) -> Status | None:
        """Return the status of a path; None if it does not exist."""
        try:
            return self.status(path)
        except MissingInputError:
            return None

    def patiently(self, call: Callable[..., T], path: str, *arguments: object) -> T:
        """Return the result of a call about a path, with retries.

        Raises:
            TemporaryStreamError: all attempts failed.
            LocatedError: a retry would not help.
        """
        return Patience(self.retry, self.shown(path)).call(call, path, *arguments)


def raise_java(exception: str, message: str, url: str, name: str) -> NoReturn:
    """Raise the error of this package for an exception of Hadoop.

    Args:
        exception: Java's class, with or without its package.
        message: its message; only the first line is used, the other lines are Java's stack.
        url: URL with its secrets, which are taken out.
        name: URL without secrets.
    """
    short = exception.rpartition(".")[2].rpartition("$")[2]
    said = printable(without_secrets(message.partition("\n")[0], url))
    if is_temporary_java(short, message):
        raise Dropped(f"{short}: {said}") from None
    if short == "FileNotFoundException":
        raise MissingInputError("no such file", url=name) from None
    if short in ("FileAlreadyExistsException", "AlreadyBeingCreatedException"):
        raise AlreadyPublishedError("already exists", url=name) from None
    if short == "AccessControlException":
        lowered = said[:1].lower() + said[1:]
        raise StreamError(lowered if "permission" in lowered else f"permission denied: {said}", url=name) from None
    reason = f"{short}: {said}"
    raise StreamError(
        f"the server does not accept this user ({reason})" if short in _TOKEN else reason, url=name
    ) from None
