"""The writers under the name that webdataset's users know: ``from tarkit.writer import TarWriter``."""

from tarkit.samples.shardwriter import ShardWriter
from tarkit.samples.tarwriter import TarWriter, default_mtime

__all__ = ["ShardWriter", "TarWriter", "default_mtime"]
