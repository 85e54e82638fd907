"""Policies for members that are too large for memory: skip, reject, or keep in files."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tarkit.errors import TooLargeError
from tarkit.formats.tally import DEFAULT_MEM, LARGER_MEM
from tarkit.formats.tar.walk import Archive, LargeMembers
from tarkit.store.fieldfile import LARGE, FieldFile
from tarkit.store.inplace import InPlaceReader

IN_PLACE = 64 * 1024
"""Size in bytes above which content is left in a plain local file."""


class SkipLarge(LargeMembers):
    """A policy that skips large content, and delivers a range of its length in its place.

    Args:
        member_limit: size of the largest member that is delivered, in bytes.
        sample_limit: bytes of the shard that a sample may span; its further members are replaced.
        skip: function that skips bytes behind those that were read, or returns False: they are
            then read.
    """

    def __init__(
        self, member_limit: int = 0, sample_limit: int = sys.maxsize, skip: Callable[[int], bool] = lambda count: False
    ) -> None:
        self.member_limit = member_limit
        self.sample_limit = sample_limit
        self._skip = skip

    def take(self, archive: Archive, name: str, size: int) -> range:
        archive.skip(size, name, self._skip)
        return range(size)

    def spill(self, sample: dict[str, Any], name: str, content: Any) -> range:
        return range(len(content))


class RefuseLarge(LargeMembers):
    """A policy that raises an error, with the name of the member, before large content is read.

    Args:
        mem: largest size of one sample in bytes.
    """

    def __init__(self, mem: int = DEFAULT_MEM) -> None:
        self.member_limit = self.sample_limit = mem

    def take(self, archive: Archive, name: str, size: int) -> Any:
        reason = f"this member has {size} bytes, more than a sample in memory may have (mem={self.member_limit})"
        hint = f"pass --mem {size + size // 8} (mem=) or more"
        raise TooLargeError(reason, url=archive.url, offset=archive.header_offset, member=name, hint=hint)

    def spill(self, sample: dict[str, Any], name: str, content: Any) -> Any:
        reason = f"with this member the sample has more bytes than one in memory may have (mem={self.sample_limit})"
        hint = f"pass {LARGER_MEM}"
        raise TooLargeError(reason, url=sample["__url__"], member=name, key=sample["__key__"], hint=hint)


class KeepInFiles(LargeMembers):
    """A policy that delivers a :class:`FieldFile` for large content.

    That is a member of more than ``member_limit`` bytes, and the further members of a sample that
    spans more than ``sample_limit``.

    Args:
        folder: folder for the files, which have no names; None: that of the system (``$TMPDIR``).
        member_limit: size of a member in bytes.
        sample_limit: bytes of the shard that a sample may span.
    """

    def __init__(self, folder: str | None = None, member_limit: int = LARGE, sample_limit: int = 2 * LARGE) -> None:
        self._folder = folder
        self.member_limit = member_limit
        self.sample_limit = sample_limit

    def take(self, archive: Archive, name: str, size: int) -> FieldFile:
        return FieldFile.keep(archive.pieces(name, size), self._folder, url=archive.url, member=name)

    def spill(self, sample: dict[str, Any], name: str, content: Any) -> FieldFile:
        if isinstance(content, FieldFile):
            return content
        files = (value for value in reversed(sample.values()) if isinstance(value, FieldFile) and value.is_kept)
        return FieldFile.keep([content], self._folder, after=next(files, None), url=sample["__url__"], member=name)


class InPlace(KeepInFiles):
    """A policy that leaves content of more than 64 KiB in its shard, a plain local file."""

    def __init__(self, reader: InPlaceReader) -> None:
        super().__init__(member_limit=IN_PLACE)
        self.reader = reader

    def take(self, archive: Archive, name: str, size: int) -> FieldFile:
        start = archive.base + archive.position
        archive.skip(size, name, self.reader.skip)
        return self.reader.part(start, start + size, name)
