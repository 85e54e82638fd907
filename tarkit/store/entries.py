"""What is at a local path or URL: one entry, a folder's entries, and removing them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

from tarkit.errors import MissingInputError, StreamError, UsageError
from tarkit.store.hdfs.client import Status
from tarkit.store.hdfs.files import Hdfs, connect, is_hdfs, url_of
from tarkit.store.http.read import head
from tarkit.store.objects.filesystem import ask, filesystem, look
from tarkit.store.sources import display_name, local_path, raise_os_error

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "modification_time", "created")
_SUMS = ("ETag", "etag", "md5Hash", "content_md5", "crc32c")


class Entry(NamedTuple):
    """A file or folder.

    url: to open it by; it may hold secrets. name: relative to what was listed, without a slash at the ends.
    size: bytes, None if it is not told, and for folders. mtime: seconds since 1970, None if it is not told.
    checksum: ``NAME:VALUE`` as the store gives it.
    """

    url: str
    name: str
    is_folder: bool
    size: int | None
    mtime: float | None
    checksum: str | None


def stat(url: str) -> Entry:
    """What is there.

    Raises:
        MissingInputError: nothing. StreamError, TemporaryStreamError: it can not be asked. UsageError,
        MissingExtraError: no such protocol.
    """
    if url == "-" or url.startswith("pipe:"):
        raise UsageError(f"{display_name(url)} is a stream; name a path or a URL")
    path = local_path(url)
    if path is not None:
        return _local(path, url.rstrip("/").rpartition("/")[2])
    if is_hdfs(url):
        cluster, path = connect(url)
        status = cluster.patiently(path, lambda: cluster.client.status(path))
        return _hdfs(url, path.rpartition("/")[2], status, _hdfs_checksum(cluster, path, status))
    if url.lower().startswith(("http://", "https://")):
        return _http(url)
    return _foreign(url, display_name(url).rstrip("/").rpartition("/")[2], look(url))


def entries(url: str, recursive: bool = False) -> Iterator[Entry]:
    """What is in a folder, by name; with ``recursive``, the files below it at any depth. Of a file: itself.

    Raises:
        As ``stat``. UsageError: an http server, which can not list.
    """
    itself = stat(url)
    if not itself.is_folder:
        yield itself
    elif local_path(url) is not None:
        yield from _local_entries(local_path(url) or "", "", recursive)
    elif is_hdfs(url):
        cluster, path = connect(url)
        yield from _hdfs_entries(cluster, url, path, "", recursive)
    else:
        yield from _foreign_entries(url, recursive)


def remove(url: str, recursive: bool = False) -> None:
    """Remove a file; with ``recursive``, a folder and all that is in it.

    Raises:
        As ``stat``. UsageError: a folder, without ``recursive``; an http server.
    """
    name = display_name(url)
    if url.lower().startswith(("http://", "https://")):
        raise UsageError(f"{name}: nothing can be removed from an http server")
    path = local_path(url)
    is_folder = not (path is not None and os.path.islink(path)) and stat(url).is_folder
    if is_folder and not recursive:
        raise UsageError(f"{name} is a folder; say -r to remove it with all that is in it")
    if path is not None:
        try:
            shutil.rmtree(path) if is_folder else os.unlink(path)
        except OSError as error:
            raise_os_error(error, name)
    elif is_hdfs(url):
        cluster, inner = connect(url)
        if inner == "/":
            raise UsageError(f"{name} is the whole file system; that is not removed")
        if not cluster.patiently(inner, lambda: cluster.client.delete(inner, recursive)) and cluster.status(inner):
            raise StreamError("the server did not remove it", url=name)
    else:
        _remove_foreign(url, name, is_folder)


def _remove_foreign(url: str, name: str, is_folder: bool) -> None:
    fs, inner = filesystem(url, name)
    if "/" not in inner.strip("/"):
        raise UsageError(f"{name} is a whole bucket; that is not removed")
    try:
        ask(lambda: fs.rm(inner, recursive=True) if is_folder else fs.rm_file(inner), url=url, name=name)
    except MissingInputError:
        # An earlier attempt of this call may have removed it, and its answer be lost.
        return
    fs.invalidate_cache()
    if ask(fs.exists, inner, url=url, name=name):
        raise StreamError("is still there after it was removed", url=name)


def _local(path: str, name: str) -> Entry:
    try:
        status = os.stat(path)
    except OSError as error:
        raise_os_error(error, path)
    folder = os.path.isdir(path)
    return Entry(path, name, folder, None if folder else status.st_size, status.st_mtime, None)


def _local_entries(folder: str, below: str, recursive: bool) -> Iterator[Entry]:
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise_os_error(error, folder)
    for name in names:
        path, relative = os.path.join(folder, name), os.path.join(below, name)
        try:
            entry = _local(path, relative)
        except MissingInputError:
            # A link to nothing is an entry all the same; whoever opens it is told.
            entry = Entry(path, relative, False, None, None, None)
        if recursive and entry.is_folder and not os.path.islink(path):
            yield from _local_entries(path, relative, True)
        else:
            yield entry


def _hdfs(url: str, name: str, status: Status, checksum: str | None = None) -> Entry:
    size = None if status.is_folder else status.size
    return Entry(url, name, status.is_folder, size, status.mtime / 1000, checksum)


def _hdfs_checksum(cluster: Hdfs, path: str, status: Status) -> str | None:
    ask = getattr(cluster.client, "checksum", None)
    if ask is None or status.is_folder or not status.size:
        return None
    return str(cluster.patiently(path, lambda: ask(path)))


def _hdfs_entries(cluster: Hdfs, url: str, folder: str, below: str, recursive: bool) -> Iterator[Entry]:
    for status in cluster.listing(folder):
        path, relative = f"{folder.rstrip('/')}/{status.name}", f"{below}{status.name}"
        if recursive and status.is_folder:
            yield from _hdfs_entries(cluster, url, path, f"{relative}/", True)
        else:
            yield _hdfs(url_of(url, path), relative, status)


def _http(url: str) -> Entry:
    shown = display_name(url)
    size, tag = head(url, shown)
    path = shown.partition("#")[0].partition("?")[0]
    return Entry(url, path.rstrip("/").rpartition("/")[2], False, size, None, tag)


def _foreign(url: str, name: str, info: dict[str, Any]) -> Entry:
    folder = info.get("type") == "directory"
    size = info.get("size")
    checksum = next((f"{key}:{str(info[key]).strip(chr(34))}" for key in _SUMS if info.get(key)), None)
    return Entry(url, name, folder, size if isinstance(size, int) and not folder else None, _time(info), checksum)


def _time(info: dict[str, Any]) -> float | None:
    found = next((info[key] for key in _TIMES if info.get(key)), None)
    if isinstance(found, str):
        try:
            found = datetime.fromisoformat(found.replace("Z", "+00:00"))
        except ValueError:
            return None
    if isinstance(found, datetime):
        return found.timestamp()
    return float(found) if isinstance(found, (int, float)) else None


def _foreign_entries(url: str, recursive: bool) -> Iterator[Entry]:
    name = display_name(url)
    fs, inner = filesystem(url, name)
    base = inner.rstrip("/")
    fs.invalidate_cache(inner)
    if recursive:
        found = list(ask(lambda: fs.find(base, detail=True).values(), url=url, name=name))
    else:
        listed = ask(lambda: fs.ls(base, detail=True), url=url, name=name)
        found = [info for info in listed if info["name"].rstrip("/") != base]
    for info in sorted(found, key=lambda item: str(item["name"])):
        path = str(info["name"]).rstrip("/")
        # Listings come without the protocol: it is taken from what was asked.
        full = url[: len(url) - len(inner)] + path if url.endswith(inner) else str(fs.unstrip_protocol(path))
        yield _foreign(full, path[len(base) :].strip("/"), info)
