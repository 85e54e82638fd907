"""Writes the files of this folder: python make.py FOLDER with TensorFlow, and with --pypi those of
PyPI's tfrecord.

The two cannot be imported by one process, since both register the same messages.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3] / "support"))

from tfexamples import EXAMPLES, RECORDS, SEQUENCES, example, sequence


def write_with_tensorflow(folder: Path) -> None:
    """Everything but the file of PyPI's tfrecord."""
    import tensorflow as tf

    contents = {
        "records.tfrecord": ("", RECORDS),
        "records-gzip.tfrecord": ("GZIP", RECORDS),
        "records-zlib.tfrecord": ("ZLIB", RECORDS),
        "examples.tfrecord": ("", [example(each).SerializeToString(deterministic=True) for each in EXAMPLES.values()]),
        "sequences.tfrecord": (
            "",
            [sequence(*each).SerializeToString(deterministic=True) for each in SEQUENCES.values()],
        ),
    }
    for name, (compression, records) in contents.items():
        with tf.io.TFRecordWriter(str(folder / name), tf.io.TFRecordOptions(compression_type=compression)) as writer:
            for record in records:
                writer.write(record)


def write_with_pypi(folder: Path) -> None:
    """Examples by the package tfrecord, and its index."""
    from tfrecord.tools.tfrecord2idx import create_index
    from tfrecord.writer import TFRecordWriter

    writer = TFRecordWriter(str(folder / "pypi.tfrecord"))
    draw = random.Random(5)
    for number in range(3):
        picture = draw.randbytes(50 + number)
        writer.write({"image": (picture, "byte"), "label": (number, "int"), "vector": ([0.5, number + 0.25], "float")})
    writer.close()
    create_index(str(folder / "pypi.tfrecord"), str(folder / "pypi.index"))


if __name__ == "__main__":
    target = Path(sys.argv[-1])
    if "--pypi" in sys.argv:
        write_with_pypi(target)
    else:
        write_with_tensorflow(target)
