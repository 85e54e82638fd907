"""Steps that find fields by patterns of :mod:`fnmatch`. Names and values follow webdataset 1.0.2."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, BinaryIO

from tarkit.errors import DataError, DecodeError, DuplicateFieldError, UsageError
from tarkit.samples.codecs import decode_field
from tarkit.samples.decoders import call_decoder
from tarkit.samples.sample import Sample, is_reserved
from tarkit.samples.transforms import field_list


def rename_keys(
    samples: Iterable[Sample],
    patterns: Iterable[tuple[str, str]],
    keep_unselected: bool = False,
    must_match: bool = True,
    duplicate_is_error: bool = True,
) -> Iterator[Sample]:
    """Samples of the fields that match patterns, under new names.

    Args:
        patterns: (new name, pattern for the field in lower case); of several that match, the last one counts.
        keep_unselected: what matches no pattern stays; else it is left out, ``__key__`` too.
        must_match: each pattern must match a field of each sample.
        duplicate_is_error: two fields may not have one new name; else the first of them has it.

    Raises:
        DataError, DuplicateFieldError: a sample is not so.
    """
    plan = list(patterns)
    return (_by_pattern(sample, plan, keep_unselected, must_match, duplicate_is_error) for sample in samples)


def _by_pattern(
    sample: Sample, plan: list[tuple[str, str]], keep: bool, must_match: bool, duplicate_is_error: bool
) -> Sample:
    result: Sample = {}
    unmatched: set[str | None] = {pattern for _, pattern in plan}
    for name, value in sample.items():
        base = name.rpartition("/")[2].lower()
        new = next((each for each in reversed(plan) if fnmatchcase(base, each[1])), None)
        if new is None and not keep:
            continue
        target, pattern = new or (name, None)
        unmatched.discard(pattern)
        if target not in result:
            result[target] = value
        elif duplicate_is_error:
            reason = f"rename_keys: {name!r} cannot be {target!r}, because another field is"
            raise DuplicateFieldError(reason, url=sample.get("__url__"), key=sample.get("__key__"))
    if must_match and unmatched:
        missing = field_list((str(each) for each in unmatched), quote=True)
        reason = f"rename_keys: no field matches {missing}; the sample has {field_list(sample)}"
        raise DataError(reason, url=sample.get("__url__"), key=sample.get("__key__"))
    return result


def extract_keys(
    samples: Iterable[Sample],
    patterns: Sequence[str | Sequence[str]],
    duplicate_is_error: bool = True,
    ignore_missing: bool = False,
) -> Iterator[tuple[Any, ...]]:
    """Tuples of the values of the fields that match patterns.

    Args:
        patterns: ``"*.jpg;*.png"`` or a list: the first field that matches one of them, with or without a dot before.
        duplicate_is_error: no pattern may match two fields.
        ignore_missing: what matches no field is left out of the tuple.

    Raises:
        UsageError: no patterns. DataError, DuplicateFieldError: a sample is not so.
    """
    wanted = [each.split(";") if isinstance(each, str) else list(each) for each in patterns]
    if not wanted:
        raise UsageError("extract_keys: no patterns are named")
    return (tuple(_extracted(sample, wanted, duplicate_is_error, ignore_missing)) for sample in samples)


def _extracted(sample: Sample, wanted: list[list[str]], one: bool, ignore: bool) -> Iterator[Any]:
    place = {"url": sample.get("__url__"), "key": sample.get("__key__")}
    for patterns in wanted:
        found = [name for name in sample if any(fnmatchcase(f".{name}", p) or fnmatchcase(name, p) for p in patterns)]
        if len(found) > 1 and one:
            reason = f"extract_keys: {field_list(patterns, quote=True)} matches several fields: {field_list(found)}"
            raise DuplicateFieldError(reason, **place)
        if found:
            yield sample[found[0]]
        elif not ignore:
            has = field_list(name for name in sample if not is_reserved(name))
            raise DataError(f"extract_keys: no field matches {field_list(patterns, quote=True)}; it has {has}", **place)


def decoded_by_pattern(
    samples: Iterable[Mapping[str, Any]], decoders: Sequence[tuple[str, Any]], must_decode: bool
) -> Iterator[Sample]:
    """Samples with each field decoded by a function of a stream, that of the last pattern that matches the field
    in lower case, with or without a dot before it. False instead of a function: it stays.

    Raises:
        UsageError: a decoder is not a pair of a pattern and a function or False.
        DecodeError: (from iterating) a decoder failed, or ``must_decode`` and no pattern matches.
    """
    for pair in decoders:
        if not (isinstance(pair, tuple) and len(pair) == 2 and (callable(pair[1]) or pair[1] is False)):
            raise UsageError(f"xdecode: {pair!r} must be (pattern, function of a stream, or False)")
    return (_decoded(sample, decoders, must_decode) for sample in samples)


def _decoded(sample: Mapping[str, Any], decoders: Sequence[tuple[str, Any]], must_decode: bool) -> Sample:
    place = {"key": sample.get("__key__"), "url": sample.get("__url__")}
    return {
        name: value if is_reserved(name) else _streamed(name, value, decoders, must_decode, place)
        for name, value in sample.items()
    }


def _streamed(
    name: str, value: Any, decoders: Sequence[tuple[str, Any]], must_decode: bool, place: dict[str, Any]
) -> Any:
    base = name.rpartition("/")[2].lower()
    for pattern, function in reversed(decoders):
        if fnmatchcase(base, pattern) or fnmatchcase(f".{base}", pattern):
            if function is False:
                return value
            stream = io.BytesIO(value) if isinstance(value, bytes) else value
            return call_decoder(function, name, place, stream)
    if must_decode:
        raise DecodeError(f"xdecode: no pattern matches the field {name!r}; must_decode=False leaves it", **place)
    return value


def _bytes(stream: BinaryIO) -> bytes:
    return stream.read()


def _text(stream: BinaryIO) -> str:
    return str(stream.read(), "utf-8")


def _pickle(stream: BinaryIO) -> Any:
    return decode_field("pyd", b"")  # which refuses it


STREAM_DECODERS = (("*.bin", _bytes), ("*.txt", _text), ("*.pyd", _pickle))
"""Those that xdecode has by default."""
