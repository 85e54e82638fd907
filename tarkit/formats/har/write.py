"""Write files to a Hadoop archive of version 3."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from tarkit.errors import AlreadyPublishedError, EncodeError, MissingInputError, TarkitError, UsageError
from tarkit.formats.har.index import INDEX, MASTER_INDEX, encode_index, file_line, folder_line, properties
from tarkit.names.url import display_name, join, local_path
from tarkit.store.entries import entries, exists, remove, remove_left_behind
from tarkit.store.publish import PublishStream, WholeOutput, open_publish
from tarkit.store.read import open_read


class _ComparingSink:
    """A stand-in for a file of an existing archive, which accepts only the bytes of the file."""

    def __init__(self, archive: str, name: str) -> None:
        self._master = display_name(join(archive, MASTER_INDEX))
        try:
            self._stream = open_read(join(archive, name), compression=None)
        except MissingInputError:
            raise self._differs() from None

    def write(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            found = self._stream.read(len(rest))
            if not found or rest[: len(found)] != found:
                raise self._differs()
            rest = rest[len(found) :]

    def commit(self) -> None:
        if self._stream.read(1):
            raise self._differs()
        self._stream.close()

    def discard(self) -> None:
        self._stream.close()

    def _differs(self) -> AlreadyPublishedError:
        return AlreadyPublishedError("a different archive exists already", url=self._master, hint="remove it first")


@dataclass
class _Part:
    """A file of contents that is being written."""

    name: str
    out: PublishStream


class HarWriter(WholeOutput):
    """A writer of one archive.

    Its ``_masterindex`` is published last; without that, the folder is not an archive.

    If several writers write one archive, one succeeds and the other writers publish nothing. Files
    of a writer that was killed while it published are replaced.

    The same files and arguments give the same bytes. A context manager: an exception discards the
    archive.

    >>> with HarWriter("hdfs://nn:8020/data/photos.har") as writer:  # doctest: +SKIP
    ...     writer.write("a/1.jpg", b"...")

    Args:
        target: path or URL of the folder, by custom with ``.har`` at its end. An existing archive
            stays: the bytes written are compared with it, so that a run that was killed at its end
            can be repeated.
        part_size: size of the contents in bytes at which the next part begins.
        mtime: time of change in seconds since 1970, for folders, and for files that are written
            without one.
        owner: owner of all files and folders.
        group: group of all files and folders.

    Raises:
        AlreadyPublishedError: (from write and close) an archive with different bytes exists, or
            another writer publishes one.
        StreamError: the archive cannot be written.
        UsageError: the protocol of the URL is not known.
    """

    def __init__(
        self,
        target: str | os.PathLike[str],
        *,
        part_size: int = 2 << 30,
        mtime: float = 0,
        owner: str = "bigdata",
        group: str = "bigdata",
    ) -> None:
        if part_size < 1:
            raise UsageError(f"part_size is {part_size}; it must be positive")
        self._target = os.fspath(target)
        self.name = display_name(self._target)
        self.files = 0
        self._part_size = part_size
        self._mtime = mtime
        self._owner = (owner, group)
        self._lines: dict[str, str] = {}
        self._folders: dict[str, list[str]] = {"/": []}
        self._parts: list[_Part] = []
        self._closed = False
        self._left_behind: set[str] = set()
        self._published: list[str] = []
        self._is_new = not exists(self._target)
        self._is_there = not self._is_new and self._has_master()
        if not self._is_new:
            self._left_behind = {entry.name for entry in entries(self._target)}

    def _has_master(self) -> bool:
        return exists(join(self._target, MASTER_INDEX))

    def _open(self, name: str) -> PublishStream:
        """Open a file of the archive.

        A file that did not exist at the beginning belongs to another writer, and stays.
        """
        if self._is_there:
            return PublishStream(_ComparingSink(self._target, name), display_name(join(self._target, name)), None)
        if_absent = name not in self._left_behind
        return open_publish(join(self._target, name), compression=None, if_absent=if_absent)

    def write(
        self, name: str, content: bytes | Iterable[bytes], *, mtime: float | None = None, mode: int = 0o644
    ) -> None:
        """Add one file.

        Args:
            name: path in the archive, without a slash at the beginning.
            content: bytes, or pieces.
            mtime: time of change in seconds since 1970; None: that of the writer.
            mode: permission bits.

        Raises:
            EncodeError: the name is not valid in an archive, or exists already.
            StreamError: the file cannot be written.
        """
        folders = self._check(name)
        out = self._part()
        offset = out.bytes_written
        for piece in (content,) if isinstance(content, (bytes, bytearray, memoryview)) else content:
            out.write(piece)
        size = out.bytes_written - offset
        out.unpublished.count += 1
        props = self._props(self._mtime if mtime is None else mtime, mode)
        path = f"/{name}"
        self._lines[path] = file_line(path, self._parts[-1].name, offset, size, props)
        for folder, below in zip(folders, [*folders[1:], path], strict=True):
            # A new folder is listed in its parent, the file in the last folder.
            if below not in self._folders:
                self._folders.setdefault(folder, []).append(below.rpartition("/")[2])
        for folder in folders:
            self._folders.setdefault(folder, [])
        self.files += 1

    def _check(self, name: str) -> list[str]:
        """Check a name; return the paths of the folders that contain the file, the root first."""
        parts = name.split("/")
        folders = ["/"] + ["/" + "/".join(parts[:count]) for count in range(1, len(parts))]
        reason = None
        if any(part in ("", ".", "..") for part in parts):
            reason = "this path is not valid: no part of it may be empty, . or .."
        elif not _is_unicode(name):
            reason = "this name is not UTF-8, so Hadoop would read a different name"
        elif f"/{name}" in self._lines or f"/{name}" in self._folders:
            reason = "the archive has this path already"
        elif any(folder in self._lines for folder in folders):
            reason = "a file of the archive has the path of a folder that would contain this file"
        if reason is not None:
            raise EncodeError(reason, url=self.name, member=name)
        return folders

    def _part(self) -> PublishStream:
        if self._closed:
            raise UsageError(f"{self.name}: the archive is closed")
        if not self._parts or self._parts[-1].out.bytes_written >= self._part_size:
            name = f"part-{len(self._parts)}"
            self._parts.append(_Part(name, self._open(name)))
            self._parts[-1].out.unpublished.unit = "file"
        return self._parts[-1].out

    def _props(self, mtime: float, mode: int) -> str:
        return properties(mtime, mode, *self._owner)

    def close(self) -> None:
        if self._closed:
            return
        self._part()
        if not self._is_there and self._has_master():
            master = display_name(join(self._target, MASTER_INDEX))
            raise AlreadyPublishedError("another writer has published an archive", url=master, hint="remove it first")
        for part in self._parts:
            part.out.commit()
            self._published.append(part.name)
        for name, content in zip((INDEX, MASTER_INDEX), self._index(), strict=True):
            with self._open(name) as out:
                out.write(content)
            self._published.append(name)
        self._closed = True
        if self._is_there and local_path(self._target) is not None:
            for _ in remove_left_behind(self._target, older_than=0, now=0):
                pass

    def _index(self) -> tuple[bytes, bytes]:
        """Return (_index, _masterindex)."""
        lines = dict(self._lines)
        for path, names in self._folders.items():
            lines[path] = folder_line(path, self._props(self._mtime, 0o755), names)
        return encode_index(lines)

    def discard(self) -> None:
        if self._closed:
            return
        self._closed = True
        for part in self._parts:
            part.out.discard()
        # The first error is reported, not a failure to remove the rest.
        with suppress(TarkitError):
            # Without its last file it is not an archive, unless another writer published that.
            if self._published and not self._has_master():
                for name in self._published:
                    remove(join(self._target, name))
            # On file systems with folders, writing has made one.
            if self._is_new and not any(entries(self._target)):
                remove(self._target, recursive=True)


def _is_unicode(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
