"""Shards to be listed in a manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tarkit
from tarkit.samples.indexing import index_all
from tarkit.specs.manifest import ManifestShard


def shards(folder: Path) -> list[str]:
    """Those of tests/specs/data/manifest/ORIGIN.md."""
    names = []
    for shard, count in enumerate((3, 1, 4)):
        names.append(f"{folder}/s-{shard}.tar")
        with tarkit.TarWriter(names[-1]) as writer:
            for number in range(count):
                writer.write({"__key__": f"k{shard}{number}", "cls": number, "txt": "x" * 300 * number})
    return names


def listed(names: list[str], **options: Any) -> list[ManifestShard]:
    found = []
    for outcome in index_all(names, listed=True, **options):
        assert outcome.listed is not None
        found.append(outcome.listed)
    return found
