"""Tables and MNIST's files to serialized Examples."""

from __future__ import annotations

import csv
import struct
from array import array
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import Any

from tarkit.errors import DataError, UsageError, printable
from tarkit.formats.example import encode_example
from tarkit.store.read import open_read

_IDX_TYPES = {8: "B", 9: "b"}


def table_records(
    url: str, *, columns: Sequence[str] | None = None, label: str | None = None, leave_out: Sequence[str] = ()
) -> Iterator[bytes]:
    """A record for each row of a CSV file: floats for columns that are numbers in all rows, bytes for the others.

    The file is read twice: first to know the types, and the values of the label.

    Args:
        columns: their names; None takes them from the first row.
        label: this column is written as ``label``, the index of its value among all its values, sorted.
        leave_out: columns that are not written.

    Raises:
        DataError: a row has another number of columns. UsageError: no such column.
    """
    if columns is None:
        with closing(_rows(url, None)) as rows:
            names = next(rows, [])
    else:
        names = list(columns)
    unknown = [name for name in (*leave_out, *([label] if label else [])) if name not in names]
    if unknown:
        raise UsageError(f"{printable(url)} has no column {printable(unknown[0])}; it has {', '.join(names)}")
    texts = [False] * len(names)
    values: set[str] = set()
    for row in _rows(url, names, header=columns is None):
        for number, value in enumerate(row):
            texts[number] = texts[number] or not _is_number(value)
        if label is not None:
            values.add(row[names.index(label)])
    classes = {value: number for number, value in enumerate(sorted(values))}
    for row in _rows(url, names, header=columns is None):
        features: dict[str, Any] = {}
        for name, text, value in zip(names, texts, row, strict=True):
            if name == label:
                features["label"] = classes[value]
            elif name not in leave_out:
                features[name] = value.encode() if text else float(value)
        yield encode_example(features)


def _rows(url: str, names: Sequence[str] | None, header: bool = False) -> Generator[list[str], None, None]:
    with open_read(url) as stream:
        lines = (line.decode() for line in _lines(stream.read))
        number = 0
        for row in csv.reader(lines, skipinitialspace=True):
            number += 1
            if not row or (header and number == 1):
                continue
            if names is not None and len(row) != len(names):
                raise DataError(f"row {number} has {len(row)} columns, and there are {len(names)} names", url=url)
            yield [value.strip() for value in row]


def _lines(read: Callable[[int], bytes]) -> Iterator[bytes]:
    rest = b""
    while block := read(1 << 20):
        *lines, rest = (rest + block).split(b"\n")
        yield from (line + b"\n" for line in lines)
    if rest:
        yield rest


def _is_number(text: str) -> bool:
    try:
        return float(text) == float(text)
    except ValueError:
        return False


def mnist_records(images: str, labels: str, image: str = "floats") -> Iterator[bytes]:
    """A record for each picture of MNIST's own files (``train-images-idx3-ubyte.gz`` …): ``image`` and ``label``.

    Source of the format: http://yann.lecun.com/exdb/mnist/ (IDX).

    Raises:
        DataError: not such files, cut, or not of the same number.
    """
    shape, pixels = _idx(images)
    (count, *_), classes = _idx(labels)
    if len(shape) != 3 or shape[0] != count:
        raise DataError(f"has {shape[0]} pictures, and {count} labels are in {printable(labels)}", url=images)
    size = shape[1] * shape[2]
    for number in range(count):
        picture = pixels[number * size : (number + 1) * size]
        yield encode_example(
            {"image": array("f", list(picture)) if image == "floats" else bytes(picture), "label": classes[number]}
        )


def _idx(url: str) -> tuple[tuple[int, ...], bytes]:
    with open_read(url) as stream:
        data = b"".join(iter(lambda: stream.read(1 << 20), b""))
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] not in _IDX_TYPES or not data[3]:
        raise DataError("is not one of MNIST's files (IDX of bytes)", url=url, offset=0)
    begin = 4 + 4 * data[3]
    if len(data) < begin:
        raise DataError("is cut in its header", url=url, offset=len(data))
    shape = struct.unpack_from(f">{data[3]}I", data, 4)
    wanted = 1
    for length in shape:
        wanted *= length
    if len(data) - begin != wanted:
        raise DataError(f"has {len(data) - begin} bytes of data, and its header says {wanted}", url=url, offset=begin)
    return shape, data[begin:]
