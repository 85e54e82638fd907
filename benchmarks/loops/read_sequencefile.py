"""Read a SequenceFile: WAY PATH [check]; JSON with seconds and pairs.

``check`` adds what was in it, untimed.

The ways: ``tarkit`` gives pairs of str and bytes. ``spark-count`` counts them in Spark's worker of
Python, ``spark-iterator`` brings them to the program. Spark reads the file once before the clock
starts, so that its machine of Java is running and warm.
"""

import json
import os
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

way, path, check = sys.argv[1], sys.argv[2], sys.argv[3:] == ["check"]


def pair_sum(pair: Any) -> int:
    """A checksum, the same whatever the order of the pairs."""
    return zlib.crc32(pair[0].encode() + bytes(pair[1]))


def run_tarkit() -> tuple[float, dict[str, int]]:
    from tarkit.formats.sequencefile import read_pairs

    begin = time.perf_counter()
    count = 0
    for _ in read_pairs(path):
        count += 1
    seconds = time.perf_counter() - begin
    evidence = {"pairs": count}
    if check:
        evidence["sums"] = sum(map(pair_sum, read_pairs(path)))
    return seconds, evidence


def run_spark() -> tuple[float, dict[str, int]]:
    from pyspark import SparkConf, SparkContext

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "2g"}
    context = SparkContext("local[1]", "benchmark", conf=SparkConf().setAll(settings.items()))
    pairs = context.sequenceFile(path)
    count_all: Callable[[], int] = pairs.count
    if way == "spark-iterator":

        def count_all() -> int:
            return sum(1 for _ in pairs.toLocalIterator())

    count_all()
    begin = time.perf_counter()
    count = count_all()
    seconds = time.perf_counter() - begin
    evidence = {"pairs": count}
    if check:
        evidence["sums"] = pairs.map(pair_sum).sum()
    context.stop()
    return seconds, evidence


seconds, evidence = run_tarkit() if way == "tarkit" else run_spark()
json.dump({"seconds": seconds, "evidence": evidence}, sys.stdout)
