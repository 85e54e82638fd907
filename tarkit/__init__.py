"""tarkit: the toolkit for tar shards of training data.

``import tarkit`` loads nothing but this file; each name loads its module at its first use, so that
a program that only prints its help starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarkit.errors import TarkitError
    from tarkit.formats.tally import Tally
    from tarkit.runs.process import process
    from tarkit.samples.read import read_members, read_samples
    from tarkit.samples.sample import Sample, group_by_keys
    from tarkit.specs.shardspec import expand
    from tarkit.trainers.arrays import batches
    from tarkit.trainers.shardmap import ShardMap
    from tarkit.writer import ShardWriter, TarWriter

    __version__: str
else:
    # Type checkers do not see it: a name that does not exist is an error for them.
    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version("tarkit")
        if name not in _MODULES:
            raise AttributeError(f"module 'tarkit' has no attribute {name!r}")
        import importlib

        value = getattr(importlib.import_module(f"tarkit.{_MODULES[name]}"), name)
        globals()[name] = value
        return value


__all__ = [
    "Sample",
    "ShardMap",
    "ShardWriter",
    "Tally",
    "TarWriter",
    "TarkitError",
    "batches",
    "expand",
    "group_by_keys",
    "process",
    "read_members",
    "read_samples",
]

_MODULES = {
    "Sample": "samples.sample",
    "ShardMap": "trainers.shardmap",
    "ShardWriter": "samples.shardwriter",
    "Tally": "formats.tally",
    "TarWriter": "samples.tarwriter",
    "TarkitError": "errors",
    "batches": "trainers.arrays",
    "expand": "specs.shardspec",
    "group_by_keys": "samples.sample",
    "process": "runs.process",
    "read_members": "samples.read",
    "read_samples": "samples.read",
}


def __dir__() -> list[str]:
    """List the public names, without modules: those depend on what was imported before."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__")), "__version__"])
