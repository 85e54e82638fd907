"""Read, write, list and remove files through fsspec, for stores without functions of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any, NoReturn

from tarkit.errors import MissingInputError, StreamError, UsageError, printable, quoted
from tarkit.names.redaction import redact_text
from tarkit.names.url import display_name
from tarkit.store.checksums import Checksum, from_info
from tarkit.store.objects.filesystem import ask, filesystem, raise_dropped, translated
from tarkit.store.objects.sink import ObjectSink
from tarkit.store.objects.source import SourceOrigin, SourceRanges, identity_of_info, info_marks
from tarkit.store.objects.spool import SpoolSink
from tarkit.store.place import Entry, Identity, Sink
from tarkit.store.registry import module_of
from tarkit.store.resume import Body, ReportedOrigin, ResumingReader, check_size, read_part
from tarkit.store.retry import DEFAULT_RETRY, Dropped, Retry

_TIMES = ("mtime", "LastModified", "last_modified", "updated", "modified", "modification_time", "created")
_MANY_SECONDS = 86_400.0
"""Timeout in seconds of a call that makes many requests: a listing, or the removal of a folder.

Libraries with their own timeouts for a request, such as those of S3 and GCS, fail long before.
"""
_SUMS = ("ETag", "etag", "md5Hash", "content_md5", "crc32c")


def check(url: str) -> None:
    """Check that a URL can be opened.

    Raises:
        UsageError: the protocol is not known.
        MissingExtraError: its library is not installed.
    """
    filesystem(url, display_name(url))


def open_read(url: str, name: str, retry: Retry) -> ResumingReader:
    """Open a file to read."""
    fs, path = filesystem(url, name)
    source = _known(url, fs, "SOURCE")
    if source is not None:
        return ResumingReader(SourceOrigin(source(fs, path), url, name), retry)
    return ResumingReader(FsspecOrigin(fs, path, url, name), retry)


def _known(url: str, fs: Any, role: str) -> Any:
    """Return the class of a role in the module of a store.

    None if tarkit does not know the store, or if another library is registered for its scheme.
    """
    found = getattr(module_of(url), role, None)
    return found if found is not None and hasattr(fs, found.library_has) else None


def open_sink(url: str, name: str, *, if_absent: bool = False, sync: bool = True, retry: Retry = DEFAULT_RETRY) -> Sink:
    """Open a file to write, which appears at commit.

    Args:
        name: URL for messages.
        if_absent: True to publish only if the name does not exist. A store for which a module has
            the class ``STORE`` decides that itself, at commit. For other stores it is checked when
            opening and right before the upload, so two writers that finish at the same moment may
            both succeed; the file is complete.
        sync: not used.
    """
    fs, path = filesystem(url, name)
    store = _known(url, fs, "STORE")
    if store is None:
        return SpoolSink(fs, path, url, name, if_absent, retry)
    return ObjectSink(store(fs, path, os.urandom(16).hex(), if_absent), fs.loop, url, name, if_absent, retry)


def read_range(url: str, name: str, start: int, stop: int, size: int, retry: Retry) -> bytes:
    """Read a range of a file."""
    fs, path = filesystem(url, name)
    source = _known(url, fs, "SOURCE")
    if source is not None:
        return read_part(SourceOrigin(source(fs, path), url, name, stop), start, stop, size, retry)

    def some() -> bytes:
        # Open files of fsspec read far ahead; this requests only these bytes.
        fs.invalidate_cache(path)
        check_size(fs.info(path).get("size"), size, name)
        data = bytes(fs.cat_file(path, start=start, end=stop))
        if len(data) != stop - start:
            raise Dropped(f"{len(data)} bytes came, but {stop - start} were asked for")
        return data

    return ask(some, url=url, name=name, retry=retry)


def open_ranges(url: str, name: str) -> SourceRanges | None:
    """Return a reader of ranges by one request each; None for a store that tarkit does not know."""
    fs, path = filesystem(url, name)
    source = _known(url, fs, "SOURCE")
    return None if source is None else SourceRanges(source(fs, path), url, name)


def stat(url: str) -> Entry:
    """Return the entry of a file or folder."""
    return _entry(url, display_name(url).rstrip("/").rpartition("/")[2], _info(url))


def identify(url: str) -> Identity:
    """Return the size of a file, and a digest of all values that identify its content.

    The digest is None if the store reports only the size.
    """
    return identity_of_info(_info(url))


def _info(url: str) -> dict[str, Any]:
    """Return fsspec's ``info()`` of a file, from the store and not from a cache."""
    name = display_name(url)
    fs, path = filesystem(url, name)
    fs.invalidate_cache(path)
    return dict(ask(fs.info, path, url=url, name=name))


def _entry(url: str, name: str, info: dict[str, Any]) -> Entry:
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


def entries(url: str, recursive: bool) -> Iterator[Entry]:
    """Yield the entries of a folder."""
    name = display_name(url)
    fs, inner = filesystem(url, name)
    base = inner.rstrip("/")
    fs.invalidate_cache(inner)
    if recursive:
        found = list(ask(lambda: fs.find(base, detail=True).values(), url=url, name=name, seconds=_MANY_SECONDS))
    else:
        listed = ask(lambda: fs.ls(base, detail=True), url=url, name=name, seconds=_MANY_SECONDS)
        found = [info for info in listed if info["name"].rstrip("/") != base]
    for info in sorted(found, key=lambda item: str(item["name"])):
        path = str(info["name"]).rstrip("/")
        yield _entry(_url_of(fs, url, inner, path), path[len(base) :].strip("/"), info)


def _url_of(fs: Any, url: str, inner: str, path: str) -> str:
    # Listings come without the protocol and, from HDFS, without the host: both are taken from the
    # URL.
    if url.endswith(inner):
        return url[: len(url) - len(inner)] + path
    # abfs://CONTAINER@ACCOUNT/PATH has the account behind the container.
    folder = inner.partition("/")[2]
    if "@" in url and folder and url.endswith(folder):
        return url[: len(url) - len(folder)] + path.partition("/")[2]
    return str(fs.unstrip_protocol(path))


def glob(url: str) -> list[str]:
    """Return the URLs of the files that a pattern matches, sorted.

    Raises:
        UsageError: the file system cannot list.
    """
    name = display_name(url)
    fs, pattern = filesystem(url, name)

    def matches() -> list[str]:
        try:
            return sorted(fs.glob(pattern))
        except NotImplementedError:
            raise UsageError(f"{quoted(url)}: shards on this file system cannot be listed; name them") from None
        except ValueError as error:
            # For example, a ** that is not a whole part of the path.
            raise UsageError(f"{quoted(url)} is not a valid pattern: {printable(redact_text(str(error)))}") from None

    try:
        found = ask(matches, url=url, name=name, seconds=_MANY_SECONDS)
    except MissingInputError:
        return []
    return [_url_of(fs, url, pattern, path) for path in found]


def remove(url: str, name: str, is_folder: bool) -> None:
    """Remove a file or folder, but not a whole bucket."""
    fs, inner = filesystem(url, name)
    if "/" not in inner.strip("/"):
        raise UsageError(f"{name} is a whole bucket, which tarkit does not remove")
    try:
        if is_folder:
            ask(lambda: fs.rm(inner, recursive=True), url=url, name=name, seconds=_MANY_SECONDS)
        else:
            ask(fs.rm_file, inner, url=url, name=name)
    except MissingInputError:
        # An earlier attempt of this call may have removed it without an answer.
        return
    fs.invalidate_cache()
    if ask(fs.exists, inner, url=url, name=name):
        raise StreamError("still exists after it was removed", url=name)


class FsspecBody(Body):
    """The content of an open file from its current position on."""

    def __init__(self, file: Any, url: str, name: str, offset: int) -> None:
        self._file = file
        self._url = url
        self._name = name
        self._offset = offset

    def read(self, count: int) -> bytes:
        try:
            data = bytes(self._file.read(count))
        except Exception as error:
            self._raise(error)
        self._offset += len(data)
        return data

    def _raise(self, error: Exception) -> NoReturn:
        if type(error).__name__ == "FileExpired":
            # s3fs and fsspec: the name is that of another file than the one that was opened.
            reason = "the object was changed while it was read"
            raise StreamError(reason, url=self._name, offset=self._offset) from None
        raise_dropped(error, self._url, self._name, self._offset)

    def close(self) -> None:
        with suppress(Exception):  # Nothing was written, so nothing can be lost.
            self._file.close()


class FsspecOrigin(ReportedOrigin):
    """One file, identified by the marks of its file system: size, ETag, version, times."""

    def __init__(self, fs: Any, path: str, url: str, name: str) -> None:
        super().__init__(name)
        self._fs = fs
        self._path = path
        self._url = url

    def open_at(self, offset: int) -> Body:
        file = None
        try:
            file = self._fs.open(self._path, "rb")
            if offset or file.tell():
                file.seek(offset)
        except Exception as error:
            if file is not None:
                with suppress(Exception):
                    file.close()
            raise_dropped(error, self._url, self.name, offset if offset else None)
        return FsspecBody(file, self._url, self.name, offset)

    def report(self) -> tuple[dict[str, Any], Checksum | None]:
        # The request goes to the store, not to a cache.
        self._fs.invalidate_cache(self._path)
        info = translated(self._url, self.name, self._fs.info, self._path)
        if info.get("type") == "directory":
            raise StreamError("is a directory, not a file", url=self.name)
        return info_marks(info), from_info(info)
