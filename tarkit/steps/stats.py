"""Statistics of a data set: its fields, sizes, classes, pictures, JSON, texts and sound.

A measure of a field is numbers, such as the width of pictures, or values, such as their format. The
extension of a field chooses its measures. Pictures and sound are not decoded: their headers are
read.
"""

from __future__ import annotations

import importlib
import io
import itertools
import wave
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tarkit.errors import DataError, UsageError, counted, printable, quoted
from tarkit.extras import MissingExtraError
from tarkit.formats.tally import Tally
from tarkit.formats.tar.large import SkipLarge
from tarkit.names.keywords import Unpack
from tarkit.samples.codecs import JSON, TEXTS, decode_field, extension_of
from tarkit.samples.images import orientation, picture_size
from tarkit.samples.read import ReadOptions, read_samples
from tarkit.samples.sample import Sample, is_reserved
from tarkit.steps.distribution import Distribution, ValueCounts
from tarkit.steps.pictures import PICTURES
from tarkit.store.fieldfile import LARGE
from tarkit.store.waits import Workers, raise_if_stopped

UNREADABLE, NOT_MEASURED = "unreadable", "not_measured"
"""Measures for contents without others: their values are places and reasons."""
OTHER_FIELDS = "(other fields)"
"""Name of all fields after the first hundred."""
_MOST_FIELDS = 100
_DEPTH = 4
_LONGEST_CLASS = 100
_TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number"}

Measured = Iterator[tuple[str, float | str]]
"""Names of measures, each with a number, or with a value to count."""
Select = Callable[[Iterable[Sample]], Iterable[Sample]]
"""A choice among samples, such as :meth:`tarkit.steps.selection.Selection.select`."""
Progress = Callable[[int, float], object]
"""A function that is called with the numbers of samples and shards that were read so far."""


class _NotMeasured(Exception):
    """A content is not measured, though it may be valid."""


def _picture(name: str, data: bytes) -> Measured:
    found = picture_size(data)
    if found is None:
        raise DataError("Pillow cannot open it")
    kind, width, height, mode = found
    yield from (("width", width), ("height", height), ("size", f"{width} x {height}"))
    yield from (("format", kind), ("mode", mode), ("orientation", str(orientation(data) or "none")))


def _text(name: str, data: bytes) -> Measured:
    yield "characters", len(str(decode_field(name, data, max_bytes=LARGE)))


def _json(name: str, data: bytes) -> Measured:
    for key in _keys(decode_field(name, data, max_bytes=LARGE)):
        yield "key", key


def _keys(value: Any, path: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the path and type of the values in a JSON document, not of those in lists."""
    if path or not isinstance(value, dict):
        yield f"{path or '(document)'}: {_TYPES.get(type(value), 'null')}"
    if isinstance(value, dict) and depth < _DEPTH:
        for key, inner in value.items():
            yield from _keys(inner, f"{path}.{key}" if path else key, depth + 1)


def _wave(name: str, data: bytes) -> Measured:
    try:
        stream = io.BytesIO(data)
        with wave.open(stream) as file:
            frames, rate, channels = file.getnframes(), file.getframerate(), file.getnchannels()
            size, rest = frames * channels * file.getsampwidth(), len(data) - stream.tell()
    except wave.Error as error:
        if "unknown format" not in str(error):
            raise
        yield from _sound(name, data)
        return
    if size > rest:
        raise DataError(f"its header announces {size} bytes of sound, but it has {rest}")
    yield "seconds", frames / rate
    yield "sound", f"{rate} Hz, {counted(channels, 'channel')}"


def _sound(name: str, data: bytes) -> Measured:
    try:
        soundfile = importlib.import_module("soundfile")
    except (ImportError, OSError):  # of the package, or of its library
        raise _NotMeasured("the library soundfile is not installed") from None
    try:
        info = soundfile.info(io.BytesIO(data))
    except RuntimeError as error:
        # Its text has the address of the stream.
        raise DataError(str(getattr(error, "error_string", "soundfile cannot open it"))) from None
    yield "seconds", info.frames / info.samplerate
    yield "sound", f"{info.samplerate} Hz, {counted(info.channels, 'channel')}"


_EXTENSIONS: dict[tuple[str, ...], Callable[[str, bytes], Measured]] = {
    (*PICTURES, "heic"): _picture,
    TEXTS: _text,
    JSON: _json,
    ("flac", "ogg", "opus", "mp3"): _sound,
    ("wav",): _wave,
}
_MEASURES = {extension: measure for names, measure in _EXTENSIONS.items() for extension in names}
_DECOMPRESSED = (_text, _json)


_LIMITS = LARGE, 2 * LARGE
"""Bytes of a member, and of a sample, above which only the sizes of contents are counted."""


@dataclass
class Statistics:
    """Statistics of samples.

    A measure has the name (field, measure); the field "" stands for the whole sample.

    Attributes:
        class_fields: fields whose values are counted as classes.
        classes: value of a class -> its name; if there are any, other values are marked.
        samples: number of samples.
        numbers: the measures that are numbers.
        values: the measures that are values.
        tally: counts of the reader.
    """

    class_fields: Sequence[str] = ("cls",)
    classes: Mapping[str, str] = field(default_factory=dict)
    samples: int = 0
    numbers: dict[tuple[str, str], Distribution] = field(default_factory=lambda: defaultdict(Distribution))
    values: dict[tuple[str, str], ValueCounts] = field(default_factory=lambda: defaultdict(ValueCounts))
    tally: Tally = field(default_factory=Tally)
    _fields: set[str] = field(default_factory=lambda: {""})

    def add(self, sample: Sample) -> None:
        """Measure a sample; each of its values has a length, and is measured if it is bytes."""
        self.samples += 1
        fields = sorted(name for name in sample if not is_reserved(name))
        self._put("", (("bytes", sum(len(sample[name]) for name in fields)), ("combination", " ".join(fields))))
        for name in fields:
            data, shown = sample[name], self._shown(name)
            self._put("", (("field", name),))
            self._put(shown, (("bytes", len(data)),))
            extension, compressed = extension_of(name)
            measure = self._class if name in self.class_fields else _MEASURES.get(extension)
            if measure is None or (compressed and measure not in _DECOMPRESSED):
                continue
            try:
                if not isinstance(data, bytes):
                    raise _NotMeasured(f"more than {LARGE >> 20} MiB")
                self._put(shown, list(measure(name, data)))
            except (_NotMeasured, MissingExtraError) as error:
                self._put(shown, ((NOT_MEASURED, str(error)),))
            except Exception as error:  # damaged bytes can make a parser raise anything
                place = f"{printable(sample['__url__'])}, key {printable(sample['__key__'])}"
                self._put(shown, ((UNREADABLE, f"{place}: {printable(str(error) or type(error).__name__)}"),))

    @property
    def size(self) -> int:
        """Number of bytes of all fields."""
        return int(self.numbers["", "bytes"].total) if self.samples else 0

    def merge(self, other: Statistics) -> None:
        """Add the statistics of the samples that follow."""
        self.samples += other.samples
        for (name, measure), distribution in other.numbers.items():
            self.numbers[self._shown(name), measure].merge(distribution)
        for (name, measure), counts in other.values.items():
            self.values[self._shown(name), measure].merge(counts)
        self.tally.add(other.tally)

    def as_dict(self) -> dict[str, Any]:
        """Return all as JSON has it: ``fields`` holds the measures of each field by their names."""
        fields: dict[str, dict[str, Any]] = {}
        measures: Any = (*self.numbers.items(), *self.values.items())
        for (name, measure), found in measures:
            fields.setdefault(name, {})[measure] = found.summary()
        return {"samples": self.samples, "sample": fields.pop("", {}), "fields": dict(sorted(fields.items()))}

    def _shown(self, name: str) -> str:
        """Return a field, or the name for all after the first hundred."""
        if name not in self._fields and len(self._fields) > _MOST_FIELDS and name not in self.class_fields:
            return OTHER_FIELDS
        self._fields.add(name)
        return name

    def _put(self, name: str, measured: Iterable[tuple[str, float | str]]) -> None:
        for measure, found in measured:
            if isinstance(found, str):
                self.values[name, measure].add(found)
            else:
                self.numbers[name, measure].add(found)

    def _class(self, name: str, data: bytes) -> Measured:
        found = data[:_LONGEST_CLASS].decode("utf-8", "replace").strip()
        unknown = "(not in the table)" if self.classes else ""
        yield "class", f"{found} {self.classes.get(found, unknown)}".rstrip()


def gather_statistics(
    urls: Iterable[str],
    *,
    class_fields: Sequence[str] = (),
    classes: Mapping[str, int] | None = None,
    number: int | None = None,
    select: Select | None = None,
    parallel: int = 1,
    progress: Progress = lambda samples, shards: None,
    **options: Unpack[ReadOptions],
) -> Statistics:
    """Measure the samples of shards. Memory is bounded: 8 MB for each measure, and large samples.

    The result is the same for every ``parallel``.

    Args:
        urls: names of shards, as :func:`tarkit.specs.shardspec.expand` gives them.
        class_fields: fields whose values are counted as classes; none: ``cls``.
        classes: table of classes, name -> number.
        number: most samples to measure.
        select: function that chooses among the samples.
        parallel: number of shards to read at once; 1 with ``number`` or ``select``.
        progress: called for each sample, from several threads.
        options: options of the reader, without ``tally``.

    Raises:
        UsageError: no sample has one of the class fields.
    """
    table = {str(number): name for name, number in (classes or {}).items()}
    empty = partial(Statistics, tuple(class_fields) or ("cls",), table)
    total, numbers = empty(), itertools.count(1)

    def samples_of(shards: Iterable[str], tally: Tally) -> Iterator[Sample]:
        own: ReadOptions = {**options, "tally": tally}
        # A choice may look into any content.
        large = SkipLarge(*_LIMITS) if select is None else None
        for sample in read_samples(shards, literal=True, large=large, **own):
            progress(next(numbers), tally.shards_read() + (0 if tally is total.tally else total.tally.shards))
            yield sample

    def of_shard(url: str) -> Statistics:
        found = empty()
        for sample in samples_of([url], found.tally):
            raise_if_stopped()
            found.add(sample)
        return found

    # A single shard, such as standard input, is read here: a signal interrupts no other thread.
    left = iter(urls)
    first = [*itertools.islice(left, 2)]
    urls = itertools.chain(first, left)
    if number is None and select is None and len(first) > 1:
        with Workers(parallel, "tarkit-stats") as pool:
            for found in pool.ahead(of_shard, urls, 2 * parallel):
                total.merge(found)
    else:
        samples: Iterable[Sample] = samples_of(urls, total.tally)
        for sample in itertools.islice(samples if select is None else select(samples), number):
            total.add(sample)
    for name in class_fields if total.samples else ():
        if (name, "class") not in total.values:
            known = ", ".join(sorted({name for name, _ in total.numbers} - {""}))
            raise UsageError(f"no sample has the field {quoted(name)} of --class; the fields are {printable(known)}")
    for (_, measure), counts in total.values.items():
        for value, name in table.items() if measure == "class" else ():
            counts.add(f"{value} {name}", 0)
    return total
