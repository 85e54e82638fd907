"""Uploads in parts: how large a part is, and how many travel at once."""

from __future__ import annotations

MOST_PARTS = 10_000
_FIRST_SIZE = 8 << 20
_SAME_SIZE = 800
_LARGEST_SIZE = 1 << 30
_MOST_IN_FLIGHT = 4
_BYTES_IN_FLIGHT = 128 << 20
_SECONDS = 60.0
_SLOWEST = 128 << 10


def part_size(number: int) -> int:
    """Bytes of part ``number``, counted from 1; only the last part of an object is smaller.

    S3 takes at most 10,000 parts of at least 5 MiB and at most 5 GiB
    (https://docs.aws.amazon.com/AmazonS3/latest/userguide/qfacts.html), and how much will come is not
    known at the start. So parts begin at 8 MiB and double every 800 parts up to 1 GiB: an object of
    93 GiB is made of parts up to 64 MiB, and 10,000 parts are a little more than 5 TiB.
    """
    return min(_FIRST_SIZE << min((number - 1) // _SAME_SIZE, 20), _LARGEST_SIZE)


def parts_in_flight(size: int) -> int:
    """How many parts of ``size`` bytes may travel at once: up to 4, together at most 128 MiB, at least one."""
    return max(1, min(_MOST_IN_FLIGHT, _BYTES_IN_FLIGHT // size))


def seconds_for(size: int) -> float:
    """How long an attempt to move so many bytes may take: a minute, and what a slow line would need."""
    return _SECONDS + size / _SLOWEST
