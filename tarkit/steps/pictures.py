"""Check pictures: cut, damaged, of another format, or too large to be decoded.

Pillow's ``verify`` and ``load`` pass many damaged files; so JPEG is decoded by simplejpeg, and the
ends of JPEG, PNG, GIF and WebP are found here.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from zlib import crc32

from tarkit.errors import printable
from tarkit.extras import library
from tarkit.formats.tar.headers import known_look, looks_like
from tarkit.samples.firstbytes import PATTERNS
from tarkit.steps.findings import UNCHECKED, ContentProblem, bytes_behind, reason_of

MOST_PIXELS = 89_478_485
"""Number of pixels up to which a picture is decoded.

Pillow warns of a decompression bomb above it.
"""
_MOST_FRAME_PIXELS, _MOST_FRAMES = 10 * MOST_PIXELS, 10_000

_FORMATS = ("jpeg", "png", "gif", "webp", "bmp", "tiff", "pnm")
PICTURES = {
    **dict.fromkeys(("jpg", "jpeg", "jpe"), "jpeg"),
    **{name: name for name in ("png", "gif", "webp", "bmp")},
    **dict.fromkeys(("tif", "tiff"), "tiff"),
    **dict.fromkeys(("ppm", "pgm", "pbm", "pnm"), "pnm"),
    **dict.fromkeys(("img", "image", "jp2", "avif"), ""),
}
"""Extension of a picture -> its format; "": any."""


def check_picture(data: bytes, extension: str) -> Iterator[ContentProblem]:
    """Yield the problems of a picture; an exception of any class is one, too.

    Args:
        data: the file.
        extension: a key of PICTURES.
    """
    found = next((name for name in _FORMATS if PATTERNS[name].match(data)), None)
    named = PICTURES[extension]
    if found is None and known_look(data):
        raise ValueError(f"not a picture: {looks_like(data)}")
    if found is not None and named not in ("", found):
        yield ContentProblem("wrong-name", f"the content is {found.upper()}, not {named.upper()}", True)
    yield from {"jpeg": _jpeg, "png": _png, "gif": _gif, "webp": _webp}.get(found or "", _pillow)(data)


def _jpeg(data: bytes) -> Iterator[ContentProblem]:
    end = _jpeg_end(data)
    if end is None:
        raise ValueError("no end of image")
    codec = library("simplejpeg", "JPEG data", "jpeg")
    try:
        height, width = codec.decode_jpeg_header(data)[:2]
    except ValueError:  # damaged, or of a rare subsampling
        yield from _pillow(data)
        yield ContentProblem(UNCHECKED, "JPEG data of a rare subsampling for damage inside")
    else:
        if height * width > MOST_PIXELS:
            yield _too_large(width, height)
        else:
            # An eighth of the size, in gray, shows the same errors in half the time.
            codec.decode_jpeg(data, colorspace="GRAY", min_height=1, min_width=1, strict=True)
    yield from bytes_behind(data, end)


def _jpeg_end(data: bytes) -> int | None:
    """Return the offset after the end of image, or None (ITU-T T.81, Annex B)."""
    at = 2
    while (found := _JPEG_MARKER.search(data, at)) is not None:
        at = found.end()
        marker = data[at - 1]
        if marker == 0xD9:
            return at
        if marker not in (0x01, 0xD8):
            at += int.from_bytes(data[at : at + 2], "big")
    return None


_JPEG_MARKER = re.compile(rb"\xff[\x01-\xcf\xd8-\xfe]")


def _png(data: bytes) -> Iterator[ContentProblem]:
    at, kind = 8, b""
    while kind != b"IEND":
        end = at + 12 + int.from_bytes(data[at : at + 4], "big")
        kind = data[at + 4 : at + 8]
        if len(data) < end:
            yield ContentProblem(
                "picture", "no end of image (IEND)" if at == len(data) else f"cut inside of a chunk at {at}"
            )
            return
        if crc32(data[at + 4 : end - 4]) != int.from_bytes(data[end - 4 : end], "big"):
            name = printable(kind.decode("latin-1"))
            raise ValueError(f"the checksum of its chunk {name} at {at} does not match")
        at = end
    yield from _pillow(data)
    yield from bytes_behind(data, at)


def _gif(data: bytes) -> Iterator[ContentProblem]:
    try:
        end = _gif_end(data)
    except IndexError:
        raise ValueError("no end of image (GIF trailer)") from None
    yield from _pillow(data)
    yield from bytes_behind(data, end)


def _gif_end(data: bytes) -> int:
    """Return the offset after the trailer (GIF89a specification, appendix B).

    Raises:
        IndexError: the file ends before its trailer.
    """

    def table(flags: int) -> int:
        return 3 << (flags & 7) + 1 if flags & 0x80 else 0

    at = 13 + table(data[10])
    while (block := data[at]) != 0x3B:
        at += 11 + table(data[at + 9]) if block == 0x2C else 2
        while size := data[at]:
            at += size + 1
        at += 1
    return at + 1


def _webp(data: bytes) -> Iterator[ContentProblem]:
    end = 8 + int.from_bytes(data[4:8], "little")
    if len(data) < end:
        raise ValueError(f"cut: its header says {end} bytes, and it has {len(data)}")
    yield from _pillow(data)
    yield from bytes_behind(data, end + end % 2)


def _pillow(data: bytes) -> Iterator[ContentProblem]:
    pillow = library("PIL.Image", "pictures", "images")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            image = pillow.open(io.BytesIO(data))
        except pillow.DecompressionBombError as error:
            yield ContentProblem("not-decoded", f"not decoded: {reason_of(error)}", True)
            return
        except pillow.UnidentifiedImageError:
            if PATTERNS["tiff"].match(data):
                yield ContentProblem("not-decoded", "not decoded: Pillow does not know this kind of TIFF", True)
                return
            raise ValueError(f"not a picture: {looks_like(data)}") from None
        with image:
            frames, most = getattr(image, "n_frames", 1), _MOST_FRAME_PIXELS // max(1, image.width * image.height)
            for frame in range(min(frames, max(1, min(most, _MOST_FRAMES)))):
                if image.width * image.height > MOST_PIXELS:
                    yield _too_large(*image.size)
                    return
                image.seek(frame)
                image.load()
    if frame + 1 < frames:
        yield ContentProblem("not-decoded", f"only {frame + 1} of {frames} frames were decoded", True)


def _too_large(width: int, height: int) -> ContentProblem:
    return ContentProblem("not-decoded", f"not decoded: {width} x {height} pixels are more than {MOST_PIXELS}", True)
