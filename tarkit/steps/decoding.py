"""Check the content of fields by decoding it: pictures, JSON, text, numbers, arrays, sound, video.

A cut or damaged file, and content that is not what the field's name says, is a problem. Nothing of
the data is executed: pickles are never loaded. What is decoded is bounded by the header first.
"""

from __future__ import annotations

import importlib
import io
import json
import math
import re
import struct
import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache

from tarkit.errors import printable
from tarkit.extras import PACKAGES, MissingExtraError, library
from tarkit.formats.tabletext import distinct_names
from tarkit.formats.tar.headers import looks_like
from tarkit.samples.codecs import JSON, NUMBERS, TEXTS, decode_field, decompress, extension_of
from tarkit.samples.sample import Sample, is_reserved
from tarkit.steps.findings import UNCHECKED, ContentProblem, bytes_behind, reason_of
from tarkit.steps.pictures import PICTURES, check_picture

_MOST_BYTES = 1 << 28


Check = Callable[[bytes, str], Iterator[ContentProblem]]


def content_problems(field: str, data: bytes) -> Iterator[ContentProblem]:
    """Yield the problems of the content of a field, which is not empty.

    The extension of the field's name decides how it is checked.
    """
    extension, is_compressed = extension_of(field)
    kind, check = _CHECKS.get(extension, ("picture", check_picture))
    if extension not in _CHECKS and extension not in PICTURES:
        yield ContentProblem(UNCHECKED, f".{printable(extension)}: no check exists")
        return
    try:
        content = decompress(data, _MOST_BYTES) if is_compressed else data
        yield from check(content, extension)
    except MissingExtraError as error:
        yield ContentProblem(UNCHECKED, f"{error.needed_for} (pip install {PACKAGES[error.extra]})")
    except MemoryError:  # says nothing about the content, which must not come into a list of bad keys
        yield ContentProblem("not-decoded", "not decoded: there is not enough memory", True)
    except Exception as error:  # each library has classes of its own; SyntaxError is one of them
        yield ContentProblem(kind, reason_of(error.__cause__ or error))


def may_be_empty(field: str) -> bool:
    """Return True if content of this name may have 0 bytes, such as a text."""
    extension, _ = extension_of(field)
    return extension not in PICTURES and _CHECKS.get(extension, ("text",))[0] == "text"


@lru_cache
def needs_process(field: str) -> bool:
    """Return True if a library in C decodes the content, which can crash the process."""
    extension, _ = extension_of(field)
    return extension in PICTURES or _CHECKS.get(extension) == ("audio", _sound)


def sample_problems(sample: Sample) -> Sample | None:
    """Check the fields of a sample; a mapper for a pool of processes.

    Returns:
        A sample with the field ``problems``, JSON: field, kind, message and is_warning of each
        problem. None without problems.
    """
    fields = ((field, data) for field, data in sample.items() if not is_reserved(field))
    found = [(field, *problem) for field, data in fields for problem in content_problems(field, data)]
    return {"problems": json.dumps(found).encode()} if found else None


def _json(data: bytes, extension: str) -> Iterator[ContentProblem]:
    encoding = json.detect_encoding(data)
    if encoding == "utf-8-sig":
        yield ContentProblem(
            "byte-order-mark", "it begins with a byte order mark, which many parsers of JSON reject", True
        )
    value = _JSON.decode(data.decode(encoding))
    if re.search(rb"\\u[dD][89a-fA-F]", data):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            yield ContentProblem("json", "a string has half of a surrogate pair, which is not a character")


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is larger than any number of 64 bits, and becomes Infinity")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON (RFC 8259)")


_JSON = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=distinct_names)


def _value(data: bytes, extension: str) -> Iterator[ContentProblem]:
    decode_field(extension, data)
    yield from ()


def _npy(data: bytes, extension: str) -> Iterator[ContentProblem]:
    numpy = library("numpy", "arrays", "images")
    form, stream = numpy.lib.format, io.BytesIO(data)
    version = form.read_magic(stream)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of files that Python 2 wrote
        shape, _, dtype = (form.read_array_header_1_0 if version == (1, 0) else form.read_array_header_2_0)(stream)
    if dtype.hasobject:
        raise ValueError("it has Python objects, so it is a pickle, which is never loaded")
    end = stream.tell() + math.prod(shape) * dtype.itemsize
    if len(data) < end:
        yield ContentProblem("array", f"cut: by its header it has {end} bytes, and it has {len(data)}")
    yield from bytes_behind(data, end)


def _wav(data: bytes, extension: str) -> Iterator[ContentProblem]:
    if data[:4] not in (b"RIFF", b"RF64") or data[8:12] != b"WAVE":
        raise ValueError(f"not a WAV file: {looks_like(data)}")
    at, seen = 12, set[bytes]()
    while b"data" not in seen and at + 8 <= len(data):
        name, size = struct.unpack_from("<4sI", data, at)
        at += 8 + size
        if name == b"data" and size == 0xFFFFFFFF:  # of a program that wrote to a pipe
            at = len(data)
        seen.add(name)
    if missing := {b"fmt ", b"data"} - seen:
        yield ContentProblem("audio", f"it has no chunk {min(missing).decode()!r}")
    elif at > len(data):
        yield ContentProblem("audio", f"cut: by its header it has {at} bytes, and it has {len(data)}")
    else:
        size = int.from_bytes(data[4:8], "little")
        yield from bytes_behind(data, len(data) if size in (0, 0xFFFFFFFF) else max(at, 8 + size) + at % 2)


def _sound(data: bytes, extension: str) -> Iterator[ContentProblem]:
    try:
        soundfile = importlib.import_module("soundfile")
    except (ImportError, OSError):  # OSError: the library that it loads is missing
        yield ContentProblem(UNCHECKED, "audio that is not WAV (pip install soundfile)")
        return
    with soundfile.SoundFile(io.BytesIO(data)) as sound:
        read = 0
        while block := len(sound.read(1 << 16, dtype="int16")):
            read += block
        if read < sound.frames:
            yield ContentProblem("audio", f"cut: by its header it has {sound.frames} frames, and {read} can be read")


def _video(data: bytes, extension: str) -> Iterator[ContentProblem]:
    """Walk the boxes of an MP4 file (ISO/IEC 14496-12, 4.2)."""
    at, seen = 0, list[bytes]()
    while at + 8 <= len(data):
        size, name = struct.unpack_from(">I4s", data, at)
        if size == 1:
            size = int.from_bytes(data[at + 8 : at + 16], "big")
        size = size or len(data) - at
        if seen and not data[at:].strip(b"\0"):
            break
        if size < 8 or not name.isalnum() or (not seen and name not in _FIRST_BOXES):
            raise ValueError(f"at {at} no box of MP4 begins: {looks_like(data[at:])}")
        seen.append(name)
        at += size
    if at > len(data):
        yield ContentProblem("video", f"cut: its box {seen[-1].decode()} ends at {at}, and the file at {len(data)}")
    elif b"moov" not in seen:
        yield ContentProblem("video", "it has no box moov, without which it cannot be played")
    yield from bytes_behind(data, at)


_FIRST_BOXES = (b"ftyp", b"moov", b"mdat", b"free", b"skip", b"wide")

_CHECKED: dict[tuple[str, ...], tuple[str, Check]] = {
    JSON: ("json", _json),
    NUMBERS: ("number", _value),
    TEXTS: ("text", _value),
    ("npy",): ("array", _npy),
    ("mp", "msgpack", "msg", "cbor"): ("value", _value),
    ("wav",): ("audio", _wav),
    ("flac", "ogg", "oga", "opus", "mp3"): ("audio", _sound),
    ("mp4", "m4a", "m4v", "mov"): ("video", _video),
}
"""Extensions -> kind of finding, and the check."""
_CHECKS = {name: how for names, how in _CHECKED.items() for name in names}
