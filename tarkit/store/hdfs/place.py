"""Files on HDFS, by hdfs:// and webhdfs://: read to their verified end, published all or nothing, listed."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator
from typing import Any

from tarkit.errors import MissingInputError, StreamError, UsageError
from tarkit.store.hdfs.client import HdfsClient, Status
from tarkit.store.hdfs.native import NativeClient
from tarkit.store.hdfs.rest import WebHdfsClient
from tarkit.store.hdfs.resturl import parse_address
from tarkit.store.hdfs.sink import HdfsSink
from tarkit.store.place import Entry, Identity
from tarkit.store.resume import Body, ReportedOrigin, ResumingReader, read_part
from tarkit.store.retry import DEFAULT_RETRY, Retry
from tarkit.store.url import scheme_of, split_query

_MAGIC = re.compile(r"[*?\[]")


def connect(url: str, retry: Retry = DEFAULT_RETRY) -> tuple[HdfsClient, str]:
    """The cluster of a URL, and the path on it, from ``/`` on. Raises: UsageError: no such URL, or no cluster that
    hdfs-native knows. MissingExtraError: it is not installed."""
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
    """A file to read; after a drop it goes on at the same byte, on another DataNode if there is one."""
    client, path = connect(url, retry)
    return ResumingReader(HdfsOrigin(client, path), retry)


def read_range(url: str, name: str, start: int, stop: int, size: int, retry: Retry) -> bytes:
    """Some bytes of a file."""
    client, path = connect(url, retry)
    return read_part(HdfsOrigin(client, path), start, stop, size, retry)


def stat(url: str) -> Entry:
    """A file or folder."""
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
    """What is in a folder."""
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
    """Size of a file, and the number and time of its inode."""
    client, path = connect(url)
    status = client.patiently(client.status, path)
    return Identity(status.size, f"inode-{status.number}-mtime-{status.mtime}")


def remove(url: str, name: str, is_folder: bool) -> None:
    """Remove a file or folder, but not the whole file system."""
    client, path = connect(url)
    if path == "/":
        raise UsageError(f"{name} is the whole file system; that is not removed")
    if not client.patiently(client.delete, path, is_folder) and client.patiently(client.found, path):
        raise StreamError("the server did not remove it", url=name)


class HdfsOrigin(ReportedOrigin):
    """One file, identified by number, length and time of change. DataNodes verify their checksums."""

    def __init__(self, client: HdfsClient, path: str) -> None:
        super().__init__(client.shown(path))
        self._client = client
        self._path = path

    def report(self) -> tuple[dict[str, Any], None]:
        now = self._client.status(self._path)
        if now.is_folder:
            raise StreamError("is a directory, not a file", url=self.name)
        return {"inode": now.number, "size": now.size, "time of change": now.mtime}, None

    def open_at(self, offset: int) -> Body:
        size = self.size or 0
        return self._client.open(self._path, offset, size) if offset < size else Body()


def open_sink(
    url: str, name: str, *, if_absent: bool = False, sync: bool = True, retry: Retry = DEFAULT_RETRY
) -> HdfsSink:
    """A file to write, which appears under its name at commit. Missing folders are made, as HDFS does.

    That nothing is there, with ``if_absent``, is decided in one step at commit.
    """
    client, path = connect(url, retry)
    return HdfsSink(client, path, if_absent)


def glob(url: str) -> list[str]:
    """The URLs of the files and folders that a pattern (``*``, ``?``, ``[``, ``**`` for any depth) matches, sorted.

    Names that begin with a dot match only patterns that do. A URL without a pattern is returned as it is.
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
    """Paths below ``folder`` that match the rest of the pattern."""
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
    """``url`` with another path on the same cluster."""
    head, query = split_query(url)
    scheme, _, rest = head.partition("://")
    return f"{scheme}://{rest.partition('/')[0]}{path}{query}"
