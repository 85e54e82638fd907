"""Files on HDFS, by hdfs:// and webhdfs://: read to their verified end, published all or nothing, listed."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NoReturn, TypeVar

from tarkit.errors import (
    AlreadyPublishedError,
    LocatedError,
    MissingInputError,
    StreamError,
    TemporaryStreamError,
    UsageError,
)
from tarkit.store import waits
from tarkit.store.hdfs.client import HdfsClient, Status, Writer
from tarkit.store.hdfs.native import NativeClient
from tarkit.store.hdfs.rest import WebHdfsClient
from tarkit.store.hdfs.resturl import parse_address
from tarkit.store.http.body import NoBody
from tarkit.store.place import Entry, Identity
from tarkit.store.resume import Body, ResumingReader, read_part
from tarkit.store.retry import DEFAULT_RETRY, Dropped, Patience, Retry
from tarkit.store.temporary import temporary_name
from tarkit.store.url import scheme_of, split_query

_MAGIC = re.compile(r"[*?\[]")

T = TypeVar("T")


class Hdfs:
    """A cluster, and calls that are tried again as ``retry`` says."""

    def __init__(self, client: HdfsClient, retry: Retry) -> None:
        self.client = client
        self.retry = retry

    def patiently(self, path: str, call: Callable[[], T]) -> T:
        """What ``call`` returns, in the end.

        Raises:
            TemporaryStreamError: given up. LocatedError: what another attempt would not mend.
        """
        return Patience(self.retry, self.client.shown(path)).call(call)

    def status(self, path: str) -> Status | None:
        """None: there is nothing."""
        try:
            return self.patiently(path, lambda: self.client.status(path))
        except MissingInputError:
            return None

    def listing(self, path: str) -> list[Status]:
        """What is in a folder, by name."""
        found = self.patiently(path, lambda: self.client.listing(path))
        return sorted(found, key=lambda item: item.name)


def connect(url: str, retry: Retry = DEFAULT_RETRY) -> tuple[Hdfs, str]:
    """The cluster of a URL, and the path on it, from ``/`` on.

    Raises:
        UsageError: no such URL, or no cluster that hdfs-native knows. MissingExtraError: it is not installed.
    """
    if scheme_of(url) in ("webhdfs", "swebhdfs"):
        address, path = parse_address(url)
        return Hdfs(WebHdfsClient(address, retry), retry), _clean(path)
    scheme, _, rest = url.partition("://")
    netloc, _, path = rest.partition("/")
    return Hdfs(NativeClient(f"{scheme.lower()}://{netloc}"), retry), _clean(path)


def _clean(path: str) -> str:
    path = "/" + path.strip("/")
    if any(part in (".", "..") for part in path.split("/")):
        raise UsageError(f"the path {path!r} has . or .. in it, which HDFS does not know")
    return re.sub("/+", "/", path)


def open_read(url: str, name: str, retry: Retry) -> ResumingReader:
    """A file to read; after a drop it goes on at the same byte, on another DataNode if there is one.

    Raises:
        MissingInputError, StreamError, TemporaryStreamError, UsageError, MissingExtraError.
    """
    cluster, path = connect(url, retry)
    return ResumingReader(HdfsOrigin(cluster.client, path), cluster.client.shown(path), retry)


def read_range(url: str, name: str, start: int, stop: int, size: int, retry: Retry) -> bytes:
    """Some bytes of a file."""
    cluster, path = connect(url, retry)
    return read_part(HdfsOrigin(cluster.client, path), name, start, stop, size, retry)


def stat(url: str) -> Entry:
    """A file or folder."""
    cluster, path = connect(url)
    status = cluster.patiently(path, lambda: cluster.client.status(path))
    return _entry(url, path.rpartition("/")[2], status, _checksum(cluster, path, status))


def _entry(url: str, name: str, status: Status, checksum: str | None = None) -> Entry:
    size = None if status.is_folder else status.size
    return Entry(url, name, status.is_folder, size, status.mtime / 1000, checksum)


def _checksum(cluster: Hdfs, path: str, status: Status) -> str | None:
    ask = getattr(cluster.client, "checksum", None)
    if ask is None or status.is_folder or not status.size:
        return None
    return str(cluster.patiently(path, lambda: ask(path)))


def entries(url: str, recursive: bool) -> Iterator[Entry]:
    """What is in a folder."""
    cluster, path = connect(url)
    return _entries(cluster, url, path, "", recursive)


def _entries(cluster: Hdfs, url: str, folder: str, below: str, recursive: bool) -> Iterator[Entry]:
    for status in cluster.listing(folder):
        path, relative = f"{folder.rstrip('/')}/{status.name}", f"{below}{status.name}"
        if recursive and status.is_folder:
            yield from _entries(cluster, url, path, f"{relative}/", True)
        else:
            yield _entry(_url_of(url, path), relative, status)


def identify(url: str) -> Identity:
    """Size of a file, and the number and time of its inode."""
    cluster, path = connect(url)
    status = cluster.patiently(path, lambda: cluster.client.status(path))
    return Identity(status.size, f"inode-{status.number}-mtime-{status.mtime}")


def remove(url: str, name: str, is_folder: bool) -> None:
    """Remove a file or folder, but not the whole file system."""
    cluster, path = connect(url)
    if path == "/":
        raise UsageError(f"{name} is the whole file system; that is not removed")
    if not cluster.patiently(path, lambda: cluster.client.delete(path, is_folder)) and cluster.status(path):
        raise StreamError("the server did not remove it", url=name)


class HdfsOrigin:
    """One file, told from its successors by number, length and time of change; also asked at the end."""

    def __init__(self, client: HdfsClient, path: str) -> None:
        self.size: int | None = None
        self._client = client
        self._path = path
        self._opener = client.opener(path)
        self._first: Status | None = None

    def open(self, offset: int) -> Body:
        size = self._look(offset)
        return self._opener.open(offset, size) if offset < size else NoBody()

    def _look(self, offset: int) -> int:
        try:
            now = self._client.status(self._path)
        except MissingInputError:
            if self._first is None:
                raise
            self._changed("it is gone", offset)
        if now.is_folder:
            raise StreamError("is a directory, not a file", url=self._client.shown(self._path))
        before = self._first or now
        if (now.number, now.size, now.mtime) != (before.number, before.size, before.mtime):
            what = "another file is there" if now.number != before.number else "its length or time is another"
            self._changed(what, offset)
        self._first = before
        self.size = now.size
        return now.size

    def _changed(self, how: str, offset: int) -> NoReturn:
        name = self._client.shown(self._path)
        raise StreamError(f"the file was changed while it was read: {how}", url=name, offset=offset) from None

    def delivered(self, data: bytes) -> None:
        """No checksum that could be had cheaply: DataNodes verify their blocks' themselves."""

    def at_end(self, body: Body, offset: int) -> bool:
        size = self._look(offset)
        if offset < size:
            raise Dropped(f"the connection ended after {offset} of {size} bytes")
        if offset > size:
            name = self._client.shown(self._path)
            raise StreamError(f"{offset} bytes came, but the file has {size}", url=name, offset=offset)
        return True


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
        # What was sent is gone from memory, so a drop here can not be mended here.
        if self._file is None:
            raise StreamError("the file was given up already", url=self._name)
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
        # Whatever went wrong before is what counts; the name of what is left says what it is.
        with waits.cleaning_up() as seconds, suppress(LocatedError):
            brief = Patience(replace(self._cluster.retry, deadline=seconds), self._name)
            brief.call(self._client.delete, self._temporary, False)


def _content_of(status: Status) -> tuple[int, int, int]:
    return status.number, status.size, status.mtime


def open_sink(
    url: str, name: str, *, if_absent: bool = False, sync: bool = True, retry: Retry = DEFAULT_RETRY
) -> HdfsSink:
    """A file to write, which appears under its name at commit. Missing folders are made, as HDFS does.

    Raises:
        AlreadyPublishedError: ``if_absent``, and something is there; also raised by commit, in one step.
        StreamError, TemporaryStreamError, UsageError, MissingExtraError.
    """
    cluster, path = connect(url, retry)
    return HdfsSink(cluster, path, if_absent)


def glob(url: str) -> list[str]:
    """The URLs of the files and folders that a pattern (``*``, ``?``, ``[``, ``**`` for any depth) matches, sorted.

    Names that begin with a dot match only patterns that do. A URL without a pattern is returned as it is.
    """
    head, query = split_query(url)
    scheme, _, rest = head.partition("://")
    netloc, _, pattern = rest.partition("/")
    if not _MAGIC.search(pattern):
        return [url]
    cluster, _ = connect(f"{scheme}://{netloc}/{query}")
    parts = [part for part in pattern.split("/") if part]
    return [_url_of(url, path) for path in sorted(set(_matches(cluster, "/", parts)))]


def _matches(cluster: Hdfs, folder: str, parts: list[str]) -> Iterator[str]:
    """Paths below ``folder`` that match the rest of the pattern."""
    first, rest = parts[0], parts[1:]
    if not _MAGIC.search(first):
        path = posixpath.join(folder, first)
        if rest:
            yield from _matches(cluster, path, rest)
        elif cluster.status(path) is not None:
            yield path
        return
    try:
        items = cluster.listing(folder)
    except MissingInputError:
        return
    if first == "**":
        if rest:
            yield from _matches(cluster, folder, rest)
        matching = [item for item in items if not item.name.startswith(".")]
    else:
        expression = re.compile(fnmatch.translate(first))
        hidden = first.startswith(".")
        matching = [i for i in items if expression.match(i.name) and (hidden or not i.name.startswith("."))]
    for item in matching:
        path = posixpath.join(folder, item.name)
        if item.is_folder and (rest or first == "**"):
            yield from _matches(cluster, path, parts if first == "**" else rest)
        if not rest and not (item.is_folder and first == "**"):
            yield path


def _url_of(url: str, path: str) -> str:
    """``url`` with another path on the same cluster."""
    head, query = split_query(url)
    scheme, _, rest = head.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}{path}{query}"
