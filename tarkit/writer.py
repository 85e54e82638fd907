"""The writers, in a module named as in webdataset: ``from tarkit.writer import TarWriter``."""

from tarkit.samples.shardwriter import ShardWriter
from tarkit.samples.tarwriter import TarWriter, default_mtime

__all__ = ["ShardWriter", "TarWriter", "default_mtime"]
