"""Decoding of samples by words and functions of one's own, as WebDataset's ``decode`` takes them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

from tarkit.errors import DecodeError, TarkitError, UsageError, library
from tarkit.samples.codecs import MAX_BYTES, decode_field, decompress, extension_of
from tarkit.samples.images import IMAGE_FORMATS, IMAGE_SPECS
from tarkit.samples.sample import Sample, is_reserved

FieldDecoder = Callable[[str, bytes], Any]
"""From ``"." + field`` and the field's bytes to its value, or to None: the next one decodes it; or to ``Continue``."""


class Continue(NamedTuple):
    """What the next decoders are given instead, such as what was compressed; webdataset's own class does as well."""

    key: str
    data: bytes


TORCH_WORDS = {"torch": "rgb", **{f"torch{word}": word for word in ("l", "rgb", "rgba", "l8", "rgb8", "rgba8")}}
"""Images as tensors: word -> the word for the array of which the tensor is made, of shape (channel, height, width)."""


def handle_extension(extensions: str, function: Callable[[bytes], Any]) -> FieldDecoder:
    """The decoder that calls ``function(data)`` for fields that end with one of the extensions, ``"jpg seg.png"``."""
    return partial(_handled_extension, tuple(f".{each.lower()}" for each in extensions.split()), function)


def _handled_extension(endings: tuple[str, ...], function: Callable[[bytes], Any], key: str, data: bytes) -> Any:
    return function(data) if key.lower().endswith(endings) else None


class Decoders(NamedTuple):
    """What decodes a field, in this order.

    given: words for images, those of ``decode_field`` and TORCH_WORDS, and functions. A field ``x.gz`` is to functions
        ``.x`` and the bytes without compression, unless ``pre`` is given.
    pre, post: functions before and after them; None: ``decode_field`` comes last, else it does not come.
    """

    given: tuple[str | FieldDecoder | None, ...]
    pre: tuple[FieldDecoder, ...] | None = None
    post: tuple[FieldDecoder, ...] | None = None


def any_picture(fields: Collection[str]) -> list[tuple[str, ...]]:
    """Fields, those together that differ in the extension of a picture only: a sample has one of jpg and png."""
    groups: dict[str, list[str]] = {}
    for field in fields:
        stem = field.rpartition(".")[0]
        groups.setdefault(f"{stem}/" if extension_of(field)[0] in IMAGE_FORMATS else field, []).append(field)
    return [tuple(group) for group in groups.values()]


def decoded(samples: Iterable[Mapping[str, Any]], decoders: Decoders, only: Collection[str] | None) -> Iterator[Sample]:
    """Samples with all fields decoded, or ``only`` those named, by the first decoder that has a value for it.
    Metadata and values that are not bytes stay; so do bytes for which none has a value.

    Raises:
        UsageError: no such word, or not a function.
        DecodeError: (from iterating) a decoder failed; the message names it, shard, key and field.
    """
    for each in decoders.given:
        if not (each is None or callable(each) or each in IMAGE_SPECS or each in TORCH_WORDS):
            words = ", ".join([*IMAGE_SPECS, *TORCH_WORDS])
            raise UsageError(f"images cannot be decoded to {each!r}; it must be one of {words}, None or a function")
    for name, functions in (("pre", decoders.pre), ("post", decoders.post)):
        for function in functions or ():
            if not callable(function):
                raise UsageError(f"decode: {name} has {function!r}; it must be a list of functions")
    return (_decoded(sample, decoders, only) for sample in samples)


def _decoded(sample: Mapping[str, Any], decoders: Decoders, only: Collection[str] | None) -> Sample:
    place = {"key": sample.get("__key__"), "url": sample.get("__url__")}
    return {
        name: _value(name, value, decoders, place)
        if isinstance(value, bytes) and not is_reserved(name) and (only is None or name in only)
        else value
        for name, value in sample.items()
    }


def _value(field: str, data: bytes, decoders: Decoders, place: dict[str, Any]) -> Any:
    name, unpacks = field, decoders.pre is None
    for decoder in (*(decoders.pre or ()), *decoders.given, *(decoders.post or ())):
        if callable(decoder):
            given = name, data
            if unpacks and extension_of(name)[1]:
                given = name[:-3], call_decoder(decompress, field, place, data, MAX_BYTES)
            value = call_decoder(decoder, field, place, f".{given[0]}", given[1])
            if type(value).__name__ == "Continue":
                name, data = value.key[1:], value.data
            elif value is not None:
                return value
        elif decoder is not None and _extension(name, unpacks) in IMAGE_FORMATS:
            array = decode_field(name, data, image=TORCH_WORDS.get(decoder, decoder), **place)
            return _tensor(array) if decoder in TORCH_WORDS else array
    last = decoders.post is None and (unpacks or not extension_of(name)[1])
    return decode_field(name, data, image=None, **place) if last else data


def _extension(name: str, unpacks: bool) -> str | None:
    extension, compressed = extension_of(name)
    return None if compressed and not unpacks else extension


def call_decoder(decoder: Callable[..., Any], field: str, place: dict[str, Any], *given: Any) -> Any:
    """What the decoder makes of ``given``. Raises: DecodeError: it failed."""
    try:
        return decoder(*given)
    except TarkitError:
        raise
    except Exception as error:  # what a function of the user raises
        function = getattr(decoder, "__qualname__", None) or repr(decoder)
        reason = f"field {field!r} cannot be decoded: {function}: {type(error).__name__}: {error}"
        raise DecodeError(reason, **place) from error


def _tensor(array: Any) -> Any:
    torch = library("torch", "the image words of torch", "torch")
    return torch.from_numpy((array.transpose(2, 0, 1) if array.ndim == 3 else array).copy())
