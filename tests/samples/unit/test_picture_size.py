"""Sizes of pictures from their headers."""

from __future__ import annotations

import io
import struct
import sys
import warnings
import zlib

import pytest
from PIL import Image

from tarkit.extras import MissingExtraError
from tarkit.samples.images import picture_size


def encoded(format: str, mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.new(mode, (60, 40)).save(stream, format)
    return stream.getvalue()


@pytest.mark.parametrize("format", ["JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "PPM"])
def test_size_and_mode(format: str) -> None:
    mode = "P" if format == "GIF" else "RGB"
    assert picture_size(encoded(format, mode)) == (format, 60, 40, mode)


def test_a_header_is_enough() -> None:
    assert picture_size(encoded("JPEG", "L")[:-20]) == ("JPEG", 60, 40, "L")
    assert picture_size(encoded("PNG", "LA")[:60]) == ("PNG", 60, 40, "LA")


@pytest.mark.parametrize("data", [b"", b"<html>", b"\xff\xd8\xff", encoded("PNG")[:20], b"GIF89a", bytes(1000)])
def test_what_is_no_picture(data: bytes) -> None:
    assert picture_size(data) is None


def png(width: int, height: int) -> bytes:
    """A PNG file that ends where its pixels begin."""
    chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk)) + b"\0\0\0\x09IDAT"
    )


def test_many_pixels_are_not_decoded() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert picture_size(png(10_000, 10_000)) == ("PNG", 10_000, 10_000, "L")
        # Pillow refuses to open so many.
        assert picture_size(png(100_000, 100_000)) is None


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(MissingExtraError, match="the size of a picture needs"):
        picture_size(b"")
