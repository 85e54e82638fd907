"""TFRecord files and Examples, both ways, with TensorFlow and with PyPI's tfrecord: tox run -e
tensorflow.
"""

from __future__ import annotations

import importlib.util
import struct
import subprocess
import sys
from array import array
from pathlib import Path
from typing import Any

import pytest
from examplevalues import features, named, same
from hypothesis import given, settings
from hypothesis import strategies as st
from tfexamples import EXAMPLES, RECORDS, SEQUENCES, example, sequence
from tfrecordbuild import file_of, records_of

from tarkit.errors import CorruptRecordError, DecodeError, TruncatedError
from tarkit.formats.example import (
    BytesList,
    decode_example,
    decode_sequence_example,
    encode_example,
    encode_sequence_example,
)
from tarkit.formats.tfrecord import RecordWriter, read_records

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("NO TENSORFLOW, IT IS NOT COMPARED WITH (tox run -e tensorflow)", allow_module_level=True)

import tensorflow as tf

FILES = Path(__file__).resolve().parents[1] / "data" / "tfrecord"
CODECS = [("", None), ("GZIP", "gz"), ("ZLIB", "zlib")]
pytestmark = pytest.mark.tensorflow


def by_tensorflow(path: Path, compression: str = "") -> list[bytes]:
    return list(tf.data.TFRecordDataset(str(path), compression_type=compression).as_numpy_iterator())


def feature_of(message: Any) -> Any:
    """A tf.train.Feature as tarkit decodes it."""
    kind = message.WhichOneof("kind")
    if kind is None:
        return None
    values = getattr(message, kind).value
    return BytesList(values) if kind == "bytes_list" else array("f" if kind == "float_list" else "q", values)


def features_of(message: Any) -> dict[str, Any]:
    return {name: feature_of(each) for name, each in message.feature.items()}


def lists_of(message: Any) -> dict[str, list[Any]]:
    return {name: [feature_of(step) for step in each.feature] for name, each in message.feature_list.items()}


# ---- files


@pytest.mark.parametrize(("theirs", "ours"), CODECS)
def test_tensorflow_reads_what_is_written(theirs: str, ours: str | None, tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "x", compression=ours) as writer:
        for record in RECORDS:
            writer.write(record)
    assert by_tensorflow(tmp_path / "x", theirs) == RECORDS


@pytest.mark.parametrize(("theirs", "ours"), CODECS)
def test_what_tensorflow_writes_is_read(theirs: str, ours: str | None, tmp_path: Path) -> None:
    with tf.io.TFRecordWriter(str(tmp_path / "x"), tf.io.TFRecordOptions(compression_type=theirs)) as writer:
        for record in RECORDS:
            writer.write(record)
    assert list(read_records(tmp_path / "x")) == list(read_records(tmp_path / "x", compression=ours)) == RECORDS


def test_the_stored_files_are_what_tensorflow_writes(tmp_path: Path) -> None:
    subprocess.run([sys.executable, FILES / "make.py", tmp_path], capture_output=True, check=True)
    for path in sorted(tmp_path.iterdir()):
        # Compressed bytes depend on the version of zlib.
        assert list(read_records(path)) == list(read_records(FILES / path.name))
    assert len(list(tmp_path.iterdir())) == 5


def test_where_tensorflow_ends_without_an_error_and_tarkit_does_not(tmp_path: Path) -> None:
    whole = file_of([b"one", b"two"])
    for extra in range(1, 20):
        (tmp_path / "x").write_bytes(whole + bytes(extra))
        with pytest.raises(TruncatedError if extra < 12 else CorruptRecordError):
            list(read_records(tmp_path / "x"))
        if extra < 12:
            assert by_tensorflow(tmp_path / "x") == [b"one", b"two"]
        else:
            with pytest.raises(tf.errors.DataLossError):
                by_tensorflow(tmp_path / "x")


def test_both_refuse_every_flipped_byte(tmp_path: Path) -> None:
    data = file_of([b"one", b"two"])
    for place in range(len(data)):
        damaged = data[:place] + bytes([data[place] ^ 0x10]) + data[place + 1 :]
        (tmp_path / "x").write_bytes(damaged)
        with pytest.raises(tf.errors.DataLossError):
            by_tensorflow(tmp_path / "x")
        with pytest.raises(CorruptRecordError):
            records_of(damaged, compression=None)


# ---- Examples


def test_the_stored_values_both_ways() -> None:
    for name, values in EXAMPLES.items():
        theirs = example(values)
        assert tf.train.Example.FromString(encode_example(values)).SerializeToString(
            deterministic=True
        ) == theirs.SerializeToString(deterministic=True), name
        assert same(decode_example(theirs.SerializeToString()), values), name
    for name, (context, lists) in SEQUENCES.items():
        message = sequence(context, lists)
        read = tf.train.SequenceExample.FromString(encode_sequence_example(context, lists))
        assert read.SerializeToString(deterministic=True) == message.SerializeToString(deterministic=True), name
        assert same(decode_sequence_example(message.SerializeToString()), (context, lists)), name


@settings(max_examples=300)
@given(named(features()))
def test_any_example_both_ways(values: dict[str, Any]) -> None:
    assert same(features_of(tf.train.Example.FromString(encode_example(values)).features), values)
    assert same(decode_example(example(values).SerializeToString()), values)


@settings(max_examples=300)
@given(named(features()), named(st.lists(features(), max_size=4)))
def test_any_sequence_both_ways(context: dict[str, Any], lists: dict[str, list[Any]]) -> None:
    message = tf.train.SequenceExample.FromString(encode_sequence_example(context, lists))
    assert same((features_of(message.context), lists_of(message.feature_lists)), (context, lists))
    assert same(decode_sequence_example(sequence(context, lists).SerializeToString()), (context, lists))


def test_the_parsers_of_datasets_read_what_is_written(tmp_path: Path) -> None:
    with RecordWriter(tmp_path / "x") as writer:
        for number in range(100):
            writer.write(encode_example({"label": number, "image": b"x" * number, "vector": [0.5, number / 4]}))
    parsed = tf.data.TFRecordDataset(str(tmp_path / "x")).map(
        lambda record: tf.io.parse_single_example(
            record,
            {
                "label": tf.io.FixedLenFeature([], tf.int64),
                "image": tf.io.FixedLenFeature([], tf.string),
                "vector": tf.io.FixedLenFeature([2], tf.float32),
                "missing": tf.io.VarLenFeature(tf.int64),
            },
        )
    )
    found = [(each["label"], each["image"], list(each["vector"])) for each in parsed.as_numpy_iterator()]
    assert found == [(number, b"x" * number, [0.5, number / 4]) for number in range(100)]

    context, lists = tf.io.parse_single_sequence_example(
        encode_sequence_example({"label": 7}, {"frame": [b"1", b"22"], "time": [[0.5], [1.5]]}),
        {"label": tf.io.FixedLenFeature([], tf.int64)},
        {"frame": tf.io.FixedLenSequenceFeature([], tf.string), "time": tf.io.FixedLenSequenceFeature([1], tf.float32)},
    )
    assert context["label"].numpy() == 7
    assert list(lists["frame"].numpy()) == [b"1", b"22"]
    assert lists["time"].numpy().tolist() == [[0.5], [1.5]]


def test_lists_that_are_not_packed_are_the_same_for_both() -> None:
    for feature, expected in (
        (b"\x1a\x08\x08\x01\x08\xac\x02\x0a\x01\x7f", array("q", [1, 300, 127])),
        (b"\x12\x0b\x0d" + struct.pack("<f", 0.5) + b"\x0a\x04" + struct.pack("<f", -2), array("f", [0.5, -2])),
    ):
        entry = b"\x0a\x01a\x12" + bytes([len(feature)]) + feature
        data = b"\x0a" + bytes([len(entry) + 2]) + b"\x0a" + bytes([len(entry)]) + entry
        assert features_of(tf.train.Example.FromString(data).features) == {"a": expected} == decode_example(data)


def test_what_tensorflow_drops_without_an_error_is_an_error_here() -> None:
    lists = encode_sequence_example({"a": 1}, {"b": [2]})
    assert features_of(tf.train.Example.FromString(lists).features) == {"a": array("q", [1])}
    twice = encode_example({"a": 1}) + encode_example({"a": 2})
    assert features_of(tf.train.Example.FromString(twice).features) == {"a": array("q", [2])}
    for data in (lists, twice):
        with pytest.raises(DecodeError):
            decode_example(data)


# ---- the package tfrecord, which cannot be imported beside TensorFlow


def test_the_package_tfrecord_reads_what_is_written(tmp_path: Path) -> None:
    if importlib.util.find_spec("tfrecord") is None:
        pytest.skip("NO PACKAGE tfrecord, IT IS NOT COMPARED WITH (tox run -e tensorflow)")
    for path, compression in ((tmp_path / "x.tfrecord", None), (tmp_path / "x.tfrecord.gz", "gzip")):
        with RecordWriter(path) as writer:
            for number in range(5):
                writer.write(encode_example({"label": number, "image": b"x" * number, "vector": [0.5, number / 4]}))
        program = (
            "import sys; from tfrecord.reader import tfrecord_loader\n"
            "for each in tfrecord_loader(sys.argv[1], None, compression_type=sys.argv[2] or None):\n"
            "    print(int(each['label'][0]), len(each['image']), each['vector'].tolist())"
        )
        command = [sys.executable, "-c", program, str(path), compression or ""]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == [f"{number} {number} [0.5, {number / 4}]" for number in range(5)]
