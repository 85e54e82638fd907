"""Read the members of an archive as raw bytes: copied to an output, or taken one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from tarkit.errors import DataError, UnsupportedMemberError, printable
from tarkit.formats.tally import Tally
from tarkit.formats.tar import headers
from tarkit.formats.tar.headers import BLOCK, MemberHeader
from tarkit.formats.tar.large import KeepInFiles
from tarkit.formats.tar.resync import resynchronise
from tarkit.formats.tar.walk import Archive, LargeMembers, Member
from tarkit.store.fieldfile import LARGE, FieldFile

_GLOBAL = ord("g")
_HARMLESS_GLOBALS = frozenset(("comment",))


class FarReachingError(UnsupportedMemberError):
    """A global extended header would change the meaning of another archive's members."""


class _Recording:
    """A stream that keeps its bytes until they are passed on or dropped, for access by offset."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._held = bytearray()
        self._start = 0  # offset in the stream of the first byte held

    def read(self, count: int) -> bytes:
        data = self._read(count)
        self._held += data
        return data

    def between(self, start: int, end: int) -> bytes:
        """Return the bytes between two offsets, as far as they were read and not dropped."""
        with memoryview(self._held) as view:
            return bytes(view[start - self._start : end - self._start])

    def drop(self, end: int, write: Callable[[bytes], object] | None = None) -> None:
        """Drop the bytes before this offset, and write them first if ``write`` is given."""
        cut = min(max(0, end - self._start), len(self._held))
        if write is not None and cut:
            write(bytes(memoryview(self._held)[:cut]))
        del self._held[:cut]
        self._start += cut


class _CopyLarge(LargeMembers):
    """A policy that copies large content to the output while it is read."""

    member_limit = LARGE

    def take(self, archive: Archive, name: str, size: int) -> bytes:
        if isinstance(archive, RawArchive):
            for _ in archive.pieces(name, size):
                archive.pass_on(archive.base + archive.position)
        return b""


class _KeepLarge(KeepInFiles):
    """A policy that keeps the raw bytes of a large member in parts.

    They are the bytes before its content, the content in a file, and the padding.
    """

    def take(self, archive: Archive, name: str, size: int) -> Any:
        if not isinstance(archive, RawArchive):
            return super().take(archive, name, size)
        recording = archive.recording
        head = recording.between(archive.header_offset, archive.base + archive.position)

        def pieces() -> Iterator[bytes]:
            for piece in archive.pieces(name, size):
                recording.drop(archive.base + archive.position)
                yield piece

        return [head, FieldFile.keep(pieces(), url=archive.url, member=name), bytes(-size % BLOCK)]

    def spill(self, sample: dict[str, Any], name: str, content: Any) -> Any:
        return super().spill(sample, name, content) if isinstance(content, bytes) else content


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
            wanted, as raw bytes.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        url: str,
        in_sample: Callable[[str], bool],
        tally: Tally,
        globals_seen: list[FarReachingError],
        write: Callable[[bytes], object] | None,
    ) -> None:
        self.recording = _Recording(read)
        super().__init__(self.recording.read, url, tally, in_sample, _KeepLarge() if write is None else _CopyLarge())
        self._in_zeros = False
        self._write = write
        self._globals_seen = globals_seen
        self._foreign_globals = globals_seen[:]

    def pass_on(self, end: int) -> None:
        """Write the bytes before this offset, if all members are wanted."""
        if self._write is not None:
            self.recording.drop(end, self._write)

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
        self.recording.drop(self.base + self.position)
        return another

    def fill(self, want: int) -> bool:
        if self._in_zeros:
            # There can be gigabytes of zeros.
            self.recording.drop(self.base + self.position)
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


def raw_members_beside_damage(archive: RawArchive) -> Iterator[Member]:
    """Yield files as raw bytes, or in parts, padded with zeros; resume after damage."""
    recording = archive.recording
    while True:
        try:
            for name, content, offset in archive.members():
                end = archive.base + archive.position
                if name and isinstance(content, bytes):
                    padding = -len(content) % BLOCK
                    content = recording.between(offset, end - padding) + bytes(padding)
                recording.drop(end)
                yield name, content, offset if name else end
            return
        except FarReachingError:
            raise
        except DataError as error:
            if not archive.begun:
                raise
            yield resynchronise(archive, error)
            if archive.ended:
                return
            recording.drop(archive.base + archive.position)


def write_raw(raw: Any, write: Callable[[bytes], object]) -> None:
    """Write bytes, a file of bytes, or a list of both."""
    for part in raw if isinstance(raw, list) else [raw]:
        for piece in part.pieces() if isinstance(part, FieldFile) else [part]:
            write(piece)
