"""Read a TFRecord file: WAY PATH COUNT [check]; JSON with seconds and pieces.

``check`` adds what was in it, untimed.

The ways are named after what reads: ``tarkit`` and ``pypi`` give records, ``tarkit-examples`` and
``pypi-examples`` decode them. ``tensorflow`` gives its records one by one as bytes of Python,
``tensorflow-batches`` in tensors of 256, and ``tensorflow-skip`` reads all of them, but gives only
the last one.
"""

import json
import sys
import time
import zlib
from collections.abc import Callable, Iterable
from typing import Any

way, path, total = sys.argv[1], sys.argv[2], int(sys.argv[3])

# Each way: a function that begins to read, and one that makes bytes of what it gave.
Reader = tuple[Callable[[], Iterable[Any]], Callable[[Any], Iterable[bytes]]]


def as_one(record: Any) -> list[bytes]:
    return [bytes(record)]


def image_of(example: Any) -> list[bytes]:
    image = example["image"]
    return [bytes(image[0] if isinstance(image, list) else image)]


def tarkit_reader() -> Reader:
    from tarkit.formats.example import decode_example
    from tarkit.formats.tfrecord import read_records

    if way == "tarkit":
        return lambda: read_records(path), as_one
    return lambda: map(decode_example, read_records(path)), image_of


def pypi_reader() -> Reader:
    from tfrecord.reader import tfrecord_iterator, tfrecord_loader

    if way == "pypi":
        return lambda: tfrecord_iterator(path), as_one
    return lambda: tfrecord_loader(path, None), image_of


def tensorflow_reader() -> Reader:
    import tensorflow as tf

    if way == "tensorflow":
        return lambda: tf.data.TFRecordDataset(path).as_numpy_iterator(), as_one
    if way == "tensorflow-batches":
        return lambda: tf.data.TFRecordDataset(path).batch(256), lambda batch: list(batch.numpy())
    return lambda: tf.data.TFRecordDataset(path).skip(total - 1), lambda last: [last.numpy()]


makers = {"tarkit": tarkit_reader, "pypi": pypi_reader, "tensorflow": tensorflow_reader}
begin_reading, parts = makers[way.partition("-")[0]]()
pieces = 0
begin = time.perf_counter()
for _ in begin_reading():
    pieces += 1
seconds = time.perf_counter() - begin
evidence = {"pieces": pieces}
if sys.argv[4:] == ["check"]:
    records = size = checksum = last = 0
    for piece in begin_reading():
        for record in parts(piece):
            records, size = records + 1, size + len(record)
            checksum, last = zlib.crc32(record, checksum), zlib.crc32(record)
    evidence |= {"records": records, "bytes": size, "checksum": checksum, "last": last}
json.dump({"seconds": seconds, "evidence": evidence}, sys.stdout)
