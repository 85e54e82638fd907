"""Example samples: small pictures drawn by code, the same at every call.

Pictures are PPM (netpbm, "PPM Format Specification", raw variant), which needs no library to write.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tarkit.samples.sample import Sample

SHAPES = ("disc", "square", "stripes")
"""Shapes on the pictures; a sample's class is an index into this."""

SIDE = 48
"""Width and height of a picture in pixels."""


def demo_samples(count: int) -> Iterator[Sample]:
    """Yield samples ``000000`` to ``count - 1``, small generated pictures.

    Each has ``ppm`` (the picture), ``cls`` (0 to 2, as text) and ``json`` (shape, colour, size),
    all bytes. The classes alternate.
    """
    for number in range(count):
        kind = number % len(SHAPES)
        colour = (number * 83 % 200 + 55, number * 151 % 200 + 55, number * 211 % 200 + 55)
        size = 8 + number * 7 % 13
        about = {"shape": SHAPES[kind], "colour": colour, "size": size}
        yield {
            "__key__": f"{number:06d}",
            "ppm": _picture(SHAPES[kind], colour, size),
            "cls": b"%d" % kind,
            "json": json.dumps(about).encode("ascii"),
        }


def _picture(shape: str, colour: tuple[int, int, int], size: int) -> bytes:
    """Return a picture with a shape of ``size`` pixels (half its width) in its middle."""
    ink, middle = bytes(colour), SIDE // 2
    pixels = bytearray(b"P6\n%d %d\n255\n" % (SIDE, SIDE))
    for y in range(-middle, middle):
        # A faint slope, so that no two lines of the ground are the same.
        ground = bytes((20 + y // 4 + middle // 4,) * 3)
        for x in range(-middle, middle):
            if shape == "disc":
                inside = x * x + y * y < size * size
            elif shape == "square":
                inside = max(abs(x), abs(y)) < size
            else:
                inside = (x + y) // max(2, size // 3) % 2 == 0
            pixels += ink if inside else ground
    return bytes(pixels)
