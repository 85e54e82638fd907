"""Thumbnails of the pictures of a sample, each a small JPEG file, in bounded memory.

JPEG files are decoded at 1/2 to 1/8 of their size, which Pillow does as fast as simplejpeg.
"""

from __future__ import annotations

import base64
import io
import json
import warnings
from contextlib import suppress
from typing import Any

from tarkit.errors import printable
from tarkit.extras import library
from tarkit.samples.codecs import extension_of
from tarkit.samples.sample import Sample, is_reserved
from tarkit.steps.pictures import PICTURES

_FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
"""Formats that are decoded, whatever the field says; some others would start programs."""
_MOST_PIXELS = 50_000_000
"""Largest number of pixels that are decoded; of a JPEG file, after it is scaled."""
_QUALITY = 70
_ORIENTATION, _LEFT_TOP = 0x0112, 5
"""Number of the EXIF tag, and its lowest value of a picture that is turned by 90 degrees."""


def is_picture(field: str) -> bool:
    """Return True if the extension of a field is that of a picture that thumbnails can show."""
    extension, compressed = extension_of(field)
    return extension in PICTURES and not compressed and not is_reserved(field)


def thumbnails(sample: Sample, edge: int) -> Sample:
    """Return, for each field of a sample, the thumbnail of its picture as JSON; a mapper.

    The JSON is ``{"src": "data:image/jpeg;base64,...", "note": "640 x 480 JPEG"}``, or
    ``{"broken": "image file is truncated"}`` for a picture that cannot be decoded.

    Args:
        sample: the fields are pictures.
        edge: length of the longer edge of a thumbnail, in pixels.

    Raises:
        MissingExtraError: Pillow is not installed.
    """
    library("PIL.Image", "a thumbnail", "images")
    found: Sample = {"__key__": sample["__key__"]}
    for field in filter(is_picture, sample):
        try:
            content, note = thumbnail(sample[field], edge)
            part = {"src": f"data:image/jpeg;base64,{base64.b64encode(content).decode()}", "note": note}
        except Exception as error:  # damaged bytes can make a decoder raise anything
            part = {"broken": printable(str(error) or type(error).__name__)}
        found[field] = json.dumps(part).encode()
    return found


def thumbnail(data: Any, edge: int) -> tuple[bytes, str]:
    """Return the thumbnail of a picture as a JPEG file, and the size and format of the picture.

    The picture is turned as its orientation says. Grey values of 16 or 32 bits are spread from the
    lowest to the highest; what is transparent is white.

    Args:
        data: the picture as a file; anything but bytes stands for one that is too large.
        edge: length of the longer edge of the thumbnail, in pixels.

    Raises:
        ValueError: the format is not known, or the picture has too many pixels.
        Exception: what Pillow raises for a damaged file.
        MissingExtraError: Pillow is not installed.
    """
    if not isinstance(data, bytes):
        raise ValueError("too large to be read")
    pillow = library("PIL.Image", "a thumbnail", "images")
    with warnings.catch_warnings():
        # Of large pictures, which are limited here, and of damaged metadata.
        warnings.simplefilter("ignore")
        pillow.init()
        try:
            image = pillow.open(io.BytesIO(data), formats=[name for name in _FORMATS if name in pillow.OPEN])
        except pillow.UnidentifiedImageError:
            raise ValueError(f"not a picture in a known format; it begins with {data[:12]!r}") from None
        size, kind = image.size, f"{image.format} {image.mode}"
        image.draft(None, [max(1, side * edge // max(size)) for side in size])
        if image.width * image.height > _MOST_PIXELS:
            raise ValueError(f"{size[0]} × {size[1]} pixels are too many; at most {_MOST_PIXELS:,} are decoded")
        image = _smoothly_resizable(image)
        image.thumbnail((edge, edge), reducing_gap=None)
        with suppress(Exception):  # a damaged orientation is ignored
            is_turned = image.getexif().get(_ORIENTATION, 1) >= _LEFT_TOP
            image = library("PIL.ImageOps", "a thumbnail", "images").exif_transpose(image)
            size = size[::-1] if is_turned else size
        stream = io.BytesIO()
        _flat(image).save(stream, "JPEG", quality=_QUALITY)
    return stream.getvalue(), f"{size[0]} × {size[1]} {kind.removesuffix(' RGB')}"


def _smoothly_resizable(image: Any) -> Any:
    """Return the image in a mode that can be resized smoothly, with 8 bits for each value."""
    if image.mode.startswith(("I", "F")):
        image = image.convert("F")
        low, high = image.getextrema()
        scale = 255 / (high - low) if high > low else 1.0
        return image.point(lambda value: value * scale - low * scale).convert("L")
    if image.mode in ("1", "P", "PA"):
        return image.convert("RGBA" if image.mode == "PA" or "transparency" in image.info else "RGB")
    return image


def _flat(image: Any) -> Any:
    """Return the image in RGB; what is transparent is white."""
    if "A" not in image.getbands() and "transparency" not in image.info:
        return image.convert("RGB")
    image = image.convert("RGBA")
    white = library("PIL.Image", "a thumbnail", "images").new("RGB", image.size, "white")
    white.paste(image, mask=image.getchannel("A"))
    return white
