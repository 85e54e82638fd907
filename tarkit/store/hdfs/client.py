"""What hdfs:// and webhdfs:// have in common below: one file's status, a client's calls, and
Hadoop's errors.
"""

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
    """What a NameNode reports about a file or folder.

    Attributes:
        name: last part of the path.
        size: bytes.
        mtime: milliseconds since 1970.
        number: the inode's, 0 if it is not known; a new file under an old name has a new one.
    """

    name: str
    is_folder: bool
    size: int
    mtime: int
    number: int


class HdfsWriter(Protocol):
    """A file that is being written.

    Attributes:
        close: finish it, after which it is complete.
        abort: the caller deletes it.
    """

    def write(self, data: bytes | bytearray | memoryview, /) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class HdfsClient(Protocol):
    """Calls of one cluster, for one operation: open remembers the DataNodes that failed, and avoids
    them.

    Each raises Dropped if another attempt may help, else a LocatedError with the URL.

    Attributes:
        open: the bytes from offset < size to the end, which is at size.
        checksum: as the cluster gives it; None if it cannot be asked.
        on_loss: what is to be said of a write that a DataNode ended, and that goes on in a copy; ""
            where none is made.
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
        """``status``; None: there is nothing."""
        try:
            return self.status(path)
        except MissingInputError:
            return None

    def patiently(self, call: Callable[..., T], path: str, *arguments: object) -> T:
        """What a call about a path returns, in the end.

        Raises:
            TemporaryStreamError: given up.
            LocatedError: what another attempt would not change.
        """
        return Patience(self.retry, self.shown(path)).call(call, path, *arguments)


def raise_java(exception: str, message: str, url: str, name: str) -> NoReturn:
    """The error of this package for an exception of Hadoop.

    Args:
        exception: Java's class, with or without its package.
        message: its first line counts, the others are Java's stack.
        url: with its secrets, which are taken out.
        name: the URL as it may be shown.
    """
    short = exception.rpartition(".")[2].rpartition("$")[2]
    said = printable(without_secrets(message.partition("\n")[0], url))
    if is_temporary_java(short, message):
        raise Dropped(f"{short}: {said}") from None
    if short == "FileNotFoundException":
        raise MissingInputError("no such file", url=name) from None
    if short in ("FileAlreadyExistsException", "AlreadyBeingCreatedException"):
        raise AlreadyPublishedError("is there already", url=name) from None
    if short == "AccessControlException":
        lowered = said[:1].lower() + said[1:]
        raise StreamError(lowered if "permission" in lowered else f"permission denied: {said}", url=name) from None
    reason = f"{short}: {said}"
    raise StreamError(
        f"the server does not accept this user ({reason})" if short in _TOKEN else reason, url=name
    ) from None
