"""Convert shards to record files and back, and record files to other formats.

A sample becomes a record as its piece of the tar (joined, the pieces are the tar again, byte for
byte), as one of its fields, or as a tf.train.Example whose features are its fields. An archive of
files has each field as a file; a row of Parquet is a sample, with a column for each field.
"""

from __future__ import annotations

import hashlib
import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tarkit.errors import DataError, DuplicateFieldError, EncodeError, RepeatedKeyError, UsageError
from tarkit.formats.registry import (
    check_output_name,
    format_by_name,
    format_module,
    format_of,
    has_names,
    holds_files,
    holds_rows,
    holds_samples,
    input_files,
    named_writer,
    read_named,
)
from tarkit.formats.tally import Tally
from tarkit.names.url import display_name, reads_once
from tarkit.samples.read import placed_samples
from tarkit.samples.sample import Sample, is_reserved, key_rule
from tarkit.samples.tarwriter import TarWriter
from tarkit.specs.outputcheck import other_than
from tarkit.specs.shardspec import expand
from tarkit.steps.convertinputs import Inputs, Record, check_tar, samples_of_rows, samples_of_tar
from tarkit.steps.encoding import DEFAULT, Encoding, sample_of_row, values_of
from tarkit.steps.selection import Selection
from tarkit.store.publish import open_publish
from tarkit.store.read import open_read, reading


class VerifyError(DataError):
    """The output differs from the input when it is read again."""


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
    dry_run: bool = False,
    tally: Tally | None = None,
    progress: Callable[[int], object] = lambda records: None,
    selection: Selection | None = None,
) -> int:
    """Write all records of the inputs as one file of another format; return the number of records.

    Args:
        inputs: paths, URLs or shard specs, of any formats.
        output: path or URL; published whole, or not at all.
        to: tar, or a key of :data:`tarkit.formats.registry.FORMATS`; None: by the extension of the
            output's name.
        encoding: for tars or Parquet on either side. Between two record files, records are copied
            unchanged.
        on_damage: error; or skip damaged parts, which are counted in ``tally``.
        source_format: format of the inputs; None: by their names and first bytes.
        verify: read the output, and compare each record with what was written.
        dry_run: read and encode everything, but write nothing.
        progress: called often, with the number of records so far.
        selection: samples to convert, where the inputs hold samples; None: all.

    Raises:
        UsageError: there are no inputs, a format does not exist or is not that of the output's
            name, both sides are tars, the formats do not have this encoding, or the output of
            ``verify`` is a stream.
        VerifyError: ``verify`` found a difference.
        DataError: an input is damaged, a sample lacks the field, or the encoding does not support a
            record.
        TarkitError: an input cannot be read, or the output cannot be written.
    """
    inputs = [inputs] if isinstance(inputs, str) else list(inputs)
    if not inputs:
        raise UsageError("name the inputs")
    tally = Tally() if tally is None else tally
    to = to or format_by_name(output)
    if to is None:
        raise UsageError(f"{display_name(output)} does not end as a file of a format does; name it with --to FORMAT")
    check_output_name(output, to)
    if verify and dry_run:
        raise UsageError("--verify reads the output, and --dry-run writes none: leave one of them out")
    if verify and reads_once(output):
        raise UsageError(f"{display_name(output)} cannot be read again to verify it; name a file as the output")
    written = hashlib.sha256() if verify else None
    listed = input_files(expand(inputs, allow_pipe_in_lists=allow_pipe_in_lists, outputs=[output]), tally)
    names = other_than([output], listed)
    sources: Iterator[tuple[str, str]] = ((name, source_format or format_of(name)) for name in names)
    first = next(sources)
    _check_encoding(encoding, to, first[1])
    if encoding.is_default:
        files = holds_files(to) or holds_files(first[1])
        is_piece = not (files or holds_rows(to) or holds_rows(first[1])) and "tar" in (to, first[1])
        encoding = replace(encoding, files=files, piece=is_piece)
        sources = _alike(first, sources)
    if selection is not None and (encoding.piece or not holds_samples(first[1])):
        raise UsageError(
            "these records are not samples, so none can be selected; name --field or --example, or pipe shards "
            "through tarkit select"
        )
    source = Inputs(itertools.chain([first], sources), encoding, on_damage, tally, progress, selection=selection)
    if dry_run:
        as_samples = holds_rows(to) or (to == "tar" and not encoding.piece)
        deque(source.samples(to) if as_samples else source.records(to), maxlen=0)
    elif holds_rows(to):
        _write_rows(source.samples(to), output, to, encoding, written)
    elif to == "tar" and not encoding.piece:
        _write_samples(source.samples(to), output, written)
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


def _check_encoding(encoding: Encoding, to: str, first: str) -> None:
    """Refuse encodings that rows cannot have.

    Raises:
        UsageError: the encoding is not possible for rows.
    """
    rows = {each for each in (to, first) if holds_rows(each)}
    others = {to, first} - rows - {"tar"}
    if encoding.columns is not None and not rows:
        raise UsageError("--columns is for Parquet")
    if encoding.typed and not (encoding.example or holds_rows(to)):
        raise UsageError("--typed is for fields that become an Example, or a row of Parquet")
    if rows and (encoding.piece or (encoding.example and not others)):
        flag = "--piece" if encoding.piece else "--example"
        raise UsageError(f"a row of {min(rows)} is a sample, with a column for each field; leave out {flag}")
    if rows and encoding.is_default and not all(map(holds_files, others)):
        raise UsageError(f"say what a record of {min(others)} is, with --field FIELD or --example")


def _alike(first: tuple[str, str], others: Iterator[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the inputs after the first one, and check that their formats fit.

    Raises:
        UsageError: only one of the two formats holds samples, so their records would differ in
            kind.
    """
    for name, found in others:
        if found != first[1] and (holds_samples(found) or holds_samples(first[1])):
            if "tar" in (found, first[1]):
                check_tar(name if found == "tar" else first[0])
            raise UsageError(
                f"{display_name(name)} is {found}, and {display_name(first[0])} is {first[1]}; convert them apart, or "
                "with --piece if the records are pieces of tars"
            )
        yield name, found


def _add(digest: hashlib._Hash, parts: Iterable[str | bytes | None]) -> None:
    """Add a record to a digest: its texts and contents, each with its length.

    Args:
        parts: None for the name of a record in a format without names; it is skipped.
    """
    for part in parts:
        content = part.encode("utf-8", "surrogateescape") if isinstance(part, str) else part
        if content is not None:
            digest.update(b"%d " % len(content))
            digest.update(content)


def _write_records(records: Iterator[Record], output: str, to: str, written: hashlib._Hash | None) -> None:
    with named_writer(to, output) as write:
        for key, content in records:
            write(key, content)
            if written is not None:
                _add(written, (key if has_names(to) else None, content))


def _write_samples(samples: Iterator[Sample], output: str, written: hashlib._Hash | None) -> None:
    with TarWriter(output, encoder=False) as writer:
        for sample in samples:
            with _errors_of_its_record(sample):
                writer.write(sample)
            if written is not None:
                _add(written, _parts(sample))


def _write_rows(
    samples: Iterator[Sample], output: str, to: str, encoding: Encoding, written: hashlib._Hash | None
) -> None:
    with format_module(to).RowWriter(output, columns=encoding.columns) as writer:
        for sample in samples:
            values = values_of(sample, encoding, rows=True)
            if encoding.columns is not None:
                values = {name: value for name, value in values.items() if name in encoding.columns}
            row = {"__key__": sample["__key__"], **values}
            writer.write(row)
            if written is not None:
                # As it is read: other text may stand for the same JSON.
                _add(written, _parts(sample_of_row(sample["__url__"], "", row)))


@contextmanager
def _errors_of_its_record(sample: Sample) -> Iterator[None]:
    """Let encoding errors within the context name the record's input, not the output."""
    try:
        yield
    except EncodeError as error:
        error.url = sample.get("__url__", error.url)
        raise


def _parts(sample: Sample) -> Iterator[str | bytes]:
    yield sample["__key__"]
    for name in sorted(sample):
        if not is_reserved(name):
            yield from (name, sample[name])


def _write_pieces(records: Iterator[Record], output: str, encoding: Encoding, written: hashlib._Hash | None) -> None:
    """Write pieces of a tar, and read them as one tar.

    So content that is not a tar, or that no reader accepts, is detected.
    """
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
    """Yield the records of the output."""
    if holds_rows(to):
        for sample in samples_of_rows(output, to, encoding, itertools.count()):
            _add(found, _parts(sample))
    elif to != "tar":
        for name, content in read_named(to, output, on_damage="error", tally=Tally(), mem=encoding.mem):
            _add(found, (name, content))
    elif encoding.piece:
        with open_read(output) as stream:
            while data := stream.read(1 << 20):
                found.update(data)
    else:
        for sample in samples_of_tar(output, encoding):
            _add(found, _parts(sample))
