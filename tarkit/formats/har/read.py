"""Read Hadoop archives: the index as a whole, contents in place."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator

from tarkit.errors import MissingInputError, TooLargeError, TruncatedError, UsageError, printable
from tarkit.formats.har.index import INDEX, MASTER_INDEX, HarEntry, check_master, parse_index
from tarkit.formats.tally import CUT_HINT, DAMAGE_POLICIES, DEFAULT_MEM, LARGER_MEM, Tally, check_policy
from tarkit.names.url import display_name, join
from tarkit.store.entries import Identity, check_same, identify
from tarkit.store.read import open_read, read_range, read_whole
from tarkit.store.window import Window

_HADOOP_URL = re.compile(r"har://(?:([a-z0-9+.]+)-([^/]*))?(/.*)")


class HarArchive:
    """A reader of one archive at any place of the store.

    Its index is read at once and kept in memory; contents are read in place.

    >>> archive = HarArchive("s3://bucket/photos.har")  # doctest: +SKIP
    >>> archive.names()  # doctest: +SKIP
    ['a/1.jpg', 'a/1.cls']

    Args:
        url: path or URL of the folder; also Hadoop's form ``har://hdfs-namenode:port/path/x.har``.

    Raises:
        MissingInputError: the archive does not exist.
        DataError: the index is damaged.
        TruncatedError: the index is cut.
        StreamError: the archive cannot be read, or (from the methods) was replaced after its index
            was read.
        TemporaryStreamError: the archive cannot be read now.
        UsageError: the protocol of the URL is not known.
    """

    def __init__(self, url: str | os.PathLike[str]) -> None:
        self._url = _plain_url(os.fspath(url))
        self.name = display_name(self._url)
        index = join(self._url, INDEX)
        self._master = identify(join(self._url, MASTER_INDEX))
        master = read_whole(join(self._url, MASTER_INDEX), compression=None)
        text = read_whole(index, compression=None)
        self.version = check_master(master, len(text), display_name(join(self._url, MASTER_INDEX)))
        self._entries = parse_index(text, self.version, display_name(index))
        self._parts: dict[str, Identity] = {}
        """Parts that were read, with the identity that they had then."""

    def __len__(self) -> int:
        return len(self._entries)

    def names(self) -> list[str]:
        """List the paths of all files, in the order of their contents."""
        return list(self._entries)

    def entries(self) -> list[HarEntry]:
        """List all files, in the order of their contents."""
        return list(self._entries.values())

    def read(self, name: str, *, mem: int | None = None) -> bytes:
        """Read the content of a file, by one request for exactly its bytes.

        Args:
            name: path in the archive.
            mem: largest size of the file in bytes; None: no limit.

        Raises:
            TooLargeError: the file has more than ``mem`` bytes.
            MissingInputError: the archive has no such file.
            TruncatedError: the part ends before the end of the file.
            StreamError: the part cannot be read, or was replaced.
            TemporaryStreamError: the part cannot be read now.
            DataError: the part was replaced by one of a different length.
        """
        entry = self._entries.get(name)
        if entry is None:
            raise MissingInputError("no such file in this archive", url=self.name, member=name)
        if mem is not None:
            self._check_mem(entry, mem)
        url = join(self._url, entry.part)
        size = self._size_of(entry.part)
        if entry.offset + entry.size > size:
            raise _cut_part(entry, display_name(url), size)
        content = read_range(url, entry.offset, entry.offset + entry.size, size=size)
        check_same(url, self._parts[entry.part])
        return content

    def items(
        self, *, on_damage: str = "error", tally: Tally | None = None, mem: int = DEFAULT_MEM
    ) -> Iterator[tuple[str, bytes]]:
        """Yield (name, content) of all files, in the order of their contents.

        Each part is read once, front to back.

        Args:
            on_damage: error, or skip the files that are missing because a part was cut; they are
                recorded in ``tally``.
            tally: members counts the delivered files, damage lists the lost bytes.
            mem: largest size of a file in bytes.

        Raises:
            TooLargeError: a file has more than ``mem`` bytes.
            TruncatedError: a part was cut, and ``on_damage`` is error.
            StreamError: a part cannot be read, or was replaced.
            TemporaryStreamError: a part cannot be read now.
        """
        tally = Tally() if tally is None else tally
        for part, entries in itertools.groupby(self._whole(on_damage, tally), key=lambda entry: entry.part):
            for entry, content in self._items_of(part, entries, mem):
                yield entry.name, content
                tally.members += 1
            check_same(join(self._url, part), self._parts[part])

    def sizes(self, *, on_damage: str = "error", tally: Tally | None = None) -> Iterator[tuple[str, int]]:
        """Yield (name, size) of all files, in the order of their contents, which are not read.

        Args:
            on_damage: error, or skip the files that are missing because a part was cut.
            tally: see :meth:`items`.

        Raises:
            TruncatedError: a part was cut, and ``on_damage`` is error.
            StreamError: a part cannot be read, or was replaced.
            TemporaryStreamError: a part cannot be read now.
        """
        tally = Tally() if tally is None else tally
        for entry in self._whole(on_damage, tally):
            yield entry.name, entry.size
            tally.members += 1

    def _whole(self, on_damage: str, tally: Tally) -> Iterator[HarEntry]:
        """Yield the files whose parts are long enough to have all of their content."""
        check_policy("on_damage", on_damage, DAMAGE_POLICIES)
        for number, entry in enumerate(self._entries.values()):
            size, end, url = self._size_of(entry.part), entry.offset + entry.size, join(self._url, entry.part)
            if end <= size:
                yield entry
            elif on_damage == "error":
                raise _cut_part(entry, display_name(url), size)
            else:
                reason = f"record {number}: the part ends before the end of {printable(entry.name)}"
                tally.damage.append((display_name(url), min(entry.offset, size), end, reason))

    def _items_of(self, part: str, entries: Iterable[HarEntry], mem: int) -> Iterator[tuple[HarEntry, bytes]]:
        """Yield the files of a part with their contents."""
        with open_read(join(self._url, part), compression=None) as stream:
            window = Window(stream.read)
            for entry in entries:
                self._check_mem(entry, mem)
                if entry.offset < window.offset:
                    # Two files share bytes.
                    yield entry, self.read(entry.name)
                    continue
                window.skip_to(entry.offset)
                content = window.peek(entry.size)
                if len(content) != entry.size:
                    raise _cut_part(entry, stream.name, window.offset + window.held)
                window.at += entry.size
                yield entry, content

    def _check_mem(self, entry: HarEntry, mem: int) -> None:
        if entry.size > mem:
            reason = f"the file has {entry.size} bytes, and mem allows {mem}"
            raise TooLargeError(reason, url=self.name, member=entry.name, hint=f"read it with {LARGER_MEM}")

    def _size_of(self, part: str) -> int:
        url = join(self._url, part)
        if part not in self._parts:
            self._parts[part] = identify(url)
            # A different archive may have been published since the index was read: the master index
            # is compared.
            check_same(join(self._url, MASTER_INDEX), self._master)
        size = self._parts[part].size
        if size is None:
            raise UsageError(f"{display_name(url)}: its length is not known, so it cannot be read in parts")
        return size


def _cut_part(entry: HarEntry, url: str, size: int) -> TruncatedError:
    reason = f"the part ends at byte {size}, before the end of this file at {entry.offset + entry.size}"
    return TruncatedError(reason, url=url, offset=entry.offset, member=entry.name, hint=CUT_HINT)


def _plain_url(url: str) -> str:
    """Convert ``har://hdfs-host:port/path`` to hdfs://host:port/path; other URLs stay."""
    if not url.startswith("har:"):
        return url
    match = _HADOOP_URL.fullmatch(url)
    if match is None or match[1] is None:
        raise UsageError(
            f"{display_name(url)} does not name a file system, and tarkit has no default one; "
            "use har://hdfs-HOST:PORT/PATH, or the URL of the archive's folder"
        )
    return f"{match[1]}://{match[2]}{match[3]}"
