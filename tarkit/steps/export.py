"""Export samples: a folder of files, a table, or a data set of another library.

In tables and data sets, numbers (``cls``) and text (``txt``, ``json``) are values, and all other
fields are bytes; the key is ``__key__``.
"""

from __future__ import annotations

import base64
import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from tarkit.errors import EncodeError, StreamError, UsageError, printable
from tarkit.extras import library
from tarkit.formats.parquet import KEY, RowWriter
from tarkit.names.url import is_stream, local_path
from tarkit.samples.codecs import decode_field, extension_of
from tarkit.samples.images import IMAGE_FORMATS
from tarkit.samples.sample import Sample, is_reserved
from tarkit.samples.transforms import field_names
from tarkit.store.fieldfile import FieldFile
from tarkit.store.publish import PublishStream, open_publish
from tarkit.store.wholefolder import whole_folder

FOLDERS = ("folder", "mds", "hf")
TABLES = ("csv", "jsonl", "parquet")
"""Targets that are a folder, and those that are one file."""

_NUMBERS = ("cls", "cls2", "class", "count", "index", "inx", "id")
_JSON = ("json", "jsn")
_VALUES = frozenset((*_NUMBERS, *_JSON, "txt", "text", "transcript", "html", "htm"))
_AUDIO = frozenset(("wav", "flac", "mp3", "ogg", "opus"))
_BASE64 = ".base64"
_HF_FILE_BYTES = 500 << 20
"""Bytes of Parquet at which the next file begins, as in data sets of the Hugging Face Hub."""
_ALL_COLUMNS = "name all columns, with --fields, or keep out the field with --drop-fields"

Write = Callable[[Sample], object]
Binary = Callable[[Sample, str], Any]
"""(sample, field) -> value of a field that is not text."""


@contextmanager
def open_export(
    output: str, to: str, *, files: str | None = None, columns: Sequence[str] | None = None, force: bool = False
) -> Iterator[Write]:
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
    with ExitStack() as stack:
        if to in FOLDERS:
            writer = {"folder": _file_writer, "mds": _mds_writer, "hf": _hf_writer}[to]
            yield writer(stack.enter_context(whole_folder(output, force=force)), columns, stack)
            return
        parquet = stack.enter_context(RowWriter(output, columns=columns)) if to == "parquet" else None
        text = stack.enter_context(open_publish(output)) if parquet is None else None
        binary: Binary = _bytes_of if text is None else _base64_of
        if files is not None:
            # Opened after the table, so that it is published before that.
            binary = _in_files(stack.enter_context(whole_folder(files, force=force)), _path_from(output, files))
        suffix = _BASE64 if binary is _base64_of else ""
        if parquet is not None:
            yield _row_writer(parquet, binary, columns)
        elif to == "jsonl" and text is not None:
            yield _json_writer(text, binary, suffix)
        elif text is not None:
            yield _csv_writer(text, binary, suffix, columns)


def columns_of(fields: str | None, rename: Iterable[str] = ()) -> list[str] | None:
    """Return the fields that samples have after a selection with these options; None if any."""
    if fields is None:
        return None
    new = {name: pair.partition("=")[0] for pair in rename for name in pair.partition("=")[2].split("|")}
    return list(dict.fromkeys(new.get(name, name) for each in field_names(fields) for name in each.split("|")))


def _row(sample: Sample, binary: Binary, suffix: str = "", *, parsed: bool = False) -> dict[str, Any]:
    """Return the values of a sample by column.

    Args:
        binary: function for the values of fields that are not text.
        suffix: text behind the names of their columns.
        parsed: True to return JSON as a value; else it is text.
    """
    row: dict[str, Any] = {KEY: sample["__key__"]}
    for field in sample:
        if is_reserved(field):
            continue
        if not _is_value(field):
            row[field + suffix] = binary(sample, field)
            continue
        content = _bytes_of(sample, field)
        value = decode_field(field, content, key=sample["__key__"], url=sample.get("__url__"))
        row[field] = content.decode() if extension_of(field)[0] in _JSON and not parsed else value
    return row


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


def _row_writer(out: RowWriter, binary: Binary, columns: Sequence[str] | None) -> Write:
    def write(sample: Sample) -> None:
        row = _row(sample, binary)
        if columns is not None:
            _check_columns(sample, row, [KEY, *columns])
        out.write(row)

    return write


def _json_writer(out: PublishStream, binary: Binary, suffix: str) -> Write:
    def write(sample: Sample) -> None:
        line = json.dumps(_row(sample, binary, suffix, parsed=True), ensure_ascii=False)
        out.write(_utf8(sample, f"{line}\n"))

    return write


def _csv_writer(out: PublishStream, binary: Binary, suffix: str, columns: Sequence[str] | None) -> Write:
    lines = io.StringIO(newline="")
    rows = csv.writer(lines, lineterminator="\n")
    names = [] if columns is None else [KEY, *(field if _is_value(field) else field + suffix for field in columns)]

    def write(sample: Sample) -> None:
        row = _row(sample, binary, suffix)
        names.extend(() if names else row)
        if not out.bytes_written:
            rows.writerow(names)
        _check_columns(sample, row, names)
        rows.writerow([row.get(name) for name in names])
        out.write(_utf8(sample, lines.getvalue()))
        lines.seek(0)
        lines.truncate()

    return write


def _check_columns(sample: Sample, row: dict[str, Any], names: Sequence[str]) -> None:
    if more := row.keys() - {*names}:
        raise _not_exported(
            sample, f"column {printable(min(more))} is not one of {printable(', '.join(names))}", _ALL_COLUMNS
        )


def _utf8(sample: Sample, text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise _not_exported(sample, "its key or text is not Unicode, so that a table cannot hold it") from None


def _mds_writer(folder: str, columns: Sequence[str] | None, stack: ExitStack) -> Write:
    writer_class = library("streaming", "writing Mosaic MDS", "mds").MDSWriter
    kinds: dict[str, str] = {}
    writers: list[Any] = []

    def write(sample: Sample) -> None:
        row = _row(sample, _bytes_of)
        if not writers:
            kinds.update({name: {str: "str", int: "int"}.get(type(value), "bytes") for name, value in row.items()})
            writers.append(stack.enter_context(writer_class(out=folder, columns=kinds)))
        _check_columns(sample, row, [*kinds])
        if lacking := kinds.keys() - row.keys():
            raise _not_exported(sample, f"there is no field {printable(min(lacking))}, and MDS has it in each sample")
        writers[0].write(row)

    return write


def _hf_writer(folder: str, columns: Sequence[str] | None, stack: ExitStack) -> Write:
    """Return a writer of Parquet files that the library ``datasets`` loads, with media as such."""
    writers: list[RowWriter] = []
    names = dict.fromkeys(columns or ())
    size = 0

    def write(sample: Sample) -> None:
        nonlocal size
        if not writers or size >= _HF_FILE_BYTES:
            if writers:
                writers[-1].close()
            path = os.path.join(folder, "data", f"train-{len(writers):05d}.parquet")
            known = [*names] if writers or columns else None
            writers.append(stack.enter_context(RowWriter(path, columns=known, metadata=_hf_features)))
            size = 0
        row = _row(sample, _media_of)
        if len(writers) == 1:
            names.update(dict.fromkeys(row))
        else:
            _check_columns(sample, row, [*names])
        writers[-1].write(row)
        size += sum(len(value) for field, value in sample.items() if not is_reserved(field))

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
        for field in sample:
            if not is_reserved(field):
                _write_file(folder, sample, field)

    return write


def _write_file(folder: str, sample: Sample, field: str) -> str:
    """Write a field to a file that must not exist, and return its path in the folder."""
    name = f"{sample['__key__']}.{field}"
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise _not_exported(sample, f"{printable(repr(name))} is not the path of a file in a folder")
    path = os.path.join(folder, name)
    content = sample[field]
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "xb") as file:
            for piece in content.pieces() if isinstance(content, FieldFile) else [content]:
                file.write(piece)
    except FileExistsError:
        raise _not_exported(sample, f"the file {printable(name)} is there already, of another sample") from None
    except OSError as error:
        if isinstance(error, StreamError):
            raise
        raise StreamError(f"the file {printable(name)} cannot be written: {error.strerror}", url=folder) from None
    return name


def _not_exported(sample: Sample, reason: str, hint: str | None = None) -> EncodeError:
    return EncodeError(reason, url=sample.get("__url__"), key=sample["__key__"], hint=hint)
