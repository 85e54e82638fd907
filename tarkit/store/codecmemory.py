"""Compute the memory that a compressed stream needs, from its first frame or block.

No input or output: bytes to numbers.
"""

from __future__ import annotations

ZSTD_MOST = 1 << 31
"""Size in bytes of the largest window that the library for zstd decompresses."""
_SINGLE = 0x20


def zstd_window(head: bytes) -> int | None:
    """Return the size of the window that a zstd frame needs, in bytes.

    Source: RFC 8878, 3.1.1.1.

    Args:
        head: first 18 bytes of the frame.

    Returns:
        None if the head is cut, or the frame needs no window.
    """
    if len(head) < 6:
        return None
    content = stated_size(head)
    if head[4] & _SINGLE:
        return content
    base = 1 << (10 + (head[5] >> 3))
    size = base + base // 8 * (head[5] & 7)
    return size if content is None else min(size, content)


def stated_size(head: bytes) -> int | None:
    """Return the size of a zstd frame's content in bytes; None if the frame does not state it.

    Args:
        head: first 18 bytes of the frame, or all of it if it is shorter.
    """
    is_single, size_flag = head[4] & _SINGLE, head[4] >> 6
    length = (1 if is_single else 0, 2, 4, 8)[size_flag]
    end = header_size(head)
    return int.from_bytes(head[end - length : end], "little") + (256 if length == 2 else 0) if length else None


def header_size(head: bytes) -> int:
    """Return the size of a zstd frame's header in bytes.

    Args:
        head: first 5 bytes of the frame, or more.
    """
    is_single, size_flag = head[4] & _SINGLE, head[4] >> 6
    return (5 if is_single else 6) + _id_size(head[4]) + (1 if is_single else 0, 2, 4, 8)[size_flag]


def needs_dictionary(head: bytes) -> bool:
    """Return True if a zstd frame with this beginning was compressed with a dictionary."""
    at = 5 if head[4:5] and head[4] & _SINGLE else 6
    return len(head) > 4 and any(head[at : at + _id_size(head[4])])


def _id_size(descriptor: int) -> int:
    return (0, 1, 2, 4)[descriptor & 3]


def xz_dictionary(head: bytes) -> int | None:
    """Return the size of the dictionary of an xz stream's first block, in bytes.

    Source: The .xz File Format 1.1.0, 3.1 (block header) and 5.3.1 (LZMA2).

    Args:
        head: first 128 bytes of the stream.

    Returns:
        None if the size is not found.
    """
    if len(head) < 14 or not head[12]:
        return None
    flags, at = head[13], 14
    for _ in range((flags >> 6 & 1) + (flags >> 7)):
        # A size: seven bits in each byte, the last byte below 128.
        while head[at : at + 1] >= b"\x80":
            at += 1
        at += 1
    for _ in range(flags & 3):
        # A filter before LZMA2, which is the last one: its ID, and the size of its properties.
        at += 2 + int.from_bytes(head[at + 1 : at + 2], "little")
    if head[at : at + 2] != b"\x21\x01" or len(head) < at + 3 or head[at + 2] > 40:
        return None
    bits = head[at + 2]
    return (1 << 32) - 1 if bits == 40 else (2 | bits & 1) << (bits // 2 + 11)
