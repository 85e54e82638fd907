"""Decoding of samples by words and functions of one's own, as WebDataset's ``decode`` takes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from tarkit.errors import DecodeError, TarkitError, UsageError, library
from tarkit.samples.codecs import MAX_BYTES, decode_field, decompress, extension_of
from tarkit.samples.images import IMAGE_FORMATS, IMAGE_SPECS
from tarkit.samples.sample import Sample, is_reserved

FieldDecoder = Callable[[str, bytes], Any]
"""From ``"." + field``, without ``.gz``, and the field's bytes to its value, or to None: the next one decodes it."""
TORCH_WORDS = {"torch": "rgb", **{f"torch{word}": word for word in ("l", "rgb", "rgba", "l8", "rgb8", "rgba8")}}
"""Images as tensors: word -> the word for the array of which the tensor is made, of shape (channel, height, width)."""


def handle_extension(extensions: str, function: Callable[[bytes], Any]) -> FieldDecoder:
    """The decoder that calls ``function(data)`` for fields that end with one of the extensions, ``"jpg seg.png"``."""
    return partial(_handled_extension, tuple(f".{each.lower()}" for each in extensions.split()), function)


def _handled_extension(endings: tuple[str, ...], function: Callable[[bytes], Any], key: str, data: bytes) -> Any:
    return function(data) if key.lower().endswith(endings) else None


def decoded(
    samples: Iterable[Mapping[str, Any]], decoders: tuple[str | FieldDecoder | None, ...], only: Collection[str] | None
) -> Iterator[Sample]:
    """Samples with all fields decoded, or ``only`` those named, by the first decoder that has a value for it, else by
    :func:`tarkit.samples.codecs.decode_field`. Metadata and values that are not bytes stay.

    Args:
        decoders: words for images, those of ``decode_field`` and TORCH_WORDS, and functions.

    Raises:
        UsageError: no such word.
        DecodeError: (from iterating) a decoder failed; the message names it, shard, key and field.
    """
    for each in decoders:
        if not (each is None or callable(each) or each in IMAGE_SPECS or each in TORCH_WORDS):
            words = ", ".join([*IMAGE_SPECS, *TORCH_WORDS])
            raise UsageError(f"images cannot be decoded to {each!r}; it must be one of {words}, None or a function")
    given = [each for each in decoders if each is not None]
    return (_decoded(sample, given, only) for sample in samples)


def _decoded(sample: Mapping[str, Any], decoders: list[str | FieldDecoder], only: Collection[str] | None) -> Sample:
    place = {"key": sample.get("__key__"), "url": sample.get("__url__")}
    return {
        name: _value(name, value, decoders, place)
        if isinstance(value, bytes) and not is_reserved(name) and (only is None or name in only)
        else value
        for name, value in sample.items()
    }


def _value(name: str, data: bytes, decoders: list[str | FieldDecoder], place: dict[str, Any]) -> Any:
    extension, compressed = extension_of(name)
    for decoder in decoders:
        if callable(decoder):
            value = _called(decoder, name, data, compressed, place)
            if value is not None:
                return value
        elif extension in IMAGE_FORMATS:
            array = decode_field(name, data, image=TORCH_WORDS.get(decoder, decoder), **place)
            return _tensor(array) if decoder in TORCH_WORDS else array
    return decode_field(name, data, image=None, **place)


def _called(decoder: FieldDecoder, name: str, data: bytes, compressed: bool, place: dict[str, Any]) -> Any:
    try:
        if compressed:
            name, data = name[:-3], decompress(data, MAX_BYTES)
        return decoder(f".{name}", data)
    except TarkitError:
        raise
    except Exception as error:  # what a function of the user raises
        function = getattr(decoder, "__qualname__", None) or repr(decoder)
        reason = f"field {name!r} cannot be decoded: {function}: {type(error).__name__}: {error}"
        raise DecodeError(reason, **place) from error


def _tensor(array: Any) -> Any:
    torch = library("torch", "the image words of torch", "torch")
    return torch.from_numpy((array.transpose(2, 0, 1) if array.ndim == 3 else array).copy())
