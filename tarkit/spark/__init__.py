"""RecordIO files of raw data, and runs over tar shards, on a Spark cluster."""

from tarkit.spark.shards import process

__all__ = ["process"]
