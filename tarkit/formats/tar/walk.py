"""Walk a tar stream from front to back: the position in it, and the state of the reader.

The walk never seeks, reads in big pieces, and copies each byte once or twice; large content of a
plain local file only once. It knows bytes and headers only; :mod:`tarkit.samples.sample` defines
samples.
"""

from __future__ import annotations

import struct
import sys
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from zlib import adler32

from tarkit.errors import CorruptHeaderError, NotATarError, TruncatedError, UnsupportedMemberError
from tarkit.formats.tally import CUT_HINT, DAMAGED_HINT, SKIP_DAMAGE, Tally
from tarkit.formats.tar import headers
from tarkit.formats.tar.headers import BLOCK, ZERO_BLOCK, MemberHeader
from tarkit.store.fieldfile import PIECE

READ_SIZE = 256 * 1024
"""Size of one read in bytes: two fit the second-level cache, and a photo is smaller."""

_MAX_EXTENDED = 16 * 1024 * 1024
_MAX_REMEMBERED = 100_000
_MAX_PIECE = 64 * 1024 * 1024
_LEAST_WHOLE = 64 * 1024
"""Size in bytes from which a read of its own takes less time than a copy out of the buffer."""
VARYING = struct.Struct("100s24x12s12x8s")
"""The part of a header before the type, which differs in each member: name, size, checksum."""
_HEADER = struct.Struct(VARYING.format + "356s")
_TYPE = VARYING.size
_LONG_NAME, _LONG_LINK, _PAX, _PAX_SOLARIS, _PAX_GLOBAL, _SPARSE = b"LKxXgS"
EXTENDED_TYPES = frozenset(b"LKxXg")
MAGIC = b"ustar"
"""Bytes at offset 257 of every header except those of v7."""

Member = tuple[str, Any, int]
"""(name, content, byte offset of its header) of one file of an archive.

The content is bytes, or a stand-in for content that is too large for memory
(:mod:`tarkit.formats.tar.large`). With a name of "" it is a mark, and the content is its kind. b"":
an archive ends, and the next file belongs to another sample. LOST_STRETCH: bytes were lost to
damage. Other bytes: the name of a member whose content cannot be delivered.
"""

LOST_STRETCH = b"\0"
"""Content of a mark for lost bytes; never a member's name."""

_ARCHIVE_END: Member = ("", b"", 0)


class LargeMembers:
    """The policy for members that are too large for memory.

    This one keeps all in memory; see :mod:`tarkit.formats.tar.large` for other policies.

    Attributes:
        member_limit: size of a member in bytes above which take() returns a stand-in for its
            content.
        sample_limit: bytes of the shard that a sample spans; after it spill() replaces content.
    """

    member_limit = sys.maxsize
    sample_limit = sys.maxsize

    def take(self, archive: Archive, name: str, size: int) -> Any:
        """Return the content of a member, read by ``archive.pieces(name, size)``, or a stand-in."""
        return archive.take(size, name)

    def spill(self, sample: dict[str, Any], name: str, content: Any) -> Any:
        """Return the value of a field in a sample that is too large already."""
        return content


class Archive:
    """A position in a tar stream: the bytes that are read but not used, and the reader's state.

    Args:
        read: function that reads up to n bytes; b"" at the end.
        url: URL of the shard, for errors.
        tally: filled with counts and damage.
        in_sample: function that returns True if a name is part of a sample.
        large: policy for members that are too large for memory; None: all are kept in memory.
        take_whole: function that reads content at once, such as
            :meth:`tarkit.store.inplace.InPlaceReader.take`; None: it comes through ``read``.
    """

    def __init__(
        self,
        read: Callable[[int], bytes],
        url: str,
        tally: Tally,
        in_sample: Callable[[str], bool],
        large: LargeMembers | None = None,
        take_whole: Callable[[int, int], bytes | None] | None = None,
    ) -> None:
        self.read = read
        self.take_whole = take_whole
        self.url = url
        self.tally = tally
        self.in_sample = in_sample
        self.large = LargeMembers() if large is None else large
        self.buffer = b""
        self.position = 0  # in buffer, of the next byte to use; may lie beyond its end, in padding
        self.base = 0  # offset in the stream of buffer[0]
        self.header_offset = 0  # offset in the stream of the header that is being worked on
        self.begun = False  # a good header or an end-of-archive mark was seen
        self.ended = False
        self.after_mark = False  # only zero blocks since the last member
        self.sums: dict[bytes, int] = {}  # checksum field -> sum of the bytes before plain_tail in a good header
        self.sizes: dict[bytes, int] = {}  # size field -> the number that it plainly is
        self.plain_tail: bytes | None = None  # bytes 156… of the last plain regular file's header
        self.extending = False  # inside an extended header, which belongs to the member after it
        self.drop_next = False  # the next member has lost its extended header

    def members(self) -> Iterator[Member]:
        """Yield the members of the archive; the speed of all reading depends on this loop.

        A header that equals the last one except for name, size and checksum is parsed here; every
        other header by next_member().
        """
        unpack, sums, sizes = _HEADER.unpack_from, self.sums, self.sizes
        buffer, position, limit, base = self.buffer, self.position, len(self.buffer), self.base
        plain_tail = self.plain_tail
        while True:
            body = position + BLOCK
            if body > limit:
                self.position = position
                if not self.fill(BLOCK):
                    self.end_of_stream(False)
                    return
                buffer, position, limit, base = self.buffer, self.position, len(self.buffer), self.base
                body = position + BLOCK
            name_field, size_field, checksum, tail = unpack(buffer, position)
            if tail == plain_tail:
                varying = buffer[position : position + _TYPE]
                raw_name = name_field.partition(b"\0")[0]
                size = sizes.get(size_field, -1)
                if size < 0:
                    size = self.remember_size(size_field)
                # Without content it may be a folder, which is checked below.
                quick = (
                    sums.get(checksum) == adler32(varying) & 0xFFFF
                    and (size > 0 or (size == 0 and not raw_name.endswith(b"/")))
                    and raw_name != b""
                )
            else:
                quick = False
            if quick:
                offset = base + position
            else:
                self.position = position
                found = self.next_member()
                if found is None:
                    return
                raw_name, size, offset = found
                buffer, body, limit, base = self.buffer, self.position, len(self.buffer), self.base
                plain_tail, sums = self.plain_tail, self.sums
                if not raw_name:
                    position = body
                    yield _ARCHIVE_END
                    continue
            try:
                name = raw_name.decode()
            except UnicodeDecodeError:
                name = raw_name.decode("utf-8", "surrogateescape")
            end = body + size
            if end <= limit:
                content = buffer[body:end]
                position = end + (-size & 511)
            else:
                self.header_offset, self.position = offset, body
                fits = size <= self.large.member_limit
                content = self.take(size, name) if fits else self.large.take(self, name, size)
                buffer, limit, base = self.buffer, len(self.buffer), self.base
                position = self.position + (-size & 511)
            self.position = position
            yield name, content, offset

    def fill(self, want: int) -> bool:
        """Read until ``want`` bytes are in the buffer; return False if the stream ends before."""
        self.header_offset = self.base + self.position
        if len(self.buffer) - self.position >= want:
            return True
        while self.position > len(self.buffer):
            # Skip to the position, which is in padding or in content that is not wanted.
            self.position -= len(self.buffer)
            self.base += len(self.buffer)
            self.buffer = b""  # so that the position is right if read() raises
            self.buffer = self.read(READ_SIZE)
            if not self.buffer:
                self.position = 0
                return False
        if len(self.buffer) - self.position >= want:
            return True
        self.buffer = self.buffer[self.position :]
        self.base += self.position
        self.position = 0
        while len(self.buffer) < want:
            piece = self.read(READ_SIZE)
            if not piece:
                return False
            self.buffer += piece
        return True

    def take(self, size: int, name: str) -> bytes:
        """Read exactly ``size`` bytes from the position on, with as few copies as possible."""
        if self.take_whole is not None and _LEAST_WHOLE <= size <= _MAX_PIECE:
            content = self.take_whole(len(self.buffer) - self.position, size)
            if content is not None:
                self.base += self.position + size
                self.buffer, self.position = b"", 0
                return content
        return b"".join(self.pieces(name, size, _MAX_PIECE))

    def pieces(self, name: str, size: int, most: int = PIECE) -> Iterator[bytes]:
        """Yield exactly ``size`` bytes from the position on, in pieces of at most ``most`` bytes.

        All pieces must be taken.

        Raises:
            TruncatedError: the stream ends before.
        """
        piece = self.buffer[self.position : self.position + size]
        self.position += len(piece)
        if len(piece) == size:
            yield piece
            return
        self.base += len(self.buffer)
        self.buffer, self.position = b"", 0
        missing = size - len(piece)
        while missing:
            yield piece
            piece = self.read(min(missing, most))
            if not piece:
                reason = f"the stream ends inside this member: {size - missing} of {size} bytes are there"
                raise TruncatedError(reason, url=self.url, offset=self.header_offset, member=name, hint=CUT_HINT)
            self.base += len(piece)
            missing -= len(piece)
        yield piece

    def skip(self, size: int, name: str, skip: Callable[[int], bool]) -> None:
        """Skip content that goes on after the buffer, or read it where it cannot be skipped.

        Args:
            size: its size in bytes.
            name: name of the member, for errors.
            skip: function that skips bytes of the stream, or returns False.

        Raises:
            TruncatedError: the stream ends before.
        """
        after = self.position + size - len(self.buffer)
        if skip(after):
            self.base += len(self.buffer) + after
            self.buffer, self.position = b"", 0
        else:
            deque(self.pieces(name, size), maxlen=0)

    def next_member(self) -> tuple[bytes, int, int] | None:
        """Go to the next regular file, through extended headers and members without content.

        Returns:
            (raw name, size, offset of its first header) with the position at its content; (b"", 0,
            offset) between two archives; None at the end of the stream.
        """
        records: dict[str, bytes] = {}
        first_offset = -1
        while True:
            if not self.fill(BLOCK):
                self.end_of_stream(bool(records))
                return None
            self.header_offset = self.base + self.position
            header_bytes = self.buffer[self.position : self.position + BLOCK]
            if header_bytes == ZERO_BLOCK:
                if records:
                    raise self.corrupt("an extended header is followed by no member")
                return (b"", 0, self.header_offset) if self.skip_zeros() else None
            header = self.verified(header_bytes)
            self.position += BLOCK
            first_offset = self.header_offset if first_offset < 0 else first_offset
            if header.kind in EXTENDED_TYPES:
                self.extending = True
                self.extend(header, records)
                self.extending = False
                continue
            name = records.get("path", header.name)
            reason = headers.why_not_a_file(header, records, header_bytes)
            if reason is not None and header.kind in headers.CONTENTLESS_TYPES:
                size = 0
            else:
                size = headers.pax_size(records["size"]) if "size" in records else header.size
            if reason is None and name.endswith(b"/") and not size:
                reason = "folder"
            if self.drop_next:
                self.drop_next, reason = False, "beside-damage"
            if reason is None and name:
                if not records:
                    self.remember_plain(header_bytes, header)
                return name, size, first_offset
            if header.kind == _SPARSE:
                self.skip_sparse_map(header_bytes)
            self.position += size + (-size & 511)
            self.header_offset = first_offset
            self.pass_over(records.get("GNU.sparse.name", name), reason or "no-name")
            records, first_offset = {}, -1

    def skip_sparse_map(self, header_bytes: bytes) -> None:
        """Skip the blocks that continue the map in an old GNU header of a sparse file."""
        block, more = header_bytes, 482
        while block[more]:
            if not self.fill(BLOCK):
                return  # which the next read from here reports
            block, more = self.buffer[self.position : self.position + BLOCK], 504
            self.position += BLOCK

    def pass_over(self, name: bytes, reason: str) -> None:
        """Count a member that is not delivered; the position is after it.

        Raises:
            UnsupportedMemberError: the member would be the field of a sample, with content of its
                own.
        """
        text = name.decode("utf-8", "surrogateescape")
        if reason in headers.REFUSALS and self.in_sample(text):
            what, hint = headers.REFUSALS[reason]
            hint += f", or drop such samples with {SKIP_DAMAGE}"
            error = UnsupportedMemberError(what, url=self.url, offset=self.header_offset, member=text, hint=hint)
            error.kind = reason
            raise error
        self.tally.skip(reason)

    def remember_size(self, field: bytes) -> int:
        """Parse a size field of eleven octal digits and a NUL; -1 if it has another form."""
        try:
            size = int(field[:11], 8) if field[:11].isdigit() and field[11] == 0 else -1
        except ValueError:
            return -1  # a digit 8 or 9
        if len(self.sizes) > _MAX_REMEMBERED:
            self.sizes.clear()
        if size >= 0:
            self.sizes[field] = size
        return size

    def remember_plain(self, header_bytes: bytes, header: MemberHeader) -> None:
        """Register a plain header, so that ``members()`` parses such headers without a call."""
        has_prefix = header_bytes[257:263] == headers.POSIX_MAGIC and header_bytes[345]
        if header.kind != ord("0") or has_prefix:
            return
        varying, tail, checksum = header_bytes[:_TYPE], header_bytes[_TYPE:], header_bytes[148:_TYPE]
        if adler32(header_bytes) & 0xFFFF == headers.expected_adler(checksum):
            if tail != self.plain_tail or len(self.sums) > _MAX_REMEMBERED:
                self.plain_tail, self.sums = tail, {}
            # With the same tail and checksum field, a header is good if its other bytes have the
            # same sum.
            self.sums[checksum] = adler32(varying) & 0xFFFF

    def extend(self, header: MemberHeader, records: dict[str, bytes]) -> None:
        """Read an extended header's content into ``records``, as pax keys."""
        if header.size > _MAX_EXTENDED:
            raise self.corrupt(f"an extended header claims {header.size} bytes")
        content = self.take(header.size, "(extended header)")
        self.position += -header.size & 511
        if header.kind in (_LONG_NAME, _LONG_LINK):
            if header.kind == _LONG_NAME:
                records["path"] = content.partition(b"\0")[0]
            return
        try:
            found = headers.parse_pax(content)
        except ValueError as error:
            raise self.corrupt(f"bad extended header: {error}") from None
        if b"\0" in found.get("path", b""):
            raise self.corrupt("an extended header has a path with a NUL in it")
        try:
            headers.pax_size(found.get("size", b"0"))
        except ValueError as error:
            raise self.corrupt(str(error)) from None
        if header.kind != _PAX_GLOBAL:
            records.update(found)
            if not records.get("path", b"."):
                # An empty value deletes a record (POSIX.1, pax): the name is in the member's own
                # header.
                del records["path"]
        elif "path" in found or "size" in found:
            raise self.corrupt("a global extended header sets the path or size of all members")

    def verified(self, header_bytes: bytes) -> MemberHeader:
        """Parse a header, and check its checksum and numbers."""
        checksum = header_bytes[148:156]
        try:
            matches = adler32(header_bytes) & 0xFFFF == headers.expected_adler(checksum)
            if not matches and not headers.signed_checksum_matches(header_bytes):
                raise ValueError("its checksum does not match")
            header = headers.parse(header_bytes)
        except ValueError as error:
            if not self.begun and header_bytes[257:262] != MAGIC:
                raise NotATarError(
                    f"not a tar: {headers.looks_like(header_bytes)}", url=self.url, offset=self.header_offset
                ) from None
            self.begun = True
            if self.after_mark:
                raise self.corrupt("the bytes after the end-of-archive mark are neither zeros nor an archive") from None
            raise self.corrupt(f"damaged header: {error}") from None
        self.begun, self.after_mark = True, False
        return header

    def corrupt(self, reason: str) -> CorruptHeaderError:
        """Return the error for damage at the current header."""
        return CorruptHeaderError(reason, url=self.url, offset=self.header_offset, hint=DAMAGED_HINT)

    def skip_zeros(self) -> bool:
        """Skip the zero blocks of an end-of-archive mark; False if nothing follows them."""
        self.begun = self.after_mark = True
        # The next archive's first header is parsed by next_member(), which detects that an archive
        # begins.
        self.plain_tail = None
        while self.fill(BLOCK):
            rest = self.buffer[self.position :]
            # A comparison takes a hundredth of the time of lstrip, and nearly always suffices.
            zeros = len(rest) if rest == bytes(len(rest)) else len(rest) - len(rest.lstrip(b"\0"))
            self.position += zeros // BLOCK * BLOCK
            if len(self.buffer) - self.position >= BLOCK:
                return True
        self.end_of_stream(False)
        return False

    def end_of_stream(self, in_extended: bool) -> None:
        """Raise an error for a stream that ends here, unless an end mark came before."""
        rest = self.buffer[self.position :]
        self.header_offset = self.base + self.position
        if self.after_mark and not in_extended:
            if rest.strip(b"\0"):
                raise self.corrupt("the bytes after the end-of-archive mark are neither zeros nor an archive")
            self.ended = True
            return
        if not self.begun and rest:
            raise NotATarError(f"not a tar: {len(rest)} bytes, and {headers.looks_like(rest)}", url=self.url, offset=0)
        if not self.begun:
            reason = "the stream is empty; a tar has at least an end mark"
            raise TruncatedError(reason, url=self.url, offset=0, hint="fetch or write it again")
        where = "inside a header" if rest or in_extended else "without an end-of-archive mark"
        raise TruncatedError(f"the stream ends {where}", url=self.url, offset=self.header_offset, hint=CUT_HINT)
