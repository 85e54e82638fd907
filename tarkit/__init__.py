"""tarkit: the toolkit for tar shards of training data.

``import tarkit`` loads the standard library only; everything else when it is first used.
"""

from tarkit.errors import TarkitError
from tarkit.sample import Sample, Tally, group_by_keys
from tarkit.shards import expand
from tarkit.tarshard import read_members, read_samples
from tarkit.writer import ShardWriter, TarWriter

__all__ = [
    "Sample",
    "ShardWriter",
    "Tally",
    "TarWriter",
    "TarkitError",
    "expand",
    "group_by_keys",
    "read_members",
    "read_samples",
]
