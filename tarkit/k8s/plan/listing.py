"""Sizes of shards from one listing of their folder, where that is all that is needed."""

from __future__ import annotations

import re

from tarkit.errors import LocatedError, UsageError
from tarkit.store.entries import entries

_GLOB = re.compile(r"[*?\[]")


def listed_sizes(spec: str) -> dict[str, int]:
    """Name -> bytes of what is in the folder of a glob like ``s3://bucket/raw/*.tar``.

    Empty for every other spec, and if the folder cannot be listed: then the sizes are not known.
    """
    folder, _, last = spec.rpartition("/")
    if not folder or not _GLOB.search(last) or re.search(r"[*?\[{}]", folder):
        return {}
    if spec.lower().startswith(("@", "http://", "https://")):
        return {}
    try:
        # A listing may write the folder in another way; what counts is how the shards are named.
        return {f"{folder}/{entry.name}": entry.size for entry in entries(folder) if entry.size is not None}
    except (LocatedError, UsageError):
        return {}
