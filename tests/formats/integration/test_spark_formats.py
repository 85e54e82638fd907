"""SequenceFiles and archives against Spark and the Hadoop in it (tox run -e spark).

Both directions.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sequencebuild

from tarkit.formats.har import HarWriter
from tarkit.formats.sequencefile import PairWriter, read_pairs
from tarkit.formats.tally import Tally

pytestmark = pytest.mark.spark

ROWS = [(f"key-{i:05}-\u00e9\U0001f431", bytes(range(256))[: i % 200] + b"ab" * (i % 50)) for i in range(5000)]
LONG = [("long", bytes(range(256)) * 3000), ("zeros", bytes(700_000)), ("none", b"")]


@pytest.fixture(scope="module")
def context() -> Iterator[Any]:
    """Spark on this machine."""
    pyspark = pytest.importorskip("pyspark", reason="NO pyspark, NOTHING IS COMPARED WITH SPARK")
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    found = pyspark.SparkContext("local[2]", "tarkit", conf=pyspark.SparkConf().setAll(settings.items()))
    found.setLogLevel("ERROR")
    yield found
    found.stop()


def rows_of(context: Any, path: Path, parts: int = 4) -> list[Any]:
    """What Spark reads, in several parts, as it cuts the file itself."""
    found = context.sequenceFile(str(path), minSplits=parts).collect()
    return [tuple(bytes(each) if isinstance(each, bytearray) else each for each in pair) for pair in found]


@pytest.mark.parametrize("compression", ["none", "record", "block"])
@pytest.mark.parametrize("codec", ["zlib", "gzip", "bzip2", "snappy", "lz4"])
def test_spark_reads_our_files(context: Any, tmp_path: Path, compression: str, codec: str) -> None:
    path = tmp_path / "x.seq"
    rows = ROWS + LONG
    with PairWriter(
        path, compression=compression, codec=codec, metadata={"a": "\u00e9"}, sync_interval=5000, block_bytes=20_000
    ) as writer:
        for pair in rows:
            writer.write(*pair)
    assert rows_of(context, path) == rows


@pytest.mark.parametrize(
    ("key", "value", "rows"),
    [
        ("IntWritable", "LongWritable", [(i, i << 32) for i in (0, 1, -1, 2**31 - 1, -(2**31))]),
        ("BooleanWritable", "FloatWritable", [(True, 1.5), (False, -0.0)]),
        ("NullWritable", "DoubleWritable", [(None, 1.1), (None, float("inf"))]),
    ],
)
@pytest.mark.parametrize("compression", ["none", "block"])
def test_spark_reads_our_numbers(
    context: Any, tmp_path: Path, key: str, value: str, rows: list[Any], compression: str
) -> None:
    path = tmp_path / "x.seq"
    with PairWriter(path, key, value, compression=compression, sync_interval=1, block_bytes=1) as writer:
        for pair in rows:
            writer.write(*pair)
    assert rows_of(context, path, parts=1) == rows


def test_hadoop_reads_our_short_numbers(context: Any, tmp_path: Path) -> None:
    """By its reader itself, since Spark does not take these classes."""
    rows = [(i, i << 32) for i in (0, 127, 128, -112, -113, 255, 256, -257, 2**31 - 1, -(2**31))]
    with PairWriter(tmp_path / "x.seq", "VIntWritable", "VLongWritable") as writer:
        for pair in rows:
            writer.write(*pair)
    hadoop = context._jvm.org.apache.hadoop
    maker = hadoop.io.SequenceFile.Reader
    options = context._gateway.new_array(maker.Option, 1)
    options[0] = maker.file(hadoop.fs.Path(str(tmp_path / "x.seq")))
    reader = maker(hadoop.conf.Configuration(), options)
    key, value = hadoop.io.VIntWritable(), hadoop.io.VLongWritable()
    found = []
    while reader.next(key, value):
        found.append((key.get(), value.get()))
    reader.close()
    assert found == rows


@pytest.mark.parametrize(
    ("version", "kind"),
    [(v, "none") for v in range(1, 7)] + [(v, "record") for v in range(3, 7)] + [(v, "block") for v in range(4, 7)],
)
def test_the_old_versions_of_our_tests_are_what_hadoop_reads(
    context: Any, tmp_path: Path, version: int, kind: str
) -> None:
    rows = [("a", "1"), ("b\u00e9", ""), ("", "3")]
    data = sequencebuild.header(version, kind)
    if kind == "block":
        data += sequencebuild.block(rows[:2]) + sequencebuild.block(rows[2:])
    else:
        one, two, three = (sequencebuild.record(*row, compressed=kind == "record") for row in rows)
        data += one + (sequencebuild.MARK if version > 1 else b"") + two + three
    path = tmp_path / "x.seq"
    path.write_bytes(data)
    assert rows_of(context, path, parts=1) == rows
    assert list(read_pairs(path)) == rows


@pytest.mark.parametrize("codec", ["DefaultCodec", "GzipCodec", "BZip2Codec", "SnappyCodec", "Lz4Codec", None])
def test_we_read_folders_of_spark(context: Any, tmp_path: Path, codec: str | None) -> None:
    name = f"org.apache.hadoop.io.compress.{codec}" if codec else None
    rows = ROWS + LONG
    prepared = context.parallelize([(key, bytearray(value)) for key, value in rows], 3)
    prepared.saveAsSequenceFile(str(tmp_path / "out"), name)
    tally = Tally()
    assert list(read_pairs(tmp_path / "out", tally=tally)) == rows
    assert tally.skipped == {"metadata": 1, "checksum": 4}


def test_what_hadoop_ends_at_silently_is_an_error_here(context: Any, tmp_path: Path) -> None:
    """The cases for which tarkit differs: so that the page about the format stays true."""
    block = sequencebuild.header(kind="block") + sequencebuild.block([("a", "1")]) + sequencebuild.block([("b", "2")])
    start = block.rindex(sequencebuild.MARK)
    plain = sequencebuild.header() + sequencebuild.record("a", "1")
    cases = {
        "mark": block[: start + 10],
        "keys": block[: start + 30],
        "two marks": plain + sequencebuild.MARK * 2 + sequencebuild.record("b", "2"),
        "negative key": plain + bytes.fromhex("00000004 fffffffd 01610000"),
    }
    for name, data in cases.items():
        path = tmp_path / name
        path.write_bytes(data)
        assert rows_of(context, path, parts=1) == [("a", "1")], name
        with pytest.raises(ValueError, match="record 1"):
            list(read_pairs(path))


def test_spark_reads_our_archives(context: Any, tmp_path: Path) -> None:
    files = {"a/1.txt": b"one", "a/b c~\u00e9*.txt": b"two" * 1000, "top.txt": b""}
    with HarWriter(tmp_path / "x.har", part_size=2) as writer:
        for name, content in files.items():
            writer.write(name, content)
    for folder in ("", "/a"):
        found = context.binaryFiles(f"har://{tmp_path}/x.har{folder}/*.txt").collect()
        expected = {n: c for n, c in files.items() if n.rpartition("/")[0] == folder.lstrip("/")}
        assert {url.partition("x.har/")[2]: bytes(content) for url, content in found} == expected
