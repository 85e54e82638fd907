"""The writers under the name that webdataset's users know: ``from tarkit.writer import TarWriter``."""

from tarkit.shardwriter import ShardWriter
from tarkit.tarwriter import TarWriter, default_mtime

__all__ = ["ShardWriter", "TarWriter", "default_mtime"]
