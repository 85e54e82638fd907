"""Hadoop's integers of variable length (WritableUtils.writeVLong).

One byte for -112 to 127. Otherwise a first byte of -113 to -120 for a positive number, -121 to -128
for a negative one, which is stored as its complement; it gives 1 to 8 as the number of big-endian
bytes that follow.
"""

from __future__ import annotations


def vint_size(first: int) -> int:
    """Return the number of bytes of a number with this first byte, 0 to 255."""
    if first < 128 or first >= 144:
        return 1
    return (144 if first >= 136 else 136) - first + 1


def vint_at(data: bytes, at: int) -> tuple[int, int]:
    """Read the number that begins at ``at``; return it and the position of the next byte.

    >>> vint_at(bytes([0x8E, 0x01, 0x00]), 0)
    (256, 3)

    Raises:
        ValueError: ``data`` ends before.
    """
    if at >= len(data):
        raise ValueError("a number is cut")
    first = data[at]
    if first < 128:
        return first, at + 1
    size = vint_size(first)
    end = at + size
    if size == 1:
        return first - 256, end
    if end > len(data):
        raise ValueError("a number is cut")
    number = int.from_bytes(data[at + 1 : end], "big")
    return (number if first >= 136 else ~number), end


def vint_bytes(number: int) -> bytes:
    """Encode a number of at most 64 bits in its shortest form, the only one that Hadoop writes."""
    if -112 <= number <= 127:
        return (number & 0xFF).to_bytes(1, "big")
    positive = number if number >= 0 else ~number
    size = (positive.bit_length() + 7) // 8
    first = (144 if number >= 0 else 136) - size
    return first.to_bytes(1, "big") + positive.to_bytes(size, "big")


def vints(data: bytes, count: int) -> list[int]:
    """Read exactly ``count`` numbers, which are all of ``data``.

    They are lengths, so a negative number is an error.

    Raises:
        ValueError: there are more or fewer numbers, or one is negative.
    """
    if len(data) == count and data.isascii():
        return list(data)
    if len(data) < count:
        raise ValueError(f"expected {count} lengths; there are fewer")
    found = []
    at, end = 0, len(data)
    while at < end:
        first = data[at]
        if first < 128:
            found.append(first)
            at += 1
        else:
            number, at = vint_at(data, at)
            if number < 0:
                raise ValueError(f"a length is {number}")
            found.append(number)
    if len(found) != count:
        raise ValueError(f"expected {count} lengths; there are {len(found)}")
    return found
