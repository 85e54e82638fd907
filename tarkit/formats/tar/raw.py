"""Read the members of an archive as raw bytes: copied to an output, or taken one by one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tarkit.errors import DataError, UnsupportedMemberError, printable
from tarkit.formats.tally import Tally
from tarkit.formats.tar import headers
from tarkit.formats.tar.headers import BLOCK, MemberHeader
from tarkit.formats.tar.large import IN_PLACE, KeepInFiles
from tarkit.formats.tar.resync import resynchronise
from tarkit.formats.tar.walk import Archive, LargeMembers, Member
from tarkit.store.fieldfile import LARGE, FieldFile
from tarkit.store.inplace import InPlaceReader

_GLOBAL = ord("g")
_HARMLESS_GLOBALS = frozenset(("comment",))


class FarReachingError(UnsupportedMemberError):
    """A global extended header would change the meaning of another archive's members."""


class _Recording:
    """A stream that keeps its bytes until they are passed on or dropped, for access by offset."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._pieces = deque[bytes]()  # of reads, never empty, from offset _first to _end of the stream
        self._first = self._end = 0
        self._kept = 0  # offset of the first byte that was not dropped; the piece with it may have others

    def read(self, count: int) -> bytes:
        data = self._read(count)
        if data:
            self._pieces.append(data)
            self._end += len(data)
        return data

    def between(self, start: int, end: int) -> bytes:
        """Return the bytes between two offsets, as far as they were read and not dropped."""
        if self._pieces and start >= (at := self._end - len(self._pieces[-1])):
            return self._pieces[-1][start - at : end - at]
        found, at = [], self._first
        for piece in self._pieces:
            if at >= end:
                break
            found.append(piece[max(0, start - at) : end - at])
            at += len(piece)
        return b"".join(found)

    def drop(self, end: int, write: Callable[[bytes], object] | None = None) -> None:
        """Drop the bytes before this offset, and write them first if ``write`` is given."""
        end = min(max(end, self._kept), self._end)
        if write is not None and end > self._kept:
            write(self.between(self._kept, end))
        self._kept = end
        while self._pieces and self._first + len(self._pieces[0]) <= end:
            self._first += len(self._pieces.popleft())


class _InFile:
    """The same for a plain local file: nothing is held, and spans of the file are passed on."""

    def __init__(self, reader: InPlaceReader) -> None:
        self._reader = reader
        self._start = self._end = 0  # the span that is not passed on yet
        self._write: Callable[[FieldFile], object] | None = None
        self.read = reader.read

    def between(self, start: int, end: int) -> bytes:
        return self._reader.part(start, end).read()

    def drop(self, end: int, write: Callable[[FieldFile], object] | None = None) -> None:
        end = max(self._end, min(end, self._reader.position))
        if write is None or end - self._start > LARGE:
            if self._write is not None and self._end > self._start:
                self._write(self._reader.part(self._start, self._end))
            self._start = self._end if write else end
        self._end, self._write = end, write


class RawMember(NamedTuple):
    """The raw bytes of a member.

    Attributes:
        head: its header, with those that extend it.
        content: its content.
        padding: the zeros after it.
    """

    head: bytes
    content: bytes | FieldFile
    padding: bytes


def contents(sample: dict[str, Any]) -> dict[str, Any]:
    """Return a sample of raw members with their content only."""
    return {name: value.content if isinstance(value, RawMember) else value for name, value in sample.items()}


class _CopyLarge(LargeMembers):
    """A policy that copies large content to the output while it is read, or from its file."""

    member_limit = LARGE

    def take(self, archive: Archive, name: str, size: int) -> bytes:
        if isinstance(archive, RawArchive) and archive.in_place is not None:
            archive.skip(size, name, archive.in_place.skip)
        elif isinstance(archive, RawArchive):
            for _ in archive.pieces(name, size):
                archive.pass_on(archive.base + archive.position)
        return b""


class _KeepLarge(KeepInFiles):
    """A policy that keeps large content in a file, which may be its shard."""

    def take(self, archive: Archive, name: str, size: int) -> Any:
        if not isinstance(archive, RawArchive):
            return super().take(archive, name, size)
        start = archive.base + archive.position
        head = archive.recording.between(archive.header_offset, start)
        if archive.in_place is not None:
            archive.skip(size, name, archive.in_place.skip)
            return RawMember(head, archive.in_place.part(start, start + size, name), bytes(-size % BLOCK))

        def pieces() -> Iterator[bytes]:
            for piece in archive.pieces(name, size):
                archive.let_go(archive.base + archive.position)
                yield piece

        return RawMember(head, FieldFile.keep(pieces(), url=archive.url, member=name), bytes(-size % BLOCK))

    def spill(self, sample: dict[str, Any], name: str, content: Any) -> Any:
        return content._replace(content=super().spill(contents(sample), name, content.content))


class RawArchive(Archive):
    """An archive for raw copies, which rejects global headers that would affect other archives.

    Args:
        read: function that returns up to n bytes.
        url: URL of the shard, for errors.
        in_sample: function that returns True if a name is part of a sample.
        tally: filled with counts and damage.
        globals_seen: at most one error, which is raised when another archive begins after that
            header.
        write: function that receives all members, in order; None if only the members of samples are
            wanted, as :class:`RawMember`.
        in_place: reader of the shard if it is a plain local file; large content is then not read,
            and ``write`` also receives parts of that file.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        url: str,
        in_sample: Callable[[str], bool],
        tally: Tally,
        globals_seen: list[FarReachingError],
        write: Callable[[Any], object] | None,
        in_place: InPlaceReader | None = None,
    ) -> None:
        self.recording: _Recording | _InFile = _Recording(read) if in_place is None else _InFile(in_place)
        self.in_place = in_place
        large = _KeepLarge() if write is None else _CopyLarge()
        large.member_limit = large.member_limit if in_place is None else IN_PLACE
        super().__init__(self.recording.read, url, tally, in_sample, large)
        self._in_zeros = False
        self._write = write
        self._globals_seen = globals_seen
        self._foreign_globals = globals_seen[:]

    def pass_on(self, end: int) -> None:
        """Write the bytes before this offset, if all members are wanted."""
        if self._write is not None:
            self.recording.drop(end, self._write)

    def let_go(self, end: int) -> None:
        """Drop the bytes before this offset, which may be those of members that were yielded."""
        self.recording.drop(end)

    def pass_over(self, name: bytes, reason: str) -> None:
        if self._write is None:
            super().pass_over(name, reason)
        else:
            # It can be copied unchanged.
            self.tally.skip(reason)

    def skip_zeros(self) -> bool:
        self._foreign_globals = self._globals_seen[:]
        self.pass_on(self.base + self.position)
        self._in_zeros = True
        another = super().skip_zeros()
        self._in_zeros = False
        self.let_go(self.base + self.position)
        return another

    def fill(self, want: int) -> bool:
        if self._in_zeros:
            # There can be gigabytes of zeros.
            self.let_go(self.base + self.position)
        return super().fill(want)

    def verified(self, header_bytes: bytes) -> MemberHeader:
        header = super().verified(header_bytes)
        if self._foreign_globals:
            raise self._foreign_globals[0]
        return header

    def extend(self, header: MemberHeader, records: dict[str, bytes]) -> None:
        start = self.base + self.position
        super().extend(header, records)
        if header.kind != _GLOBAL or self._globals_seen:
            return
        found = headers.parse_pax(self.recording.between(start, start + header.size))
        far_reaching = sorted(set(found) - _HARMLESS_GLOBALS)
        if far_reaching:
            reason = (
                f"a global extended header sets {printable(', '.join(far_reaching))} for all members after it; "
                "in one shard that would include the members of other archives"
            )
            hint = "make this shard without it, or pass it last"
            self._globals_seen.append(FarReachingError(reason, url=self.url, offset=self.header_offset, hint=hint))


def copied_members(archive: RawArchive) -> Iterator[Member]:
    """Copy all members to the output; yield the files without their content, and marks."""
    for name, _, offset in archive.members():
        # The padding of this member was not read yet; it is written with the next one.
        archive.pass_on(archive.base + archive.position)
        yield name, b"", offset


def raw_members(archive: RawArchive, on_damage: str) -> Iterator[Member]:
    """Yield files as :class:`RawMember`, padded with zeros.

    Args:
        archive: the archive, without an output.
        on_damage: error; or skip: resume after damage.
    """
    recording = archive.recording
    while True:
        try:
            for name, content, offset in archive.members():
                end = archive.base + archive.position
                if name and isinstance(content, bytes):
                    padding = -len(content) % BLOCK
                    head = recording.between(offset, end - padding - len(content))
                    content = RawMember(head, content, bytes(padding))
                recording.drop(end)
                yield name, content, offset if name else end
            return
        except FarReachingError:
            raise
        except DataError as error:
            if on_damage == "error" or not archive.begun:
                raise
            yield resynchronise(archive, error)
            if archive.ended:
                return
            recording.drop(archive.base + archive.position)
