"""Resume after damage in a tar: find the next valid header, and record the loss."""

from __future__ import annotations

from zlib import adler32

from tarkit.errors import CompressionError, DataError, TruncatedError, UnsupportedMemberError
from tarkit.formats.tar import headers
from tarkit.formats.tar.headers import BLOCK, ZERO_BLOCK
from tarkit.formats.tar.walk import EXTENDED_TYPES, LOST_STRETCH, MAGIC, Archive, Member

_MAX_TRUSTED_SIZE = 64 * 1024 * 1024
"""Size in bytes up to which a damaged header's size is used, because so much must be kept."""


def resynchronise(archive: Archive, error: DataError) -> Member:
    """Move the archive to the next valid header after an error; record and mark the loss.

    A member whose content cannot be delivered has a valid header, which the archive has passed: it
    is counted. The size in a damaged header is tried first, so that a tar inside the damaged member
    is not taken for a part of this one; if the size itself is damaged, that may happen.

    Returns:
        The mark for the place.
    """
    start = archive.header_offset
    if isinstance(error, UnsupportedMemberError) and error.member is not None:
        archive.tally.skip(error.kind)
        return "", error.member.encode("utf-8", "surrogateescape"), start
    archive.plain_tail = None
    kind = start - archive.base + 156
    is_extended = 156 <= kind < len(archive.buffer) and archive.buffer[kind] in EXTENDED_TYPES
    archive.drop_next = archive.extending or is_extended
    archive.extending = False
    try:
        if isinstance(error, (TruncatedError, CompressionError)):
            raise TruncatedError("nothing comes after")
        if archive.base + archive.position == start and not _go_by_size(archive):
            archive.position += 1
            _go_to_header(archive)
        elif archive.base + archive.position != start:
            _go_to_header(archive)
    except (TruncatedError, CompressionError):
        archive.ended = True
        archive.position = len(archive.buffer)
    # A stream that ends in padding ends before the place of the next header.
    end = max(start, archive.base + archive.position)
    archive.after_mark = False
    archive.tally.damage.append((archive.url, start, end, error.reason))
    if isinstance(error, TruncatedError) and error.member is not None and archive.in_sample(error.member):
        # Its header is good, so the sample before it is whole.
        return "", error.member.encode("utf-8", "surrogateescape"), start
    return "", LOST_STRETCH, start


def _go_by_size(archive: Archive) -> bool:
    """Skip the member with the damaged header, if a valid header or the end mark follows it."""
    if not archive.fill(BLOCK):
        return False
    block = archive.buffer[archive.position : archive.position + BLOCK]
    try:
        header = headers.parse(block)
    except ValueError:
        return False
    size = 0 if header.kind in headers.CONTENTLESS_TYPES else header.size
    after = BLOCK + size + (-size & 511)
    if size > _MAX_TRUSTED_SIZE or not archive.fill(after + BLOCK):
        return False
    following = archive.buffer[archive.position + after : archive.position + after + BLOCK]
    if following != ZERO_BLOCK and not _is_good(following):
        return False
    archive.position += after
    return True


def _go_to_header(archive: Archive) -> None:
    """Search for the next header; TruncatedError if there is none."""
    while (found := _find_header(archive)) is None:
        # A header may begin in the last bytes: keep them.
        archive.position = max(archive.position, len(archive.buffer) - BLOCK + 1)
        if not archive.fill(len(archive.buffer) - archive.position + 1):
            raise TruncatedError("nothing comes after")
    archive.position = found


def _find_header(archive: Archive) -> int | None:
    """Return the index in the buffer of the next valid header from the position on.

    Headers with a magic are found at any byte, because the archive may have been cut and appended
    to; headers without it only where blocks begin.
    """
    buffer = archive.buffer
    aligned = archive.position + (-(archive.base + archive.position) & 511)
    candidates = set(range(aligned, len(buffer) - BLOCK + 1, BLOCK))
    magic = buffer.find(MAGIC, archive.position + 257)
    while magic >= 0:
        candidates.add(magic - 257)
        magic = buffer.find(MAGIC, magic + 1)
    for candidate in sorted(candidates):
        block = buffer[candidate : candidate + BLOCK]
        if len(block) == BLOCK and block[0] and _is_good(block):
            return candidate
    return None


def _is_good(block: bytes) -> bool:
    try:
        headers.parse(block)
        return adler32(block) & 0xFFFF == headers.expected_adler(block[148:156])
    except ValueError:
        return False
