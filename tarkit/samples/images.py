"""Encode and decode images with Pillow; an image that would lose data is rejected."""

from __future__ import annotations

import importlib
import io
import logging
import sys
import threading
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

from tarkit.extras import MissingExtraError, library

_log = logging.getLogger(__name__)

IMAGE_SPECS = {
    "pil": ("pil", "RGB"),
    "pilrgb": ("pil", "RGB"),
    "pilrgba": ("pil", "RGBA"),
    "pill": ("pil", "L"),
    "rgb": ("float", "RGB"),
    "rgba": ("float", "RGBA"),
    "l": ("float", "L"),
    "rgb8": ("uint8", "RGB"),
    "rgba8": ("uint8", "RGBA"),
    "l8": ("uint8", "L"),
}
"""Image type -> (kind of result, Pillow's mode); "float" is float32 of 0 to 1.

The names are webdataset's.
"""

_ORIENTATION = 0x0112  # a tag of EXIF
_HEADERS = 1 << 16
_SIXTEEN_BITS = ("I;16", "I;16B", "I;16L", "I;16N")

# Extension -> Pillow's name of the format, and the modes that it stores without changing a value.
IMAGE_FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    **dict.fromkeys(("jpg", "jpeg", "img", "image"), ("JPEG", ("L", "RGB", "CMYK"))),
    "png": ("PNG", ("1", "L", "LA", "P", "RGB", "RGBA", "I;16")),
    "ppm": ("PPM", ("1", "L", "RGB", "I;16", "I")),
    "pgm": ("PPM", ("L", "I;16", "I")),
    "pbm": ("PPM", ("1",)),
    **dict.fromkeys(("tiff", "tif"), ("TIFF", ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"))),
    "webp": ("WEBP", ("L", "RGB", "RGBA")),
}

_SAVE_OPTIONS: dict[str, dict[str, Any]] = {"JPEG": {"quality": 100}, "WEBP": {"lossless": True, "exact": True}}


def encode_image(extension: str, value: Any) -> bytes:
    """Encode an image as a file of one of IMAGE_FORMATS.

    Args:
        extension: a key of IMAGE_FORMATS.
        value: a PIL image, or a numpy array of shape HxW, HxWx1, HxWx3 or HxWx4, of uint8 or of
            float of 0 to 1.

    Raises:
        ValueError: the format cannot hold the image.
        TypeError: the value is not an image.
    """
    format_name, modes = IMAGE_FORMATS[extension]
    image = _as_image(value)
    if image.mode not in modes:
        raise ValueError(f"{extension} cannot hold an image of mode {image.mode}; convert it to {' or '.join(modes)}")
    if image.mode == "I" and not 0 <= image.getextrema()[0] <= image.getextrema()[1] <= 65535:
        raise ValueError(f"{extension} holds values of 0 to 65535; these are {image.getextrema()}")
    stream = io.BytesIO()
    image.save(stream, format=format_name, **_SAVE_OPTIONS.get(format_name, {}))
    return stream.getvalue()


_FILTER = threading.Lock()
"""Held while the filter of warnings is changed, which is that of all threads."""


class PictureSize(NamedTuple):
    """The data in the header of a picture.

    Attributes:
        format: Pillow's name of the format, such as JPEG.
        width: width in pixels, as stored; orientation in EXIF is ignored.
        height: height in pixels, as stored.
        mode: Pillow's mode, such as RGB.
    """

    format: str
    width: int
    height: int
    mode: str


def picture_size(data: bytes) -> PictureSize | None:
    """Read the header of a picture; no pixel is decoded.

    The rest of the picture may be damaged or missing.

    Args:
        data: the file, or its beginning.

    Returns:
        Its size, or None if Pillow cannot open it.

    Raises:
        MissingExtraError: Pillow is not installed.
    """
    pillow = library("PIL.Image", "the size of a picture", "images")
    try:
        with _FILTER, warnings.catch_warnings():
            # Of many pixels, which are not decoded here.
            warnings.simplefilter("ignore")
            image = pillow.open(io.BytesIO(data))
    except Exception:  # SyntaxError, ValueError, DecompressionBombError and others, besides OSError
        return None
    return PictureSize(image.format or "", image.width, image.height, image.mode)


def _as_image(value: Any) -> Any:
    pillow = library("PIL.Image", "an image codec", "images")
    if isinstance(value, pillow.Image):
        return value
    numpy = library("numpy", "an image codec", "images")
    if not isinstance(value, numpy.ndarray):
        raise TypeError("an image must be a PIL image or a numpy array")
    array = value[:, :, 0] if value.ndim == 3 and value.shape[2] == 1 else value
    if array.size == 0 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise ValueError(f"an image array must have the shape HxW, HxWx1 or HxWx3; this one has {value.shape}")
    if array.dtype.kind == "f":
        low, high = float(array.min()), float(array.max())
        if not -0.001 < low <= high < 1.001:
            raise ValueError(f"a float image must have values of 0 to 1; these are {low} to {high}")
        array = numpy.rint(array.clip(0, 1) * 255.0).astype("uint8")
    if array.dtype not in ("uint8", "bool") and not (array.dtype == "uint16" and array.ndim == 2):
        raise TypeError(f"an image array must be uint8, or float of 0 to 1; this one is {array.dtype}")
    return pillow.fromarray(numpy.ascontiguousarray(array))


def decode_image(spec: str, data: bytes) -> Any:
    """Decode an image file as a PIL image, or as a numpy array of HxWxC (HxW if grey).

    Grey values of 16 bits are divided by 65,535 for float. For 8 bits their upper half is taken, as
    Pillow does with colours of 16 bits.

    Args:
        spec: a key of IMAGE_SPECS.
        data: the file.
    """
    kind, mode = IMAGE_SPECS[spec]
    image = library("PIL.Image", "an image codec", "images").open(io.BytesIO(data))
    if kind != "pil" and image.format == "JPEG" and image.mode == mode == "RGB":
        pixels = _decode_jpeg(data)
        if pixels is not None:
            return _of_kind(kind, pixels)
    image.load()
    # Pillow reads grey PPM files of 16 bits, and some older releases PNG files, into 32 bits.
    if image.mode in _SIXTEEN_BITS or (image.mode == "I" and image.format in ("PNG", "PPM")):
        return _decode_16_bits(image, kind, mode)
    if image.mode[0] in "IF":
        raise ValueError(f"its values (mode {image.mode}) are not of 8 or 16 bits; leave it as bytes with image=None")
    if kind == "pil":
        return image.convert(mode)
    image = image if image.mode == mode else image.convert(mode)
    return _of_kind(kind, library("numpy", "an image codec", "images").array(image))


def _of_kind(kind: str, array: Any) -> Any:
    return array.astype("float32") / array.dtype.type(255) if kind == "float" else array


def _decode_jpeg(data: bytes) -> Any:
    """Decode a JPEG file in colours as an array of HxWx3, faster than Pillow.

    None if no other decoder is installed or if it rejects the file; Pillow decodes it then.
    """
    decode = quick_decoder()
    try:
        return None if decode is None else decode(data)
    except (ValueError, RuntimeError):
        return None


@cache
def quick_decoder() -> Callable[[bytes], Any] | None:
    """Choose the decoder of JPEG files in colours, and log its name, once in a process.

    simplejpeg if it is installed, or else torchcodec in a program that has imported torch. None:
    Pillow decodes them.
    """
    found: tuple[str, Callable[[bytes], Any] | None] = "Pillow", None
    try:
        found = "simplejpeg", importlib.import_module("simplejpeg").decode_jpeg
    except ImportError:
        if "torch" in sys.modules and (decode := _torchcodec_decoder()) is not None:
            found = "torchcodec", partial(_as_array, decode)
    _log.info("JPEG pictures are decoded to arrays by %s", found[0])
    return found[1]


def _torchcodec_decoder() -> Any:
    try:
        return getattr(importlib.import_module("torchcodec.decoders"), "decode_jpeg", None)  # since 0.16
    except (ImportError, OSError, RuntimeError):  # its libraries are missing, or are for another torch
        return None


def _as_array(decode: Callable[..., Any], data: bytes) -> Any:
    """Decode by torchcodec, to an array of HxWx3 of its own."""
    return decode(data, mode="RGB").permute(1, 2, 0).contiguous().numpy()


def _decode_16_bits(image: Any, kind: str, mode: str) -> Any:
    """Decode a grey image of 16 bits, with the result of decode_image()."""
    numpy = library("numpy", "an image codec", "images")
    grey = numpy.asarray(image).astype("uint16")
    if kind == "float":
        value = grey.astype("float32") / numpy.float32(65535)
        if mode == "L":
            return value
        return numpy.stack([value] * 3 + [numpy.ones_like(value)] * (len(mode) - 3), axis=-1)
    eight = library("PIL.Image", "an image codec", "images").fromarray((grey >> 8).astype("uint8")).convert(mode)
    return eight if kind == "pil" else numpy.asarray(eight).copy()


def orientation(data: bytes) -> int:
    """Return the EXIF orientation of a picture: 1 is upright, 2 to 8 are turned; 0 if it has none.

    Raises:
        MissingExtraError: Pillow is not installed.
    """
    if data[:2] == b"\xff\xd8" and b"Exif\0\0" not in data[:_HEADERS]:
        return 0  # most photos of data sets, without opening them
    try:
        found = library("PIL.Image", "the orientation of a picture", "images").open(io.BytesIO(data)).getexif()
    except MissingExtraError:
        raise
    except Exception:  # damaged headers can make Pillow raise anything
        return 0
    value = found.get(_ORIENTATION, 0)
    return value if isinstance(value, int) else 0
