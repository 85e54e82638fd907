"""Export samples: a folder of files, a table, or a data set of another library.

In tables and data sets, numbers (``cls``) and text (``txt``, ``json``) are values, and all other
fields are bytes; the key is ``__key__``.
"""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tarkit.errors import EncodeError, StreamError, UsageError, printable
from tarkit.extras import library
from tarkit.formats.parquet import KEY, RowWriter
from tarkit.names.url import is_stream, local_path
from tarkit.samples.codecs import JSON, NUMBERS, TEXTS, decode_field, extension_of
from tarkit.samples.images import IMAGE_FORMATS
from tarkit.samples.sample import Sample, is_reserved
from tarkit.samples.transforms import field_names
from tarkit.specs.outputcheck import other_than, outside
from tarkit.store.fieldfile import FieldFile
from tarkit.store.publish import PublishStream, open_publish
from tarkit.store.wholefolder import replaceable_folder, whole_folder

FOLDERS = ("folder", "mds", "hf")
TABLES = ("csv", "jsonl", "parquet")
"""Targets that are a folder, and those that are one file."""

_VALUES = frozenset((*NUMBERS, *JSON, *TEXTS))
_AUDIO = frozenset(("wav", "flac", "mp3", "ogg", "opus"))
_HF_FILE_BYTES = 500 << 20
"""Bytes of Parquet at which the next file begins, as in data sets of the Hugging Face Hub."""
_ALL_COLUMNS = "name all columns, with --fields, or keep out the field with --drop-fields"

Write = Callable[[Sample], object]
Binary = Callable[[Sample, str], Any]
"""(sample, field) -> value of a field that is not text."""


@contextmanager
def open_export(
    output: str, to: str, *, files: str | None = None, columns: Sequence[str] | None = None, force: bool = False,
    dry_run: bool = False,
) -> Iterator[Write]:  # fmt: skip
    """Open an export; yield a function that writes a sample.

    The result appears when the context ends without an error. A run that was killed leaves nothing
    under the name, and is repeated from the beginning.

    Args:
        output: path of a folder; or path, URL or ``-`` of a table.
        to: one of FOLDERS or TABLES.
        files: folder for those fields of a table that are not text; the table has their paths,
            relative to itself. None: it has their bytes, in CSV and JSON as Base64.
        columns: fields of CSV, Parquet or a data set; None: those of the first sample, in Parquet
            those of the first row group.
        force: True to replace folders that have files.
        dry_run: check the names and samples, but write nothing; paths of files are kept in memory.

    Raises:
        UsageError: the target does not exist, or does not allow these arguments.
        MissingExtraError: a library is not installed.
        EncodeError: (from the function) a sample cannot be exported.
        DecodeError: (from the function) a field is not what its extension says.
        StreamError: the output cannot be written.
    """
    if to not in (*FOLDERS, *TABLES):
        raise UsageError(f"{printable(repr(to))} is not a target; targets are {', '.join((*FOLDERS, *TABLES))}")
    if files is not None and to not in TABLES:
        raise UsageError(f"a folder for files goes with a table ({', '.join(TABLES)})")
    if files is not None and not is_stream(output):
        for _ in outside([files], [output]):
            pass
    if dry_run:
        yield _checking(output, to, files, columns, force)
        return
    with ExitStack() as stack:
        if to in FOLDERS:
            writer = {"folder": _file_writer, "mds": _mds_writer, "hf": _hf_writer}[to]
            yield writer(stack.enter_context(whole_folder(output, force=force)), columns, stack)
            return
        table = stack.enter_context(RowWriter(output, columns=columns) if to == "parquet" else open_publish(output))
        rows = _Rows(_bytes_of if to == "parquet" else _base64_of, columns, is_json=to == "jsonl")
        if files is not None:
            # Opened after the table, so that it is published before that.
            rows.binary = _in_files(stack.enter_context(whole_folder(files, force=force)), _path_from(output, files))
        yield partial(_TABLE_WRITERS[to], table, rows)


def kept_inputs(
    shards: Iterable[str], output: str, to: str, *, files: str | None = None, lists: Sequence[str] = ()
) -> Iterator[str]:
    """Yield the shards, and check each one first: the export must not replace it.

    Args:
        shards: names of the inputs.
        output: as for :func:`open_export`, like ``to`` and ``files``.
        lists: more files that are read, and are not yielded.

    Raises:
        UsageError: an input is the output, or in a folder that the export replaces.
    """
    folders = [*([output] if to in FOLDERS else []), *([] if files is None else [files])]
    names = outside(folders, other_than([output], itertools.chain(lists, shards)))
    return itertools.islice(names, len(lists), None)


def columns_of(fields: str | None, rename: Iterable[str] = ()) -> list[str] | None:
    """Return the fields that samples have after a selection with these options; None if any."""
    if fields is None:
        return None
    new = {name: pair.partition("=")[0] for pair in rename for name in pair.partition("=")[2].split("|")}
    return list(dict.fromkeys(new.get(name, name) for each in field_names(fields) for name in each.split("|")))


@dataclass
class _Rows:
    """The rows of samples.

    Attributes:
        binary: function for the values of fields that are not text.
        fields: fields that a sample may have; None: all.
        is_json: JSON becomes a value, not text.
        seen: columns so far, or all of ``fields``.
    """

    binary: Binary
    fields: Sequence[str] | None = None
    is_json: bool = False
    seen: dict[str, None] = field(default_factory=dict)

    def of(self, sample: Sample, *, is_open: bool = False) -> dict[str, Any]:
        """Return column -> value of a sample.

        Args:
            is_open: True if it may have other columns than the samples before it.
        """
        row: dict[str, Any] = {KEY: sample["__key__"]}
        for name in sample:
            if is_reserved(name):
                continue
            if not _is_value(name):
                row[self._column(name)] = self.binary(sample, name)
                continue
            content = _bytes_of(sample, name)
            value = decode_field(name, content, key=sample["__key__"], url=sample.get("__url__"))
            row[name] = content.decode() if extension_of(name)[0] in JSON and not self.is_json else value
        if not self.seen:
            self.seen = dict.fromkeys(row if self.fields is None else [KEY, *map(self._column, self.fields)])
        if more := row.keys() - self.seen.keys():
            if not is_open or self.fields is not None:
                reason = f"column {printable(min(more))} is not one of {printable(', '.join(self.seen))}"
                raise _not_exported(sample, reason, _ALL_COLUMNS)
            self.seen |= dict.fromkeys(row)
        return row

    def _column(self, name: str) -> str:
        return f"{name}.base64" if self.binary is _base64_of and not _is_value(name) else name


def _is_value(field: str) -> bool:
    extension, compressed = extension_of(field)
    return extension in _VALUES and not compressed


def _bytes_of(sample: Sample, field: str) -> Any:
    content = sample[field]
    return content.read() if isinstance(content, FieldFile) else content


def _base64_of(sample: Sample, field: str) -> Any:
    return base64.b64encode(_bytes_of(sample, field)).decode()


def _in_files(folder: str, path: str) -> Binary:
    return lambda sample, field: os.path.join(path, _write_file(folder, sample, field))


def _path_from(output: str, files: str) -> str:
    """Return the path of a folder, relative to that of a table."""
    table = None if is_stream(output) else local_path(output)
    return files if table is None else os.path.relpath(local_path(files) or files, os.path.dirname(table) or ".")


def _row_writer(out: RowWriter, rows: _Rows, sample: Sample) -> None:
    out.write(rows.of(sample, is_open=True))


def _json_writer(out: PublishStream, rows: _Rows, sample: Sample) -> None:
    _write_text(out, sample, json.dumps(rows.of(sample, is_open=True), ensure_ascii=False) + "\n")


def _csv_writer(out: PublishStream, rows: _Rows, sample: Sample) -> None:
    row, lines = rows.of(sample), io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    if not out.bytes_written:
        writer.writerow(rows.seen)
    writer.writerow([row.get(name) for name in rows.seen])
    _write_text(out, sample, lines.getvalue())


_TABLE_WRITERS: dict[str, Callable[[Any, _Rows, Sample], None]] = {
    "csv": _csv_writer, "jsonl": _json_writer, "parquet": _row_writer,
}  # fmt: skip


def _write_text(out: PublishStream, sample: Sample, text: str) -> None:
    try:
        out.write(text.encode())
    except UnicodeEncodeError:
        raise _not_exported(sample, "its key or text is not Unicode, so that a table cannot hold it") from None


def _mds_writer(folder: str, columns: Sequence[str] | None, stack: ExitStack) -> Write:
    writer_class = library("streaming", "writing Mosaic MDS", "mds").MDSWriter
    rows, writers = _Rows(_bytes_of), list[Any]()

    def write(sample: Sample) -> None:
        row = rows.of(sample)
        if lacking := rows.seen.keys() - row.keys():
            raise _not_exported(sample, f"there is no field {printable(min(lacking))}, and MDS has it in each sample")
        if not writers:
            kinds = {name: {str: "str", int: "int"}.get(type(value), "bytes") for name, value in row.items()}
            writers.append(stack.enter_context(writer_class(out=folder, columns=kinds)))
        writers[0].write(row)

    return write


def _hf_writer(folder: str, columns: Sequence[str] | None, stack: ExitStack) -> Write:
    """Return a writer of Parquet files that the library ``datasets`` loads, with media as such."""
    rows, writers, size = _Rows(_media_of, columns), list[RowWriter](), 0

    def write(sample: Sample) -> None:
        nonlocal size
        if not writers or size >= _HF_FILE_BYTES:
            if writers:
                writers[-1].close()
            path = os.path.join(folder, "data", f"train-{len(writers):05d}.parquet")
            known = [*rows.seen] if writers else columns
            writers.append(stack.enter_context(RowWriter(path, columns=known, metadata=_hf_features)))
            size = 0
        writers[-1].write(rows.of(sample, is_open=len(writers) == 1))
        size += sum(len(value) for name, value in sample.items() if not is_reserved(name))

    return write


def _media_of(sample: Sample, field: str) -> Any:
    content = _bytes_of(sample, field)
    return {"bytes": content, "path": f"{sample['__key__']}.{field}"} if _media(field) else content


def _media(field: str) -> str | None:
    """Return the type of a field in ``datasets`` if it is an image or audio."""
    extension, compressed = extension_of(field)
    kinds = {**dict.fromkeys(IMAGE_FORMATS, "Image"), **dict.fromkeys(_AUDIO, "Audio")}
    return None if compressed else kinds.get(extension)


def _hf_features(schema: Any) -> dict[str, str]:
    """Return the metadata by which ``datasets`` knows the types of columns."""
    features = {
        column.name: {"_type": media}
        if (media := _media(column.name))
        else {"dtype": str(column.type), "_type": "Value"}
        for column in schema
    }
    return {"huggingface": json.dumps({"info": {"features": features}})}


def _file_writer(folder: str, columns: Sequence[str] | None, stack: ExitStack) -> Write:
    def write(sample: Sample) -> None:
        for name in sample:
            if not is_reserved(name):
                _write_file(folder, sample, name)

    return write


def _checking(output: str, to: str, files: str | None, columns: Sequence[str] | None, force: bool) -> Write:
    """Return a function that refuses the samples that the writer of an export would refuse."""
    if (needed := {"mds": "streaming", "hf": "pyarrow", "parquet": "pyarrow"}.get(to)) is not None:
        library(needed, f"writing {to}", "mds" if to == "mds" else "parquet")
    for folder in [output] if to in FOLDERS else [files] if files is not None else []:
        replaceable_folder(folder, force=force)
    rows = _Rows(_base64_of if to in ("csv", "jsonl") and files is None else _bytes_of, columns, is_json=to == "jsonl")
    seen = set[str]()

    def check(sample: Sample) -> None:
        if to != "folder":
            rows.of(sample, is_open=to not in ("csv", "mds"))
        for name in sample if to == "folder" or files is not None else ():
            if not is_reserved(name) and (to == "folder" or not _is_value(name)):
                if (path := _path_of(sample, name)) in seen:
                    raise _there_already(sample, path)
                seen.add(path)

    return check


def _path_of(sample: Sample, field: str) -> str:
    """Return the path of a field's file in its folder; GNU tar's ./ before a name is left out."""
    name = f"{sample['__key__']}.{field}".removeprefix("./")
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise _not_exported(sample, f"{printable(repr(name))} is not the path of a file in a folder")
    return name


def _write_file(folder: str, sample: Sample, field: str) -> str:
    """Write a field to a file that must not exist, and return its path in the folder."""
    name = _path_of(sample, field)
    path = os.path.join(folder, name)
    content = sample[field]
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as file:
            for piece in content.pieces() if isinstance(content, FieldFile) else [content]:
                file.write(piece)
    except FileExistsError:
        raise _there_already(sample, name) from None
    except OSError as error:
        if isinstance(error, StreamError):
            raise
        raise StreamError(f"the file {printable(name)} cannot be written: {error.strerror}", url=folder) from None
    return name


def _there_already(sample: Sample, path: str) -> EncodeError:
    return _not_exported(sample, f"the file {printable(path)} is there already, of another sample")


def _not_exported(sample: Sample, reason: str, hint: str | None = None) -> EncodeError:
    return EncodeError(reason, url=sample.get("__url__"), key=sample["__key__"], hint=hint)
