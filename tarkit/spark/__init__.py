"""RecordIO files of raw data, runs over tar shards, and exchanges, on a Spark cluster."""

from tarkit.spark.exchanges import exchange
from tarkit.spark.shards import process

__all__ = ["exchange", "process"]
