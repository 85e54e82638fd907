"""Makes the files of this folder with Hadoop's Java, through PySpark; see ORIGIN.md.

python make.py FOLDER, in an environment with pyspark==4.3.0 and a Java 17.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkContext

COUNT = 60
IO = "org.apache.hadoop.io"
CODECS = {
    "default": "DefaultCodec",
    "gzip": "GzipCodec",
    "bzip2": "BZip2Codec",
    "snappy": "SnappyCodec",
    "lz4": "Lz4Codec",
}


def content(index: int) -> bytes:
    """The value of a record; no byte of it is random, some of it repeats."""
    return (b"value %d;" % index) * (index % 7) + bytes(range(index))


class Maker:
    """One Java machine, which writes files."""

    def __init__(self, context: SparkContext, folder: Path) -> None:
        self._gateway = context._gateway
        self.java: Any = context._jvm
        self._context = context
        self._folder = folder

    def classes(self, name: str) -> Any:
        return self.java.java.lang.Class.forName(f"{IO}.{name}")

    def write(
        self,
        name: str,
        key: str,
        value: str,
        pairs: Iterator[tuple[Any, Any]],
        compression: str = "NONE",
        codec: str = "default",
        block: int = 1_000_000,
        metadata: tuple[tuple[str, str], ...] = (),
        interval: int = 400,
    ) -> None:
        """One file of records, whose writables are made already."""
        hadoop, java = self.java.org.apache.hadoop, self.java
        conf = hadoop.conf.Configuration()
        conf.setInt("io.seqfile.compress.blocksize", block)
        maker = java.org.apache.hadoop.io.SequenceFile.Writer
        details = hadoop.io.SequenceFile.Metadata()
        for one, other in metadata:
            details.set(hadoop.io.Text(one), hadoop.io.Text(other))
        kind = getattr(java.org.apache.hadoop.io.SequenceFile.CompressionType, compression)
        made = java.org.apache.hadoop.util.ReflectionUtils.newInstance(
            java.java.lang.Class.forName(f"{IO}.compress.{CODECS[codec]}"), conf
        )
        chosen = [
            maker.file(hadoop.fs.Path(str(self._folder / name))),
            maker.keyClass(self.classes(key)),
            maker.valueClass(self.classes(value)),
            maker.compression(kind, made),
            maker.metadata(details),
            maker.syncInterval(interval),
        ]
        array = self._gateway.new_array(maker.Option, len(chosen))
        for index, option in enumerate(chosen):
            array[index] = option
        writer = java.org.apache.hadoop.io.SequenceFile.createWriter(conf, array)
        for one, other in pairs:
            writer.append(one, other)
        writer.close()

    def text(self, count: int = COUNT) -> Iterator[tuple[Any, Any]]:
        """Text keys, BytesWritable values."""
        io = self.java.org.apache.hadoop.io
        for index in range(count):
            yield io.Text(f"key-{index:04}-\u00e9\U0001f431"), io.BytesWritable(content(index))


def main(folder: Path) -> None:
    context = SparkContext("local[1]", "make")
    maker = Maker(context, folder)
    io = maker.java.org.apache.hadoop.io
    metadata = (("a", "1"), ("note", "caf\u00e9"))
    maker.write("none.seq", "Text", "BytesWritable", maker.text(), metadata=metadata)
    for codec in CODECS:
        maker.write(f"record-{codec}.seq", "Text", "BytesWritable", maker.text(), "RECORD", codec)
        maker.write(f"block-{codec}.seq", "Text", "BytesWritable", maker.text(), "BLOCK", codec, block=1500)
    maker.write("empty-none.seq", "Text", "BytesWritable", iter(()))
    maker.write("empty-block.seq", "Text", "BytesWritable", iter(()), "BLOCK")
    long = b"0123456789abcdef" * 20_000
    for codec in ("snappy", "lz4"):
        for kind in ("RECORD", "BLOCK"):
            pairs = ((io.Text("long"), io.BytesWritable(long)) for _ in range(2))
            maker.write(f"long-{kind.lower()}-{codec}.seq", "Text", "BytesWritable", pairs, kind, codec)
    whole = [0, 1, -1, 127, 128, -112, -113, 255, 256, 65535, 65536, -65537, 2**31 - 1, -(2**31)]
    large = [*whole, 2**31, -(2**31) - 1, 2**40, 2**56, -(2**56), 2**63 - 1, -(2**63)]
    floats = [0.0, -0.0, 1.5, -2.25, float("inf"), 3.0e-39, 1e30]
    maker.write("int-long.seq", "IntWritable", "LongWritable", ((io.IntWritable(i), io.LongWritable(i)) for i in whole))
    maker.write(
        "vint-vlong.seq", "VIntWritable", "VLongWritable", ((io.VIntWritable(i), io.VLongWritable(i)) for i in whole)
    )
    maker.write(
        "vlong-null.seq",
        "VLongWritable",
        "NullWritable",
        ((io.VLongWritable(i), io.NullWritable.get()) for i in large),
        "BLOCK",
        block=20,
    )
    maker.write(
        "boolean-float.seq",
        "BooleanWritable",
        "FloatWritable",
        ((io.BooleanWritable(i % 2 == 1), io.FloatWritable(each)) for i, each in enumerate(floats)),
        "RECORD",
    )
    maker.write(
        "null-double.seq",
        "NullWritable",
        "DoubleWritable",
        ((io.NullWritable.get(), io.DoubleWritable(f)) for f in floats),
    )
    narrow = [0, 1, -1, 127, -128]
    maker.write("byte-short.seq", "ByteWritable", "ShortWritable", _narrow(maker, narrow), "BLOCK", "gzip")
    digests = ((io.MD5Hash.digest(f"{i}"), io.Text(f"{i}")) for i in range(3))
    maker.write("md5-text.seq", "MD5Hash", "Text", digests)
    maker.write("text-map.seq", "Text", "MapWritable", _maps(io), "BLOCK", "default")
    rows = context.parallelize([(f"key-{i}", i) for i in range(10)], 2)
    rows.saveAsSequenceFile(str(folder / "spark-none"))
    rows.map(lambda row: (row[1], bytearray(b"%d" % row[1]))).saveAsSequenceFile(
        str(folder / "spark-gzip"), f"{IO}.compress.GzipCodec"
    )
    context.parallelize([{"a": 1}, "b", 3], 1).saveAsPickleFile(str(folder / "spark-pickle"))
    context.stop()
    for path in sorted(folder.rglob(".*.crc")):
        if path.parent == folder:
            path.unlink()
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        print(hashlib.sha256(path.read_bytes()).hexdigest(), path.stat().st_size, path.relative_to(folder))


def _narrow(maker: Maker, values: list[int]) -> Iterator[tuple[Any, Any]]:
    # Numbers of Python become int, which no constructor takes: the fields are read instead.
    io, java = maker.java.org.apache.hadoop.io, maker.java.java
    for each in values:
        raw = bytearray(each.to_bytes(1, "big", signed=True) + each.to_bytes(2, "big", signed=True))
        stream = java.io.DataInputStream(java.io.ByteArrayInputStream(bytes(raw)))
        key, value = io.ByteWritable(), io.ShortWritable()
        key.readFields(stream)
        value.readFields(stream)
        yield key, value


def _maps(io: Any) -> Iterator[tuple[Any, Any]]:
    for index in range(3):
        found = io.MapWritable()
        found.put(io.Text("a"), io.IntWritable(index))
        yield io.Text(f"{index}"), found


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
