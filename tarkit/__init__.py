"""tarkit: the toolkit for tar shards of training data.

``import tarkit`` loads nothing but this file; each name brings its module when it is first used,
so that a program that only prints its help starts quickly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tarkit.dataset import WebDataset
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
    "WebDataset",
    "expand",
    "group_by_keys",
    "read_members",
    "read_samples",
]

_MODULES = {
    "Sample": "sample",
    "ShardWriter": "writer",
    "Tally": "sample",
    "TarWriter": "writer",
    "TarkitError": "errors",
    "WebDataset": "dataset",
    "expand": "shards",
    "group_by_keys": "sample",
    "read_members": "tarshard",
    "read_samples": "tarshard",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tarkit' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"tarkit.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
