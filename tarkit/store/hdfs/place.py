"""Read, publish, list and remove files on HDFS, by hdfs:// and webhdfs://.

A file is read to its verified end, and published all or nothing.
"""

from __future__ import annotations

import collections
import fnmatch
import posixpath
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

from tarkit.errors import (
    AlreadyPublishedError,
    LocatedError,
    MissingInputError,
    StreamError,
    TemporaryStreamError,
    UsageError,
)
from tarkit.names.url import scheme_of, split_query
from tarkit.store import waits
from tarkit.store.hdfs.client import HdfsClient, HdfsWriter, Status
from tarkit.store.hdfs.native import NativeClient
from tarkit.store.hdfs.rest import WebHdfsClient
from tarkit.store.hdfs.resturl import parse_address
from tarkit.store.place import Entry, Identity
from tarkit.store.resume import Body, ReportedOrigin, ResumingReader, read_part
from tarkit.store.retry import DEFAULT_RETRY, Dropped, Patience, Retry
from tarkit.store.temporary import temporary_name

_MAGIC = re.compile(r"[*?\[]")
_SLOWEST = 32 * 1024
"""Bytes a second of the slowest copy that is waited for."""
_TAIL = 16 << 20
"""Bytes kept in memory until a new block has begun without an error.

So many may be in transfer by then.
"""


def connect(url: str, retry: Retry = DEFAULT_RETRY) -> tuple[HdfsClient, str]:
    """Return the client for the cluster of a URL, and the path on it, from ``/`` on.

    Raises:
        UsageError: the URL is not valid, or hdfs-native does not know the cluster.
        MissingExtraError: hdfs-native is not installed.
    """
    client: HdfsClient
    if scheme_of(url) in ("webhdfs", "swebhdfs"):
        address, path = parse_address(url)
        client = WebHdfsClient(address, retry)
    else:
        scheme, _, rest = url.partition("://")
        netloc, _, path = rest.partition("/")
        client = NativeClient(f"{scheme.lower()}://{netloc}", retry)
    parts = [part for part in path.split("/") if part]
    if "." in parts or ".." in parts:
        raise UsageError(f"the path {path!r} has . or .. in it, which HDFS does not know")
    return client, "/" + "/".join(parts)


def open_read(url: str, name: str, retry: Retry) -> ResumingReader:
    """Open a file to read.

    After a broken connection it resumes at the same byte, on another DataNode if there is one.
    """
    client, path = connect(url, retry)
    return ResumingReader(HdfsOrigin(client, path), retry)


def read_range(url: str, name: str, start: int, stop: int, size: int, retry: Retry) -> bytes:
    """Read a range of a file."""
    client, path = connect(url, retry)
    return read_part(HdfsOrigin(client, path, stop), start, stop, size, retry)


def stat(url: str) -> Entry:
    """Return the entry of a file or folder."""
    client, path = connect(url)
    status = client.patiently(client.status, path)
    is_file = not status.is_folder and status.size
    return _entry(url, path.rpartition("/")[2], status, client.patiently(client.checksum, path) if is_file else None)


def _entry(url: str, name: str, status: Status, checksum: str | None = None) -> Entry:
    size = None if status.is_folder else status.size
    return Entry(url, name, status.is_folder, size, status.mtime / 1000, checksum)


def _listing(client: HdfsClient, path: str) -> list[Status]:
    return sorted(client.patiently(client.listing, path), key=lambda item: item.name)


def entries(url: str, recursive: bool) -> Iterator[Entry]:
    """Yield the entries of a folder."""
    client, path = connect(url)
    return _entries(client, url, path, "", recursive)


def _entries(client: HdfsClient, url: str, folder: str, below: str, recursive: bool) -> Iterator[Entry]:
    for status in _listing(client, folder):
        path, relative = posixpath.join(folder, status.name), f"{below}{status.name}"
        if recursive and status.is_folder:
            yield from _entries(client, url, path, f"{relative}/", True)
        else:
            yield _entry(_url_of(url, path), relative, status)


def identify(url: str) -> Identity:
    """Return the size of a file, and the number and time of its inode."""
    client, path = connect(url)
    status = client.patiently(client.status, path)
    return Identity(status.size, f"inode-{status.number}-mtime-{status.mtime}")


def remove(url: str, name: str, is_folder: bool) -> None:
    """Remove a file or folder, but not the whole file system."""
    client, path = connect(url)
    if path == "/":
        raise UsageError(f"{name} is the whole file system, which tarkit does not remove")
    if not client.patiently(client.delete, path, is_folder) and client.patiently(client.found, path):
        raise StreamError("the server did not remove it", url=name)


class HdfsOrigin(ReportedOrigin):
    """One file, identified by number, length and time of change.

    DataNodes verify their checksums.

    Args:
        stop: offset where the wanted part of the file ends; None: all of it.
    """

    def __init__(self, client: HdfsClient, path: str, stop: int | None = None) -> None:
        super().__init__(client.shown(path))
        self._client = client
        self._path = path
        self._stop = stop

    def report(self) -> tuple[dict[str, Any], None]:
        now = self._client.status(self._path)
        if now.is_folder:
            raise StreamError("is a directory, not a file", url=self.name)
        return {"inode": now.number, "size": now.size, "time of change": now.mtime}, None

    def open_at(self, offset: int) -> Body:
        size = self.size or 0
        stop = size if self._stop is None else min(self._stop, size)
        return self._client.open(self._path, offset, stop) if offset < stop else Body()


class HdfsSink:
    """A file that is written under a temporary name and renamed at commit.

    The name is ``.NAME.tarkit-RANDOM``; an existing file is replaced. hdfs-native survives the loss
    of a DataNode in the middle of a block, but not at the beginning of one, if the NameNode chooses
    a DataNode whose loss it has not noticed. The blocks before it are complete then: they are
    copied to a second file.
    """

    def __init__(self, client: HdfsClient, path: str, if_absent: bool) -> None:
        self._client = client
        self._path = path
        self._name = client.shown(path)
        self._if_absent = if_absent
        self._written = 0
        self._tail: collections.deque[bytes] = collections.deque()
        self._renamed = False
        _folder, base = posixpath.split(path)
        there = client.patiently(client.found, path)
        if not base or (there and there.is_folder):
            raise StreamError("is a directory; the name of a file is needed", url=self._name)
        if there and if_absent:
            raise AlreadyPublishedError("already exists", url=self._name)
        self._names: list[str] = []
        self._temporary = self._new_name()
        self._file: HdfsWriter | None = None
        try:
            self._file = client.patiently(lambda _: client.create(self._temporary), path)
        except BaseException as error:
            self.discard()
            if isinstance(error, LocatedError):
                error.url = self._name
            raise

    def _new_name(self) -> str:
        folder, base = posixpath.split(self._path)
        self._names.append(posixpath.join(folder, temporary_name(base)))
        return self._names[-1]

    def write(self, data: bytes | bytearray | memoryview) -> None:
        data = bytes(data)
        self._send(data, False)
        self._written += len(data)
        self._tail.append(data[-_TAIL:] if self._client.on_loss else b"")
        while sum(map(len, self._tail)) - len(self._tail[0]) >= _TAIL:
            self._tail.popleft()

    def _send(self, data: bytes, closes: bool) -> None:
        if self._file is None:
            raise StreamError("writing this file has failed already", url=self._name)
        try:
            try:
                waits.call(_write_to, self._file, data, closes)
            except Dropped as drop:
                self._send_elsewhere(self._file, data, closes, drop)
        except LocatedError as error:
            error.url = self._name
            raise

    def _send_elsewhere(self, broken: HdfsWriter, data: bytes, closes: bool, drop: Dropped) -> None:
        """Send the data that this file did not accept to a copy of it.

        Args:
            broken: the writer that failed.
            closes: True if the file ends with it.
            drop: the error of the writer.

        Raises:
            TemporaryStreamError: the copy failed, or cannot be made.
        """
        there = self._client.patiently(self._client.status, self._temporary).size if self._client.on_loss else -1
        unsure = b"".join((*self._tail, data))
        begin = there - (self._written + len(data) - len(unsure))
        if not 0 <= begin <= len(unsure):
            # Data sent before is not in memory any more, so it cannot be sent again.
            reason = f"{drop.reason}{self._client.on_loss}; nothing was published"
            raise TemporaryStreamError(reason, url=self._name, offset=self._written) from None
        patience = Patience(self._client.retry, self._name)
        copy = patience.call(self._copied, there, unsure[begin:], closes, seconds=there / _SLOWEST)
        (old, self._temporary), self._file = (self._temporary, copy[0]), copy[1]
        broken.abort()
        self._remove(old)

    def _copied(self, there: int, rest: bytes, closes: bool) -> tuple[str, HdfsWriter]:
        """Copy the first bytes of this file, and the rest, to a new one; return name and writer."""
        name = self._new_name()
        file = self._client.create(name)
        try:
            body = self._client.open(self._temporary, 0, there) if there else Body()
            while piece := body.read(1 << 20):
                file.write(piece)
            _write_to(file, rest, closes)
        except BaseException as error:
            file.abort()
            self._remove(name)
            if isinstance(error, Dropped):
                error.reason += self._client.on_loss
            raise
        return name, file

    def commit(self) -> None:
        self._send(b"", True)
        done = self._client.patiently(self._client.found, self._temporary)
        if done is None or done.size != self._written:
            found = "no file exists" if done is None else f"{done.size} arrived"
            raise TemporaryStreamError(f"{self._written} bytes were sent, but {found}", url=self._name)
        self._client.patiently(self._publish, self._path, done)

    def _publish(self, path: str, done: Status) -> None:
        """Rename the finished file, and check that it has its name.

        Another writer may have replaced it since; it was complete anyway.
        """
        try:
            self._client.rename(self._temporary, path, not self._if_absent)
            self._renamed = True
        except MissingInputError:
            # An earlier attempt may have succeeded although its answer was lost: the existing file
            # decides.
            pass
        except AlreadyPublishedError:
            if self._if_absent:
                raise
            raise StreamError("a folder has the name of the finished file", url=self._name) from None
        there = self._client.found(path)
        if there is not None and there[2:] == done[2:]:
            return
        if not self._renamed:
            raise StreamError("the finished file was removed before it got this name", url=self._name)
        if self._client.found(self._temporary) is not None:
            raise StreamError("the server did not rename the finished file to this name", url=self._name)
        if there is None:
            raise Dropped("the server renamed the finished file, but no file has this name")

    def discard(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.abort()
        for name in [*self._names]:
            self._remove(name)

    def _remove(self, path: str) -> None:
        # An earlier error is the one to report; the name of a leftover file shows its purpose.
        with waits.cleaning_up() as seconds, suppress(LocatedError):
            brief = Patience(replace(self._client.retry, deadline=seconds), self._name)
            brief.call(self._client.delete, path, False)
            self._names.remove(path)


def _write_to(file: HdfsWriter, data: bytes, closes: bool) -> None:
    if data:
        file.write(data)
    if closes:
        file.close()


def open_sink(
    url: str, name: str, *, if_absent: bool = False, sync: bool = True, retry: Retry = DEFAULT_RETRY
) -> HdfsSink:
    """Open a file to write, which appears under its name at commit.

    Missing folders are made, as HDFS does. With ``if_absent``, the server checks at commit, in one
    step, that the name does not exist.
    """
    client, path = connect(url, retry)
    return HdfsSink(client, path, if_absent)


def glob(url: str) -> list[str]:
    """Return the URLs of the files and folders that a pattern matches, sorted.

    A pattern has ``*``, ``?``, ``[``, or ``**`` for any depth. Names that begin with a dot match
    only patterns that do. A URL without a pattern is returned unchanged.
    """
    head, query = split_query(url)
    scheme, _, rest = head.partition("://")
    netloc, _, pattern = rest.partition("/")
    if not _MAGIC.search(pattern):
        return [url]
    client, _ = connect(f"{scheme}://{netloc}/{query}")
    parts = [part for part in pattern.split("/") if part]
    return [_url_of(url, path) for path in sorted(set(_matches(client, "/", parts)))]


def _matches(client: HdfsClient, folder: str, parts: list[str]) -> Iterator[str]:
    """Yield the paths below ``folder`` that match the rest of the pattern."""
    first, rest = parts[0], parts[1:]
    if not _MAGIC.search(first):
        path = posixpath.join(folder, first)
        if rest:
            yield from _matches(client, path, rest)
        elif client.patiently(client.found, path) is not None:
            yield path
        return
    try:
        items = _listing(client, folder)
    except MissingInputError:
        return
    if first == "**":
        if rest:
            yield from _matches(client, folder, rest)
        matching = [item for item in items if not item.name.startswith(".")]
    else:
        expression = re.compile(fnmatch.translate(first))
        hidden = first.startswith(".")
        matching = [i for i in items if expression.match(i.name) and (hidden or not i.name.startswith("."))]
    for item in matching:
        path = posixpath.join(folder, item.name)
        if item.is_folder and (rest or first == "**"):
            yield from _matches(client, path, parts if first == "**" else rest)
        if not rest and not (item.is_folder and first == "**"):
            yield path


def _url_of(url: str, path: str) -> str:
    """Return ``url`` with another path on the same cluster."""
    head, query = split_query(url)
    scheme, _, rest = head.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}{path}{query}"
