"""Encode and decode fields, by the extension of the field.

No codec here can run code; pickle is rejected.

The last part of a field's name decides (``input.png`` is a png), in lower case. A trailing ``.gz``
means that the encoded value is compressed. Names and values follow webdataset 1.0.2, with these
differences, all of which keep data unchanged:

- bytes are taken as encoded already, also under ``.gz``, and are not changed;
- ``.gz`` fields whose inner extension has no codec stay compressed bytes when decoded;
- numbers in ``cls`` and similar fields are whole numbers; images that a format cannot hold are
  rejected;
- a str is text in fields of text; in other fields it must decode to the same value, see
  ``encode_field``;
- NaN and Infinity, which are not JSON, are rejected when reading and writing.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any

from tarkit.errors import DecodeError, EncodeError, TarkitError, UsageError
from tarkit.formats.tar.headers import looks_like
from tarkit.samples import values
from tarkit.samples.audio import AUDIO_FORMATS, decode_audio
from tarkit.samples.images import IMAGE_FORMATS, IMAGE_SPECS, decode_image, encode_image
from tarkit.samples.mediafile import decoder_reason
from tarkit.samples.sample import Sample, is_reserved

Encoder = bool | None | Callable[[Sample], Sample] | Mapping[str, Callable[[Any], Any]]
"""The types of the argument of ``make_encoder``."""

NUMBERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
TEXTS = ("txt", "text", "transcript", "html", "htm")
JSON = ("json", "jsn")
"""Extensions of fields that hold a whole number, a text, or JSON."""
MAX_BYTES = 1 << 30
"""Default of the largest size of a field after decompression, 1 GiB."""


def encode_field(field: str, value: object, *, key: str | None = None) -> bytes:
    """Encode the value of one field as bytes.

    bytes, bytearray and memoryview are taken as encoded already, and are not changed. The extension
    decides for all other values: whole numbers (cls, cls2, class, count, index, inx, id), JSON
    (json, jsn), numpy arrays (npy) and dicts of them (npz), msgpack (mp, msgpack, msg), CBOR
    (cbor), and images (jpg, jpeg, img and image as jpg, png, ppm, pgm, pbm, tiff, tif, webp): a PIL
    image or an array, uint8 or float in 0..1, of shape (height, width), (height, width, 1) or
    (height, width, 3), or uint16 of shape (height, width). Tuples become lists in JSON, msgpack and
    CBOR. The same value gives the same bytes.

    A str becomes UTF-8 in fields of text (txt, html, ...) and in those without a codec. In json it
    must be JSON text, and in cls and similar fields a whole number; the other codecs reject it.
    Audio is not encoded.

    Args:
        field: name of the field.
        value: its value.
        key: key of the sample, for errors.

    Raises:
        EncodeError: no codec exists for this field and type, or the value does not fit it.
        MissingExtraError: the codec's library is not installed.
    """
    return _encode_with(_ENCODERS, field, value, key)


def decode_field(
    field: str,
    data: bytes,
    *,
    image: str | None = "pil",
    key: str | None = None,
    url: str | None = None,
    max_bytes: int = MAX_BYTES,
) -> object:
    """Decode the bytes of one field; bytes if its extension has no codec.

    Text (txt, text, transcript, html, htm) becomes str. Audio (wav, flac, ogg, oga, opus, mp3)
    becomes an :class:`tarkit.samples.audio.Audio`: float32 samples of shape (frames, channels), and
    the rate. Video stays bytes; see :func:`tarkit.samples.video.read_frames`. Grey values of 16
    bits become floats by division by 65,535, and 8 bits by their upper half, as Pillow does with
    colours of 16 bits (webdataset cuts grey values at 255).

    Args:
        field: name of the field.
        data: its bytes.
        image: type of decoded images: ``pil``, ``pill``, ``pilrgb``, ``pilrgba`` (PIL images; pil
            is pilrgb), ``l``, ``rgb``, ``rgba`` (float32 arrays in 0..1, of shape (height, width)
            or (height, width, 3 or 4)), ``l8``, ``rgb8``, ``rgba8`` (the same as uint8), or None:
            they stay bytes.
        key: key of the sample, for errors.
        url: URL of the shard, for errors.
        max_bytes: largest size of a compressed field (``.gz``, npz, audio) after decompression, in
            bytes.

    Raises:
        DecodeError: the bytes are not valid for the extension, or too many, or the format is
            rejected.
        UsageError: ``image`` is not one of these.
        MissingExtraError: the codec's library is not installed.
    """
    if image is not None and image not in IMAGE_SPECS:
        raise UsageError(f"images cannot be decoded to {image!r}; it must be one of {', '.join(IMAGE_SPECS)}, or None")
    extension, compressed = extension_of(field)
    decoder: Callable[[bytes], Any] | None = _DECODERS.get(extension)
    if extension in IMAGE_FORMATS and image is not None:
        decoder = partial(decode_image, image)
    elif extension == "npz":
        decoder = partial(values.decode_npz, max_bytes=max_bytes)
    elif extension in AUDIO_FORMATS:
        decoder = partial(decode_audio, max_bytes=max_bytes)
    refusal = _REFUSED.get(extension)
    if refusal is not None:
        raise DecodeError(f"field {field!r} is not decoded: {refusal}", url=url, key=key)
    if decoder is None:
        return data
    try:
        return decoder(decompress(data, max_bytes) if compressed else data)
    except TarkitError:
        raise
    except Exception as error:  # damaged bytes can make a parser raise anything
        reason = f"field {field!r} cannot be decoded: {decoder_reason(error)}"
        hint = None
        if not compressed and (extension in IMAGE_FORMATS or extension in AUDIO_FORMATS):
            hint = f"it must be a whole {extension} file, and {looks_like(data[:64]) if data else 'it is empty'}"
        raise DecodeError(reason, url=url, key=key, hint=hint) from error


def encode_sample(sample: Mapping[str, Any]) -> Sample:
    """Encode every field of a sample by ``encode_field``; metadata stays."""
    return _encode_all(_ENCODERS, sample)


def decode_sample(
    sample: Mapping[str, Any], *, image: str | None = "pil", only: Collection[str] | None = None
) -> Sample:
    """Decode every field of a sample by ``decode_field``.

    Metadata, and values that are not bytes, stay.

    Args:
        sample: the sample.
        image: type of decoded images, as for ``decode_field``.
        only: full names of the fields to decode; the other fields stay bytes. None: all fields.
    """
    key, url = sample.get("__key__"), sample.get("__url__")
    return {
        name: decode_field(name, value, image=image, key=key, url=url)
        if isinstance(value, bytes) and not is_reserved(name) and (only is None or name in only)
        else value
        for name, value in sample.items()
    }


def make_encoder(spec: Encoder) -> Callable[[Mapping[str, Any]], Sample]:
    """Return a function that encodes samples, for the ``encoder`` of webdataset's ``TarWriter``.

    Args:
        spec: False or None: no encoding. True: encode by extension. A function from sample to
            sample: that function. A dict of extension -> function from a value to bytes: only
            these; bytes, and str in other fields, are encoded as in ``encode_field``.

    Raises:
        UsageError: ``spec`` is none of these.
    """
    if spec is None or spec is False:
        return dict
    if spec is True:
        return encode_sample
    if isinstance(spec, Mapping):
        for extension, encoder in spec.items():
            if not isinstance(extension, str) or not extension or "." in extension or not callable(encoder):
                raise UsageError(f"encoder: {extension!r}: {encoder!r} must be an extension without dots: a function")
        return partial(_encode_all, {extension.lower(): encoder for extension, encoder in spec.items()})
    if callable(spec):
        return partial(_call_encoder, spec)
    raise UsageError(f"encoder is {spec!r}; it must be True, False, None, a function, or a dict of extension: function")


def _call_encoder(encoder: Callable[[Sample], Sample], sample: Mapping[str, Any]) -> Sample:
    result = encoder(dict(sample))
    if not isinstance(result, dict):
        reason = f"the encoder gave {type(result).__name__}; it must give the sample, a dict"
        raise EncodeError(reason, key=sample.get("__key__"))
    return result


def _encode_all(encoders: Mapping[str, Callable[[Any], Any]], sample: Mapping[str, Any]) -> Sample:
    key = sample.get("__key__")
    return {
        name: value if is_reserved(name) else _encode_with(encoders, name, value, key) for name, value in sample.items()
    }


def _encode_with(encoders: Mapping[str, Callable[[Any], Any]], field: str, value: object, key: str | None) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    extension, compressed = extension_of(field)
    what = f"field {field!r}, a value of type {type(value).__name__}"
    encoder: Callable[[Any], Any] | None = encoders.get(extension)
    if encoder is None and isinstance(value, str) and extension not in (*_REFUSED, *AUDIO_FORMATS):
        encoder = _ENCODERS.get(extension, str.encode)
    if encoder is None:
        refusal = _REFUSED.get(extension)
        if extension in AUDIO_FORMATS:
            refusal = "audio is only decoded; give the bytes of a file"
        elif refusal is None:
            refusal = f"no encoder exists for it; give bytes or str, or an extension of {', '.join(sorted(encoders))}"
        raise EncodeError(f"{what}, is not encoded: {refusal}", key=key)
    try:
        data = encoder(value)
    except TarkitError:
        raise
    except Exception as error:  # the value comes from the caller, and its type can raise anything
        raise EncodeError(f"{what}, cannot be encoded: {decoder_reason(error)}", key=key) from error
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise EncodeError(f"{what}: its encoder gave {type(data).__name__}; it must give bytes", key=key)
    return _compress(bytes(data)) if compressed else bytes(data)


def extension_of(field: str) -> tuple[str, bool]:
    """Return the extension of a field in lower case, and True if it is compressed.

    >>> extension_of("input.JSON.gz")
    ('json', True)
    """
    name = field.lower()
    compressed = name.endswith(".gz")
    return name.removesuffix(".gz").rpartition(".")[2], compressed


def _compress(data: bytes) -> bytes:
    # gzip.compress writes a different header in some versions of Python, and zlib writes the
    # operating system in byte 9: it is set to "unknown", so that the same value gives the same
    # bytes on every system.
    compressor = zlib.compressobj(9, zlib.DEFLATED, 31)
    packed = compressor.compress(data) + compressor.flush()
    return packed[:9] + b"\xff" + packed[10:]


def decompress(data: bytes, max_bytes: int) -> bytes:
    """Decompress all members of a gzip stream, and check each of them.

    Raises:
        ValueError: the data has more than ``max_bytes`` bytes, or is cut short.
        zlib.error: the data is damaged.
    """
    content = b""
    while True:
        member = zlib.decompressobj(31)
        content += member.decompress(data, max_bytes + 1 - len(content))
        if len(content) > max_bytes:
            raise ValueError(f"it has more than {max_bytes} bytes once it is decompressed; max_bytes allows more")
        if not member.eof:
            raise ValueError("its gzip stream is cut short")
        # Some writers pad with zeros.
        data = member.unused_data.lstrip(b"\0")
        if not data:
            return content


_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    **dict.fromkeys(NUMBERS, values.encode_integer),
    **dict.fromkeys(JSON, values.encode_json),
    **dict.fromkeys(("mp", "msgpack", "msg"), values.encode_msgpack),
    "cbor": values.encode_cbor,
    "npy": values.encode_npy,
    "npz": values.encode_npz,
    **{extension: partial(encode_image, extension) for extension in IMAGE_FORMATS},
}

_DECODERS: dict[str, Callable[[bytes], Any]] = {
    **dict.fromkeys(NUMBERS, values.decode_integer),
    **dict.fromkeys(TEXTS, partial(str, encoding="utf-8")),
    **dict.fromkeys(JSON, values.decode_json),
    **dict.fromkeys(("mp", "msgpack", "msg"), values.decode_msgpack),
    "cbor": values.decode_cbor,
    "npy": values.decode_npy,
}

_PICKLE = "reading a pickle can run any code; use json, msgpack, npy or npz"
_REFUSED = {
    **dict.fromkeys(("pyd", "pickle", "pkl"), _PICKLE),
    "pth": f"pth files are pickles, and {_PICKLE}",
    **dict.fromkeys(("ten", "tenbin", "tb"), "tarkit does not write or read tenbin; use npy or npz"),
}
