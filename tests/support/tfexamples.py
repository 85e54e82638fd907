"""What the files in tests/formats/data/tfrecord hold, and what tests exchange with TensorFlow."""

from __future__ import annotations

import struct
from array import array
from typing import Any

from tarkit.formats.example import BytesList

NAN = struct.unpack("<f", bytes.fromhex("0000c07f"))[0]

RECORDS = [b"", b"a", b"", b"tarkit", bytes(range(256)), b"\0" * 12, b"x" * 1000, bytes(300), b"\x1f\x8b\x08", b"end"]

EXAMPLES: dict[str, dict[str, Any]] = {
    "empty": {},
    "photo": {"image": BytesList([b"\xff\xd8\xff\xd9"]), "label": array("q", [3]), "name": BytesList([b"images/cat"])},
    "no-kind": {"none": None},
    "empty-lists": {"bytes": BytesList(), "float": array("f"), "int": array("q")},
    "empty-values": {"bytes": BytesList([b"", b"", b"x"])},
    "integers": {"int": array("q", [0, 1, 127, 128, 300, -1, -128, 2**31, 2**32, 2**63 - 1, -(2**63)])},
    "floats": {
        "float": array("f", [0.0, -0.0, 0.5, 0.1, -1e-45, 3.4028234663852886e38, float("inf"), -float("inf"), NAN])
    },
    "names": {
        "": array("q", [1]),
        "a": array("q", [2]),
        "a/b": array("q", [3]),
        "\u732b": array("q", [4]),
        "\U0001f431": None,
    },
    "long": {"bytes": BytesList([b"x" * 127, b"y" * 128, b"z" * 20_000]), "float": array("f", [0.25] * 1000)},
}

SEQUENCES: dict[str, tuple[dict[str, Any], dict[str, list[Any]]]] = {
    "empty": ({}, {}),
    "video": (
        {"label": array("q", [7])},
        {
            "frame": [BytesList([b"1"]), BytesList([b"2"]), BytesList([b"3"])],
            "time": [array("f", [0.5]), array("f", [1.5])],
        },
    ),
    "gaps": ({"none": None}, {"empty": [], "steps": [None, array("q"), BytesList(), array("f"), array("q", [1, -1])]}),
}


# ---- as messages of TensorFlow


def feature(values: Any) -> Any:
    """A tf.train.Feature."""
    import tensorflow as tf

    if values is None:
        return tf.train.Feature()
    if isinstance(values, list):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    if values.typecode == "f":
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example(features: dict[str, Any]) -> Any:
    """A tf.train.Example."""
    import tensorflow as tf

    return tf.train.Example(
        features=tf.train.Features(feature={name: feature(each) for name, each in features.items()})
    )


def sequence(context: dict[str, Any], lists: dict[str, list[Any]]) -> Any:
    """A tf.train.SequenceExample."""
    import tensorflow as tf

    return tf.train.SequenceExample(
        context=tf.train.Features(feature={name: feature(each) for name, each in context.items()}),
        feature_lists=tf.train.FeatureLists(
            feature_list={
                name: tf.train.FeatureList(feature=[feature(each) for each in steps]) for name, steps in lists.items()
            }
        ),
    )
