"""Shards to record files and back, and record files to one another.

How a sample is a record: as its piece of the tar (joined, they are the tar again, byte for byte), as one of its
fields, or as a tf.train.Example whose features are its fields.
"""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from tarkit.errors import DataError, UsageError, printable
from tarkit.formats.example import decode_example, encode_example
from tarkit.formats.registry import format_of, has_names, named_writer, read_named
from tarkit.formats.tally import Tally
from tarkit.formats.tar.large import DEFAULT_MEM
from tarkit.samples.pieces import sample_pieces
from tarkit.samples.read import read_members, read_samples
from tarkit.samples.sample import KeyRule, Sample, first_dot, is_reserved
from tarkit.samples.tarwriter import TarWriter
from tarkit.specs.shardspec import expand
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read, reading

Record = tuple[str, bytes]
"""Key and content."""


@dataclass(frozen=True)
class Encoding:
    """How samples are records. field: of one field; example: as tf.train.Example; neither: as pieces of a tar.

    rule, mem: as for read_samples.
    """

    field: str | None = None
    example: bool = False
    rule: str | KeyRule = first_dot
    mem: int = DEFAULT_MEM

    def __post_init__(self) -> None:
        if self.field is not None and self.example:
            raise UsageError("a record is a field or an Example, not both")

    @property
    def is_lossless(self) -> bool:
        """Whether records are pieces of a tar."""
        return self.field is None and not self.example


class VerifyError(DataError):
    """What was written is not what is read back."""


def convert(
    inputs: str | Iterable[str],
    output: str,
    to: str,
    encoding: Encoding = Encoding(),
    *,
    on_damage: str = "error",
    source_format: str | None = None,
    allow_pipe_in_lists: bool = False,
    verify: bool = False,
    tally: Tally | None = None,
    progress: Callable[[int], object] = lambda records: None,
) -> int:
    """Write all records of the inputs as one file of another format; the number of records.

    Args:
        inputs: paths, URLs or shard specs, of any formats. output: published whole, or not at all.
        to: tar, or a key of :data:`tarkit.formats.registry.FORMATS`.
        encoding: for tars on either side. Between two record files, records are copied as they are.
        on_damage: error; or skip what is damaged: it is counted in ``tally``.
        source_format: of the inputs; None: by their names and first bytes.
        verify: read the output, and compare each record with what was written.
        progress: called with the number of records so far, often.

    Raises:
        UsageError: a format that does not exist, tar to tar, or an encoding without a tar.
        VerifyError: ``verify`` found a difference. DataError: damage; a sample without the field; a record that the
        encoding does not know. What reading and writing raise.
    """
    tally = Tally() if tally is None else tally
    written = _Digest() if verify else None
    names = expand(inputs, allow_pipe_in_lists=allow_pipe_in_lists)
    records = _counted(_records(names, to, encoding, source_format, on_damage, tally), progress)
    if to != "tar":
        count = _write_records(records, output, to, written)
    elif encoding.is_lossless:
        count = _write_pieces(records, output, written)
    else:
        count = _write_samples(records, output, encoding, written)
    if written is not None:
        found = _Digest()
        _read_again(output, to, encoding, found)
        if found != written:
            raise VerifyError(f"{count} records were written, and others are read back", url=output)
    return count


class _Digest:
    """Of texts and contents, whatever pieces they come in. Where records have no names, names do not count."""

    def __init__(self) -> None:
        self._sum = hashlib.sha256()

    def add(self, *parts: str | bytes) -> None:
        """A record."""
        for part in parts:
            content = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
            self._sum.update(b"%d " % len(content))
            self._sum.update(content)

    def add_piece(self, content: bytes) -> None:
        """Of a stream, wherever it is cut."""
        self._sum.update(content)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Digest) and self._sum.digest() == other._sum.digest()

    __hash__ = None  # type: ignore[assignment]


def _counted(records: Iterator[Record], progress: Callable[[int], object]) -> Iterator[Record]:
    for count, record in enumerate(records, 1):
        yield record
        progress(count)


def _records(
    names: Iterable[str], to: str, encoding: Encoding, source_format: str | None, on_damage: str, tally: Tally
) -> Iterator[Record]:
    """Of all inputs, as they are to be written."""
    number = 0
    for name in names:
        source = source_format or format_of(name)
        if source == "tar":
            if to == "tar":
                raise UsageError(f"{printable(name)} is a tar already; tarkit cat joins tars")
            yield from _of_samples(name, encoding, on_damage, tally)
            continue
        if to != "tar" and not encoding.is_lossless:
            raise UsageError("between two record files, records stay as they are; leave out --field and --example")
        for key, content in read_named(source, name, on_damage=on_damage, tally=tally):
            yield key or f"{number:09d}", content
            number += 1


def _of_samples(name: str, encoding: Encoding, on_damage: str, tally: Tally) -> Iterator[Record]:
    if encoding.is_lossless:
        if on_damage != "error":
            raise UsageError("pieces of a damaged tar are not the tar; tarkit cat --on-damage skip repairs it first")
        with open_read(name) as stream:
            yield from sample_pieces(stream.read, url=stream.name, rule=encoding.rule, tally=tally, mem=encoding.mem)
        return
    samples = read_samples(name, rule=encoding.rule, on_damage=on_damage, tally=tally, literal=True, mem=encoding.mem)
    for sample in samples:
        yield sample["__key__"], _content(sample, encoding)


def _content(sample: Sample, encoding: Encoding) -> bytes:
    fields = {name: value for name, value in sample.items() if not is_reserved(name)}
    if encoding.field is None:
        return encode_example({"__key__": sample["__key__"].encode("utf-8", "surrogateescape"), **fields})
    if encoding.field not in fields:
        has = ", ".join(map(printable, fields)) or "none"
        raise DataError(
            f"the sample has no field {printable(encoding.field)}; it has {has}",
            url=sample["__url__"],
            key=sample["__key__"],
        )
    content: bytes = fields[encoding.field]
    return content


def _write_records(records: Iterator[Record], output: str, to: str, written: _Digest | None) -> int:
    count = 0
    with named_writer(to, output) as writer:
        for key, content in records:
            writer.write(key, content)
            count += 1
            if written is not None:
                written.add(*((key, content) if has_names(to) else (content,)))
    return count


def _write_samples(records: Iterator[Record], output: str, encoding: Encoding, written: _Digest | None) -> int:
    count = 0
    with TarWriter(output, encoder=False) as writer:
        for key, content in records:
            sample = _sample(key, content, encoding)
            writer.write(sample)
            count += 1
            if written is not None:
                written.add(*_parts(sample))
    return count


def _parts(sample: Sample) -> Iterator[str | bytes]:
    yield sample["__key__"]
    for name in sorted(sample):
        if not is_reserved(name):
            yield from (name, sample[name])


def _write_pieces(records: Iterator[Record], output: str, written: _Digest | None) -> int:
    """Write pieces of a tar, and read them as one, so that what is not a tar is found."""
    count = 0

    def passed_on(write: Callable[[bytes], object]) -> Iterator[bytes]:
        nonlocal count
        for _, content in records:
            write(content)
            count += 1
            if written is not None:
                written.add_piece(content)
            yield content

    with open_publish(output) as stream:
        try:
            for _ in read_members(reading(passed_on(stream.write)), url=stream.name):
                pass
        except DataError as error:
            error.hint = "these records are not pieces of a tar: say what they are, with --field FIELD or --example"
            raise
    return count


def _read_again(output: str, to: str, encoding: Encoding, found: _Digest) -> None:
    """What was written."""
    if to != "tar":
        for name, content in read_named(to, output, on_damage="error", tally=Tally()):
            found.add(*((content,) if name is None else (name, content)))
    elif encoding.is_lossless:
        with open_read(output) as stream:
            while data := stream.read(1 << 20):
                found.add_piece(data)
    else:
        for sample in read_samples(output, literal=True, rule=encoding.rule):
            found.add(*_parts(sample))


def _sample(key: str, content: bytes, encoding: Encoding) -> Sample:
    if encoding.field is not None:
        return {"__key__": key, encoding.field: content}
    sample: Sample = {"__key__": key}
    for name, values in decode_example(content).items():
        if name == "__key__" and values is not None and len(values) == 1 and isinstance(values[0], bytes):
            sample["__key__"] = values[0].decode("utf-8", "surrogateescape")
        elif isinstance(values, array):
            sample[f"{name}.json"] = json.dumps(values.tolist()).encode()
        elif values is not None and len(values) == 1:
            sample[name] = values[0]
        elif values:
            raise DataError(f"feature {printable(name)} has {len(values)} values of bytes; a field has one", key=key)
    return sample
