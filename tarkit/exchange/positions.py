"""Positions: bytes by which samples sort, with values that never repeat."""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from tarkit.samples.rawsamples import RawSample

PlaceOf = Callable[[RawSample, int], bytes]
"""Function from a sample of one shard, and its number there, to its position.

It raises :class:`ValueError` with the reason if the sample has none, and :class:`LeftOutError` if
the step's ``write`` will drop it.
"""

ORDINAL = 8
"""Bytes of an ordinal."""
OUTPUT_BYTES = 4
"""Bytes of the number of an output, with which positions begin if the step names the outputs."""
MOST_SHARDS, MOST_SAMPLES = 1 << 24, 1 << 40
"""Limits of the numbers of shards, and of samples of a shard."""
_AT_ONCE = 4096
FAILED = b"\xff" * 9
"""Beginning of the position of a sample that has none; all other positions sort before it."""


class LeftOutError(Exception):
    """A sample is left out: its position goes on to be counted, without the bytes of its members.

    Args:
        position: its position.
    """

    def __init__(self, position: bytes) -> None:
        super().__init__("the sample is left out")
        self.position = position


def ordinal(shard: int, number: int) -> bytes:
    """Return a sample's place in the inputs: bytes that sort like (shard, number)."""
    return (shard << 40 | number).to_bytes(ORDINAL, "big")


def shard_and_number(position: bytes) -> tuple[int, int]:
    """Return the number of the shard, and of the sample in it, from a position."""
    is_failed = position.startswith(FAILED)
    place = position[len(FAILED) :][:ORDINAL] if is_failed else position[-ORDINAL:]
    return divmod(int.from_bytes(place, "big"), MOST_SAMPLES)


def shuffled(seed: int, shard: int) -> PlaceOf:
    """Return positions at random: all orders have the same probability.

    Independent random numbers of 64 bits, sorted, are such an order; equal ones, of which 10
    billion samples have two or three pairs, stay in the order of the inputs. The numbers are those
    of SHAKE-128 (FIPS 202) over seed, shard and number, so they are the same on every machine, and
    depend neither on other shards nor on the number of samples.
    """
    numbers = b""

    def position(sample: RawSample, number: int) -> bytes:
        nonlocal numbers
        at = number % _AT_ONCE
        if not at:
            text = f"tarkit shuffle {seed} {shard} {number // _AT_ONCE}"
            numbers = hashlib.shake_128(text.encode()).digest(8 * _AT_ONCE)
        return numbers[8 * at : 8 * at + 8] + ordinal(shard, number)

    return position


def failed_position(reason: str, place: bytes) -> bytes:
    """Return the position of a sample that has none: behind all others, in the order of the inputs.

    Args:
        reason: why it has none; it stays with the sample.
        place: its ordinal.
    """
    return FAILED + place + reason.encode("utf-8", "backslashreplace")


def failure(position: bytes) -> str | None:
    """Return why a sample has no position, or None if this is one."""
    if not position.startswith(FAILED):
        return None
    return position[len(FAILED) + ORDINAL :].decode()


def text_value(text: bytes) -> bytes:
    """Return the value of a text in a position: bytes that sort like the text, of any length.

    No value is the beginning of another one, so that an ordinal can follow.
    """
    return b"\1" + text.replace(b"\0", b"\0\xff") + b"\0\0"


def text_of(value: bytes) -> bytes:
    """Return the text of a value of :func:`text_value`."""
    return value[1:-2].replace(b"\0\xff", b"\0")


def value_of(position: bytes) -> bytes:
    """Return the value of a position, which is followed by its ordinal."""
    return position[:-ORDINAL]
