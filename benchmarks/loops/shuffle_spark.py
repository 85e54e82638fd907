"""Shuffle shards with Spark's own shuffle: shuffle_spark.py FOLDER OUTPUTS SHARD...

Pairs of a random position and the bytes of a sample's members are partitioned by ranges of
positions, sorted, and written. The clock starts when Spark runs and has run a small job.
"""

import json
import os
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from pyspark import SparkConf, SparkContext
from walk import walk

folder, outputs, shards = sys.argv[1], int(sys.argv[2]), sys.argv[3:]


def read(item: tuple[int, str]) -> Iterator[tuple[int, bytes]]:
    draw = random.Random(item[0])
    for sample in walk(item[1]):
        yield draw.getrandbits(64), sample.piece


def write(number: int, rows: Iterator[tuple[int, bytes]]) -> Iterator[int]:
    count = 0
    with open(f"{folder}/out-{number:06d}.tar", "wb") as file:
        for _, piece in rows:
            file.write(piece)
            count += 1
        file.write(bytes(1024))
    yield count


os.environ["PYSPARK_PYTHON"] = sys.executable
settings = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.local.dir": folder,
}
context = SparkContext("local[2]", "benchmark", conf=SparkConf().setAll(settings.items()))
context.addPyFile(str(Path(__file__).parent / "walk.py"))
context.parallelize(range(1000), 2).map(lambda number: (number, b"")).repartitionAndSortWithinPartitions(2).count()
begin = time.perf_counter()
pairs = context.parallelize(enumerate(shards), len(shards)).flatMap(read)
sorted_pairs = pairs.repartitionAndSortWithinPartitions(outputs, lambda position: position * outputs >> 64)
sorted_pairs.mapPartitionsWithIndex(write).sum()
os.sync()
seconds = time.perf_counter() - begin
context.stop()
json.dump({"seconds": seconds}, sys.stdout)
