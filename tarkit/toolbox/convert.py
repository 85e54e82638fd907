"""Shards to record files and back, and record files to one another.

How a sample is a record: as its piece of the tar (joined, they are the tar again, byte for byte), as one of its
fields, or as a tf.train.Example whose features are its fields. An archive of files has each field as a file."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tarkit.errors import DataError, DuplicateFieldError, EncodeError, RepeatedKeyError, UsageError
from tarkit.formats.registry import (
    check_output_name,
    format_by_name,
    format_module,
    format_of,
    has_names,
    holds_files,
    input_files,
    named_writer,
    read_named,
)
from tarkit.formats.tally import Tally
from tarkit.samples.pieces import one_archive, sample_pieces
from tarkit.samples.read import placed_samples, read_members, read_samples
from tarkit.samples.sample import Sample, is_reserved, key_rule
from tarkit.samples.tarwriter import TarWriter
from tarkit.specs.shardspec import expand
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read, reading
from tarkit.store.url import display_name, is_stream, one_name, reads_once
from tarkit.toolbox.encoding import DEFAULT, Encoding, content_of, sample_of
from tarkit.toolbox.harshards import har_samples

T = TypeVar("T")

Record = tuple[str, bytes]
"""Key and content."""


class VerifyError(DataError):
    """What was written is not what is read back."""


def convert(
    inputs: str | Iterable[str],
    output: str,
    to: str | None = None,
    encoding: Encoding = DEFAULT,
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
        to: tar, or a key of :data:`tarkit.formats.registry.FORMATS`; None: by the end of the output's name.
        encoding: for tars on either side. Between two record files, records are copied as they are.
        on_damage: error; or skip what is damaged: it is counted in ``tally``.
        source_format: of the inputs; None: by their names and first bytes.
        verify: read the output, and compare each record with what was written.
        progress: called with the number of records so far, often.

    Raises:
        UsageError: no inputs, a format that does not exist, tar to tar, an encoding without a tar, an output whose name
        is that of another format, or ``verify`` of a stream.
        VerifyError: ``verify`` found a difference. DataError: damage; a sample without the field; a record that the
        encoding does not know. What reading and writing raise.
    """
    inputs = [inputs] if isinstance(inputs, str) else list(inputs)
    if not inputs:
        raise UsageError("name the inputs")
    tally = Tally() if tally is None else tally
    to = to or format_by_name(output)
    if to is None:
        raise UsageError(f"{display_name(output)} does not end as a file of a format does; name it with --to FORMAT")
    check_output_name(output, to)
    if verify and reads_once(output):
        raise UsageError(f"{display_name(output)} cannot be read again to verify it; name a file as the output")
    written = hashlib.sha256() if verify else None
    listed = input_files(expand(inputs, allow_pipe_in_lists=allow_pipe_in_lists), tally)
    names = _without_output(listed, inputs, output)
    sources: Iterator[tuple[str, str]] = ((name, source_format or format_of(name)) for name in names)
    first = next(sources)
    if encoding.is_default:
        files = holds_files(to) or holds_files(first[1])
        encoding = replace(encoding, files=files, piece="tar" in (to, first[1]) and not files)
        sources = _alike(first, sources)
    source = _Source(itertools.chain([first], sources), encoding, on_damage, tally, progress)
    if to == "tar" and not encoding.piece:
        _write_samples(source.samples(), output, written)
    elif to == "tar":
        _write_pieces(source.records(to), output, encoding, written)
    else:
        _write_records(source.records(to), output, to, written)
    if written is not None:
        found = hashlib.sha256()
        _read_again(output, to, encoding, found)
        if found.digest() != written.digest():
            raise VerifyError(f"{source.number} records were written, and others are read back", url=output)
    return source.number


def _without_output(names: Iterator[str], given: list[str], output: str) -> Iterator[str]:
    """The inputs. The output of an earlier run may be one only by its name, not by a folder or pattern."""
    for name in names:
        if not is_stream(name) and one_name(name) == one_name(output) and name not in given:
            reason = f"{display_name(output)} is the output, and in a folder or pattern of inputs"
            raise UsageError(f"{reason}; write it elsewhere")
        yield name


def _alike(first: tuple[str, str], others: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """The inputs after the first one; either all of them are tars or none is: else the records would differ in kind."""
    for name, found in others:
        if "tar" in (found, first[1]) and found != first[1]:
            _check_tar(name if found == "tar" else first[0])
            raise UsageError(
                f"{display_name(name)} is {found}, and {display_name(first[0])} is {first[1]}; convert them apart, or "
                "with --piece if the records are pieces of tars"
            )
        yield name, found


def _add(digest: hashlib._Hash, parts: Iterable[str | bytes | None]) -> None:
    """A record: its texts and contents, each with its length. Where records have no names, names do not count."""
    for part in parts:
        content = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        if content is not None:
            digest.update(b"%d " % len(content))
            digest.update(content)


@dataclass
class _Source:
    """The inputs, each with its format, as records or as samples. number: of those that were drawn."""

    inputs: Iterator[tuple[str, str]]
    encoding: Encoding
    on_damage: str
    tally: Tally
    progress: Callable[[int], object]
    number: int = 0

    def _numbered(self, record: T) -> T:
        self.number += 1
        self.progress(self.number)
        return record

    def records(self, to: str) -> Iterator[Record]:
        """As they are to be written."""
        files = self._files(to)
        if self.encoding.piece:
            yield from one_archive(files, rule=self.encoding.rule)
        else:
            yield from itertools.chain.from_iterable(files)

    def _files(self, to: str) -> Iterator[Iterator[Record]]:
        """The records of each input."""
        for name, source in self.inputs:
            if source == "tar" and to == "tar":
                raise _tar_already(name)
            if source != "tar" and to != "tar" and (self.encoding.field is not None or self.encoding.example):
                raise UsageError("between two record files, records stay as they are; leave out --field and --example")
            if source == "tar":
                suffix = self.encoding.suffix if holds_files(to) else ""
                found: Iterator[Record] = (
                    (f"{key or self.number}{suffix}", content) for key, content in self._of_tar(name)
                )
            else:
                found = self._of_records(name, source, empty_keys=to != "tar" and not holds_files(to))
            yield map(self._numbered, found)

    def samples(self) -> Iterator[Sample]:
        """Those that the records are."""
        for name, source in self.inputs:
            if source == "tar":
                raise _tar_already(name)
            if self.encoding.files and not holds_files(source):
                raise UsageError(f"{display_name(name)} is not an archive of files; convert it by itself")
            if self.encoding.files:
                archive = format_module(source).Archive(name)
                samples = har_samples(
                    archive,
                    rule=self.encoding.rule,
                    on_others=self.encoding.on_others,
                    on_same_extension=self.encoding.on_same_extension,
                    mem=self.encoding.mem,
                    tally=self.tally,
                )
                yield from map(self._numbered, samples)
            else:
                suffix = self.encoding.suffix if holds_files(source) else ""
                for key, content in self._of_records(name, source):
                    sample = sample_of(name, key.removesuffix(suffix), content, self.encoding)
                    yield self._numbered(sample)

    def _of_records(self, name: str, source: str, *, empty_keys: bool = False) -> Iterator[Record]:
        """empty_keys: whether an empty key stays; else its record is named by its number, as one without a key."""
        mem = self.encoding.mem
        for key, content in read_named(source, name, on_damage=self.on_damage, tally=self.tally, mem=mem):
            if key is None or not (key or empty_keys):
                key = f"{self.number:09d}"
            yield key, content

    def _of_tar(self, name: str) -> Iterator[Record]:
        encoding = self.encoding
        policies: dict[str, Any] = {
            "rule": encoding.rule,
            "on_repeated_key": encoding.on_repeated_key,
            "mem": encoding.mem,
        }
        if encoding.piece:
            if self.on_damage != "error":
                raise UsageError("pieces of a damaged tar are not the tar: repair it with tarkit cat --on-damage skip")
            with open_read(name) as stream:
                # Nothing is left out, so the tally has nothing to count.
                yield from sample_pieces(stream.read, url=stream.name, **policies)
            return
        for sample in read_samples(
            name, on_damage=self.on_damage, literal=True, split=True, tally=self.tally, **policies
        ):
            key = sample["__key__"]
            if encoding.files:
                yield from ((f"{key}.{field}", sample[field]) for field in sample if not is_reserved(field))
            else:
                yield key, content_of(sample, encoding)


def _check_tar(name: str) -> None:
    """Look whether a file is a tar that was taken for one because it is of no other format.
    Raises: DataError: it is not; what it looks like."""
    if not reads_once(name):
        with open_read(name) as stream:
            next(read_members(stream.read, url=stream.name), None)


def _tar_already(name: str) -> UsageError:
    _check_tar(name)
    what = "is taken for a tar" if reads_once(name) else "is a tar already"
    return UsageError(
        f"{display_name(name)} {what}, and tarkit cat joins tars; if it is another format, say so with --from FORMAT"
    )


def _write_records(records: Iterator[Record], output: str, to: str, written: hashlib._Hash | None) -> None:
    with named_writer(to, output) as write:
        for key, content in records:
            write(key, content)
            if written is not None:
                _add(written, (key if has_names(to) else None, content))


def _write_samples(samples: Iterator[Sample], output: str, written: hashlib._Hash | None) -> None:
    with TarWriter(output, encoder=False) as writer:
        for sample in samples:
            try:
                writer.write(sample)
            except EncodeError as error:
                error.url = sample.get("__url__", error.url)  # which record it is, and not which file it would be in
                raise
            if written is not None:
                _add(written, _parts(sample))


def _parts(sample: Sample) -> Iterator[str | bytes]:
    yield sample["__key__"]
    for name in sorted(sample):
        if not is_reserved(name):
            yield from (name, sample[name])


def _write_pieces(records: Iterator[Record], output: str, encoding: Encoding, written: hashlib._Hash | None) -> None:
    """Write pieces of a tar, and read them as one, so that what is not a tar is found, and what no reader takes."""

    of_input: list[Exception] = []

    def passed_on(write: Callable[[bytes], object]) -> Iterator[bytes]:
        try:
            for _, content in records:
                write(content)
                if written is not None:
                    written.update(content)
                yield content
        except DataError as error:
            of_input.append(error)
            raise

    with open_publish(output) as stream:
        try:
            for _ in placed_samples(
                reading(passed_on(stream.write)),
                url=stream.name,
                rule=key_rule(encoding.rule),
                on_repeated_key=encoding.on_repeated_key,
            ):
                pass
        except (RepeatedKeyError, DuplicateFieldError):
            raise
        except DataError as error:
            if error in of_input:
                raise
            error.hint = "these records are not pieces of a tar: say what they are, with --field FIELD or --example"
            if not stream.bytes_written:
                error.hint = "the inputs have no records"
            raise


def _read_again(output: str, to: str, encoding: Encoding, found: hashlib._Hash) -> None:
    """What was written."""
    if to != "tar":
        for name, content in read_named(to, output, on_damage="error", tally=Tally(), mem=encoding.mem):
            _add(found, (name, content))
    elif encoding.piece:
        with open_read(output) as stream:
            while data := stream.read(1 << 20):
                found.update(data)
    else:
        policy = encoding.on_repeated_key
        for sample in read_samples(
            output, literal=True, split=True, rule=encoding.rule, on_repeated_key=policy, mem=encoding.mem
        ):
            _add(found, _parts(sample))
