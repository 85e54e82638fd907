"""Contact sheets: one HTML page with the pictures, texts, sound and video of samples."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from tarkit.errors import UsageError, counted, printable
from tarkit.extras import library
from tarkit.mapping.parallel import Outcome, ordered_map
from tarkit.mapping.pythonpool import PythonPool
from tarkit.mapping.scratch import Scratch
from tarkit.samples.codecs import extension_of
from tarkit.samples.sample import Sample, is_reserved
from tarkit.steps.fieldvalues import value_text
from tarkit.steps.htmlpage import page, page_part
from tarkit.steps.thumbnails import is_picture, thumbnails

MOST_SAMPLES = 2000
"""Largest number of samples of a page."""
_MOST_BYTES = 30_000_000
_MOST_MEDIUM = 2_000_000
"""Largest size of a sound or video that can be played, in bytes."""
_MOST_TEXT = 2000
_CLASS = "cls"
_WINDOW = 256 << 20
_SECONDS = 60.0
"""Timeout for the pictures of one sample."""

_TYPES = {
    **{"aac": "audio/aac", "flac": "audio/flac", "m4a": "audio/mp4", "mp3": "audio/mpeg", "oga": "audio/ogg"},
    **{"ogg": "audio/ogg", "opus": "audio/ogg", "wav": "audio/wav", "weba": "audio/webm"},
    **{"m4v": "video/mp4", "mov": "video/mp4", "mp4": "video/mp4", "ogv": "video/ogg", "webm": "video/webm"},
}
"""Extension -> media type of sound and video."""

_Part = dict[str, Any]
"""A field on the page: name, bytes, and src, text, or the reason why there is neither."""


@dataclass
class ContactSheet:
    """A contact sheet, and what it lacks.

    Attributes:
        page: the page, as UTF-8.
        samples: number of its samples.
        lacks: a sentence for everything that the page does not have.
        broken: shard, key, field and reason of each picture that could not be decoded, one line.
    """

    page: bytes = b""
    samples: int = 0
    lacks: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)


def contact_sheet(
    samples: Iterable[Sample],
    *,
    title: str,
    number: int = MOST_SAMPLES,
    edge: int = 160,
    parallel: int = 1,
    progress: Callable[[int], object] = lambda samples: None,
) -> ContactSheet:
    """Return a contact sheet of the first samples: a page that needs no other file.

    It ends before it has more than 30 MB. Sound and video of up to 2 MB can be played. Texts are
    cut after 2,000 characters. A picture that cannot be decoded, or has more than 64 MiB or 50
    million pixels, is replaced by the reason.

    Args:
        samples: the samples; one more than ``number`` is read, to know if there are more. A value
            that is not bytes stands for one that is too large.
        number: largest number of samples, up to MOST_SAMPLES.
        edge: length of the longer edge of a thumbnail, in pixels.
        parallel: number of processes that decode pictures.
        progress: called with the number of samples that are done.

    Raises:
        UsageError: the number is above MOST_SAMPLES.
        MissingExtraError: there are pictures, and Pillow is not installed.
    """
    if number > MOST_SAMPLES:
        raise UsageError(f"a page has at most {MOST_SAMPLES} samples, not {number}; tarkit sample draws some at random")
    sheet, shown, size = ContactSheet(), list[dict[str, Any]](), 0
    for item in _items(islice(samples, number + 1), edge, parallel):
        size += len(json.dumps(item))
        if len(shown) == number or size > _MOST_BYTES:
            reason = f"a page has at most {_MOST_BYTES // 10**6} MB" if len(shown) < number else "as many as requested"
            sheet.lacks.append(f"There are more samples: these are the first {len(shown)}, {reason}.")
            break
        shown.append(item)
        at = f"{printable(item['url'])}, key {printable(item['key'])!r}"
        sheet.broken += [f"{at}, {each['name']}: {each['broken']}" for each in item["fields"] if "broken" in each]
        progress(len(shown))
    sheet.samples = len(shown)
    if sheet.broken:
        sheet.lacks.append(f"{counted(len(sheet.broken), 'picture')} could not be decoded.")
    body, script, style = (page_part(f"contactsheet.{suffix}") for suffix in ("html", "js", "css"))
    data = {"title": title, "edge": edge, "lacks": sheet.lacks, "samples": shown}
    sheet.page = page(title, body, data, script, style)
    return sheet


def _items(samples: Iterable[Sample], edge: int, parallel: int) -> Iterator[dict[str, Any]]:
    """Yield the data of the page for each sample, in order."""
    mapper, decoded = partial(thumbnails, edge=edge), dict[str, _Part]()
    with Scratch() as scratch, PythonPool(mapper, scratch.path, slots=parallel, timeout=_SECONDS) as pool:
        for mapped in ordered_map(_batches(samples), pool, window=_WINDOW):
            if isinstance(mapped, tuple):
                decoded = _decoded(*mapped)
                continue
            for part in mapped["fields"]:
                part |= decoded.get(part["name"], {})
            decoded = {}
            yield mapped


def _batches(samples: Iterable[Sample]) -> Iterator[list[Sample] | dict[str, Any]]:
    """Yield the pictures of a sample, if it has any, as a batch, and then its data for the page."""
    for sample in samples:
        fields = {name: value for name, value in sample.items() if not is_reserved(name)}
        pictures = {name: value for name, value in fields.items() if is_picture(name) and isinstance(value, bytes)}
        if pictures:
            library("PIL.Image", "a contact sheet with pictures", "images")
            yield [{"__key__": sample["__key__"], **pictures}]
        yield {
            "key": sample["__key__"],
            "url": sample.get("__url__", ""),
            "class": value_text(_CLASS, fields.get(_CLASS), 100),
            "fields": [{"name": name, "bytes": len(value), **_part(name, value)} for name, value in fields.items()],
        }


def _part(name: str, value: Any) -> _Part:
    """Return what is known of a field before its picture is decoded."""
    extension, compressed = extension_of(name)
    is_bytes, kind = isinstance(value, bytes), None if compressed else _TYPES.get(extension)
    if is_picture(name):
        return {} if is_bytes else {"broken": "too large to be read"}
    if kind is None:
        return {"text": value_text(name, value, _MOST_TEXT)}
    if not is_bytes or len(value) > _MOST_MEDIUM:
        return {"why": f"more than the {_MOST_MEDIUM // 10**6} MB that can be played here"}
    return {"type": kind, "src": f"data:{kind};base64,{base64.b64encode(value).decode()}"}


def _decoded(batch: list[Sample], outcome: Outcome) -> dict[str, _Part]:
    """Return what is known of each picture of a sample; the reason if the decoder failed."""
    if outcome.failure is None:
        return {name: json.loads(value) for name, value in outcome.made[0][0].items() if not is_reserved(name)}
    why = f"the decoder failed: {outcome.failure.message}"
    return {name: {"broken": why} for name in batch[0] if not is_reserved(name)}
